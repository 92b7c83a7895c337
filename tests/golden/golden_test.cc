// Every family gives the reference's logits and text, and a model with one thing wrong does not.
#include "golden/golden.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <string_view>

#include "base/error.h"
#include "parallel/thread_cluster.h"
#include "tensor/device_memory.h"

namespace tutti::testing {
namespace {

constexpr double kFloat32 = 1e-4;   // of the worst logit
constexpr double kBFloat16 = 2e-2;  // root mean square: weights and cache are rounded to 8 bits, at random

struct Settings {
  int tp = 1;
  int pp = 1;
  std::string device = "cpu";
  std::string dtype = "float32";
  std::string kv_cache_dtype = "auto";
  Prepare prepare;
};

RequestResult run(const Golden& golden, const Settings& settings) {
  EngineConfig engine = test_engine(golden.folder, settings.tp, settings.pp);
  engine.dtype = settings.dtype;
  engine.device = settings.device;
  engine.cache.kv_cache_dtype = settings.kv_cache_dtype;
  const TestRequest request = scored_request(golden.prompt, static_cast<int32_t>(golden.greedy.size()));
  return run_cluster(engine, make_schedule({request}), settings.prepare).at(1);
}

// The golden's logits as log-probabilities, which is what a worker gives.
std::vector<std::vector<float>> golden_rows(const Golden& golden) {
  std::vector<std::vector<float>> rows;
  for (int64_t r = 0; r < golden.logits.size(0); ++r) {
    const float* logits = golden.logits.row<float>(r);
    double sum = 0.0;
    for (int64_t i = 0; i < golden.logits.size(1); ++i) sum += std::exp(static_cast<double>(logits[i]));
    rows.emplace_back();
    for (int64_t i = 0; i < golden.logits.size(1); ++i) rows.back().push_back(static_cast<float>(logits[i] - std::log(sum)));
  }
  return rows;
}

RelativeError error_of(const Golden& golden, const RequestResult& result) {
  auto rows = logprob_rows(result);
  rows.resize(golden.prompt.size());  // those of the prompt
  return relative_error(golden_rows(golden), rows);
}

class Goldens : public ::testing::TestWithParam<std::tuple<std::string, int>> {};

TEST_P(Goldens, Float32) {
  const auto& [name, tp] = GetParam();
  const Golden golden = load_golden(name);
  const RequestResult result = run(golden, {.tp = tp});
  EXPECT_LT(error_of(golden, result).worst, kFloat32);
  EXPECT_EQ(result.tokens, golden.greedy);
}

TEST_P(Goldens, BFloat16) {
  const auto& [name, tp] = GetParam();
  const Golden golden = load_golden(name);
  const RequestResult result = run(golden, {.tp = tp, .dtype = "bfloat16", .kv_cache_dtype = "bfloat16"});
  EXPECT_LT(error_of(golden, result).rms, kBFloat16);
}

// The golden's text, up to the first token whose lead is small enough for rounding to change it.
void expect_text(const Golden& golden, const std::vector<int32_t>& tokens, const std::string& what) {
  ASSERT_EQ(tokens.size(), golden.greedy.size());
  const auto differs = std::mismatch(golden.greedy.begin(), golden.greedy.end(), tokens.begin()).first;
  if (differs == golden.greedy.end()) return;
  const auto at = static_cast<size_t>(differs - golden.greedy.begin());
  EXPECT_LT(golden.greedy_gaps[at], 0.1f) << what << ": token " << at << " differs";
}

class GoldensOnGpu : public ::testing::TestWithParam<std::tuple<std::string, std::string>> {
  void SetUp() override {
    if (cuda::device_count() == 0) GTEST_SKIP() << "no GPU, or a build without CUDA";
  }
};

TEST_P(GoldensOnGpu, LogitsAndText) {
  const auto& [name, dtype] = GetParam();
  const Golden golden = load_golden(name);
  const RequestResult scored = run(golden, {.device = "cuda", .dtype = dtype});
  const RelativeError error = error_of(golden, scored);
  std::printf("%s %s: rms %.5f, worst %.5f of the logits' deviation\n", name.c_str(), dtype.c_str(), error.rms, error.worst);
  EXPECT_LT(error.rms, kBFloat16);
  expect_text(golden, scored.tokens, "chosen by the sampler");
}

// The GPU chooses the tokens, one step ahead, with graphs and without.
TEST_P(GoldensOnGpu, LookAheadGivesTheSameText) {
  const auto& [name, dtype] = GetParam();
  const Golden golden = load_golden(name);
  EngineConfig engine = test_engine(golden.folder);
  engine.dtype = dtype;
  engine.device = "cuda";
  for (const bool eager : {false, true}) {
    engine.enforce_eager = eager;
    const TestRequest request{golden.prompt, static_cast<int32_t>(golden.greedy.size()), greedy()};
    const Results results = run_cluster(engine, make_schedule({request, request, request}));
    for (const auto& [id, result] : results) expect_text(golden, result.tokens, "request " + std::to_string(id) + (eager ? ", eager" : ""));
  }
}

// Tokens drawn on the GPU are those that the host draws from the same logits: asking for log-probabilities makes it the host's.
// The same they are with one kernel for all products; others are chosen by timing, anew in each worker for prompts of a length
// that none has met, and round otherwise.
TEST_P(GoldensOnGpu, DrawsOfTheHost) {
  const auto& [name, dtype] = GetParam();
  const Golden golden = load_golden(name);
  EngineConfig engine = test_engine(golden.folder);
  engine.dtype = dtype;
  engine.device = "cuda";
  engine.batch_invariant = true;
  std::vector<TestRequest> all;
  for (const double top_p : {1.0, 0.8}) {
    TestRequest request{golden.prompt, static_cast<int32_t>(golden.greedy.size()), greedy()};
    request.sampling.temperature = 0.7;
    request.sampling.top_p = top_p;
    request.sampling.min_p = top_p < 1.0 ? 0.01 : 0.0;
    request.sampling.seed = 11;
    all.push_back(request);
  }
  const Results by_gpu = run_cluster(engine, make_schedule(all));
  for (TestRequest& request : all) request.sampling.logprobs = 1;
  const Results by_host = run_cluster(engine, make_schedule(all));
  for (const auto& [id, result] : by_gpu) {
    EXPECT_EQ(result.tokens, by_host.at(id).tokens);
    EXPECT_NE(result.tokens, golden.greedy);
  }
}

// With batch_invariant: the bits of a request are the same alone, beside others, and with its prompt in chunks.
TEST_P(GoldensOnGpu, BatchInvariant) {
  const auto& [name, dtype] = GetParam();
  const Golden golden = load_golden(name);
  EngineConfig engine = test_engine(golden.folder);
  engine.dtype = dtype;
  engine.device = "cuda";
  engine.batch_invariant = true;
  std::vector<TestRequest> all;
  for (const size_t length : {golden.prompt.size(), size_t{5}, size_t{9}}) {
    all.push_back(scored_request({golden.prompt.begin(), golden.prompt.begin() + static_cast<std::ptrdiff_t>(length)}, 12));
  }
  Results alone;
  try {
    for (size_t i = 0; i < all.size(); ++i) alone[i + 1] = run_cluster(engine, make_schedule({all[i]})).at(1);
  } catch (const ConfigError& e) {
    GTEST_SKIP() << e.what();
  }
  ScheduleOptions chunked;
  chunked.chunk = 3;
  for (const ScheduleOptions& options : {ScheduleOptions(), chunked}) {
    const Results crowd = run_cluster(engine, make_schedule(all, options));
    for (const auto& [id, result] : alone) {
      EXPECT_EQ(result.tokens, crowd.at(id).tokens);
      EXPECT_EQ(logprob_rows(result), logprob_rows(crowd.at(id)));
    }
  }
}

struct Layout {
  const char* name;
  int tp;
  int pp;
};

// A GPU for each rank: through each other's memory, and NCCL where a group has it.
class GoldensOverGpus : public ::testing::TestWithParam<std::tuple<std::string, Layout>> {
  void SetUp() override {
    if (cuda::device_count() < 2) GTEST_SKIP() << "fewer than two GPUs, or a build without CUDA";
  }
};

TEST_P(GoldensOverGpus, LogitsAndText) {
  const auto& [name, layout] = GetParam();
  const Golden golden = load_golden(name);
  const RequestResult scored = run(golden, {.tp = layout.tp, .pp = layout.pp, .device = "cuda", .dtype = "bfloat16"});
  const RelativeError error = error_of(golden, scored);
  std::printf("%s %s: rms %.5f, worst %.5f of the logits' deviation\n", name.c_str(), layout.name, error.rms, error.worst);
  EXPECT_LT(error.rms, kBFloat16);
  expect_text(golden, scored.tokens, "chosen by the sampler");
}

// Each GPU finds the best token of its part of the vocabulary, and they agree on the best of all; in a pipeline the last
// one does.
TEST_P(GoldensOverGpus, TheGpusChooseTheSameText) {
  const auto& [name, layout] = GetParam();
  const Golden golden = load_golden(name);
  EngineConfig engine = test_engine(golden.folder, layout.tp, layout.pp);
  engine.dtype = "bfloat16";
  engine.device = "cuda";
  for (const bool eager : {false, true}) {
    engine.enforce_eager = eager;
    const TestRequest request{golden.prompt, static_cast<int32_t>(golden.greedy.size()), greedy()};
    const Results results = run_cluster(engine, make_schedule({request, request, request}, {.groups = layout.pp}));
    for (const auto& [id, result] : results) expect_text(golden, result.tokens, "request " + std::to_string(id) + (eager ? ", eager" : ""));
  }
}

INSTANTIATE_TEST_SUITE_P(Families, GoldensOverGpus,
                         ::testing::Combine(::testing::ValuesIn(golden_names()),
                                            ::testing::Values(Layout{"tp2", 2, 1}, Layout{"pp2", 1, 2})),
                         [](const auto& info) { return std::get<0>(info.param) + "_" + std::get<1>(info.param).name; });

INSTANTIATE_TEST_SUITE_P(Families, GoldensOnGpu,
                         ::testing::Combine(::testing::ValuesIn(golden_names()), ::testing::Values("bfloat16", "float16")),
                         [](const auto& info) { return std::get<0>(info.param) + "_" + std::get<1>(info.param); });

INSTANTIATE_TEST_SUITE_P(Families, Goldens, ::testing::Combine(::testing::ValuesIn(golden_names()), ::testing::Values(1, 2)),
                         [](const auto& info) { return std::get<0>(info.param) + "_tp" + std::to_string(std::get<1>(info.param)); });

// The mutations: each changes one thing that a wrong implementation would have wrong.

std::string swapped_gate_up(std::string_view parameter) {
  std::string name(parameter);
  if (const size_t at = name.find("mlp.gate"); at != std::string::npos) {
    name.replace(at, 8, "mlp.up");
  } else if (const size_t up = name.find("mlp.up"); up != std::string::npos) {
    name.replace(up, 6, "mlp.gate");
  }
  return common_hf_name(name);
}

struct Mutation {
  const char* name;
  std::vector<std::string> models;
  std::function<void(ModelSource&)> apply;
};

std::vector<Mutation> mutations() {
  static const Family* mutated = [] {
    static Family family = {"mutated", {}, {}, nullptr, nullptr, swapped_gate_up, common_gguf_name};
    return &family;
  }();
  return {
      {"eps_of_another_family", golden_names(), [](ModelSource& s) { s.config.rms_norm_eps = 1e-6; }},
      {"rope_base", golden_names(), [](ModelSource& s) { s.config.rope.theta *= 1.5; }},
      {"rope_scaling_ignored", {"llama3", "llama_linear", "llama_yarn"}, [](ModelSource& s) { s.config.rope.scaling = RopeScalingType::kNone; }},
      {"rope_scaling_factor", {"llama3", "llama_linear", "llama_yarn"}, [](ModelSource& s) { s.config.rope.factor *= 1.25; }},
      {"rope_layout", golden_names(), [](ModelSource& s) { s.config.rope.layout = RopeLayout::kInterleaved; }},
      {"swapped_gate_and_up", golden_names(), [](ModelSource& s) { s.family = mutated; }},
      {"no_qk_norm", {"qwen3"}, [](ModelSource& s) { s.config.qk_norm = false; }},
      {"no_qkv_bias", {"qwen2"}, [](ModelSource& s) { s.config.qkv_bias = false; }},
      {"attention_scale", golden_names(), [](ModelSource& s) { s.config.attention_scale = 1.01 / std::sqrt(s.config.head_dim); }},
      {"mask_one_too_narrow", {"mistral"}, [](ModelSource& s) { --s.config.sliding_window; }},
      {"mask_one_too_wide", {"mistral"}, [](ModelSource& s) { ++s.config.sliding_window; }},
      // The last prompt token does not see the first one.
      {"mask_hides_the_first", {"llama2", "llama3", "qwen2", "qwen3"}, [](ModelSource& s) { s.config.sliding_window = 15; }},
  };
}

TEST(Mutations, EachFailsItsGolden) {
  for (const Mutation& mutation : mutations()) {
    for (const std::string& name : mutation.models) {
      SCOPED_TRACE(std::string(mutation.name) + " in " + name);
      const Golden golden = load_golden(name);
      const RequestResult result = run(golden, {.prepare = mutation.apply});
      EXPECT_GT(error_of(golden, result).worst, 10 * kFloat32);
    }
  }
}

}  // namespace
}  // namespace tutti::testing
