// A model gives the same logits, to the last bit, and the same text however it is cut over ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "parallel/thread_cluster.h"
#include "parallel/tiny_model.h"

namespace tutti::testing {
namespace {

std::vector<TestRequest> requests() {
  std::vector<TestRequest> all;
  for (int r = 0; r < 3; ++r) {
    std::vector<int32_t> prompt;
    for (int i = 0; i < 7 + 9 * r; ++i) prompt.push_back((37 * i + 11 * r + 5) % 200);
    all.push_back(scored_request(prompt, 12));
  }
  return all;
}

EngineConfig dummy_engine(const std::string& path, int tp, int pp, const std::string& dtype = "float32") {
  EngineConfig engine = test_engine(path, tp, pp);
  engine.load_format = "dummy";
  engine.dtype = dtype;
  return engine;
}

// Bit for bit: no sum depends on how the model is cut.
void expect_same(const Results& expected, const Results& actual) {
  ASSERT_EQ(expected.size(), actual.size());
  for (const auto& [id, result] : expected) {
    EXPECT_EQ(result.tokens, actual.at(id).tokens) << "request " << id;
    EXPECT_EQ(relative_error(logprob_rows(result), logprob_rows(actual.at(id))).worst, 0.0) << "request " << id;
  }
}

struct Layout {
  const char* architecture;
  int tp;
  int pp;
  TransportKind transport = TransportKind::kInProcess;
};

std::string name_of(const ::testing::TestParamInfo<Layout>& info) {
  const Layout& l = info.param;
  const char* transport = l.transport == TransportKind::kShm ? "Shm" : l.transport == TransportKind::kTcp ? "Tcp" : "InProcess";
  return std::string(l.architecture) + "Tp" + std::to_string(l.tp) + "Pp" + std::to_string(l.pp) + transport;
}

std::vector<Layout> grid() {
  std::vector<Layout> all;
  for (const char* architecture : {"LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM"}) {
    for (TransportKind transport : {TransportKind::kInProcess, TransportKind::kShm, TransportKind::kTcp}) {
      for (int tp : {1, 2, 3, 4}) {
        for (int pp : {1, 2, 3}) all.push_back({architecture, tp, pp, transport});
      }
    }
  }
  // Every rank count up to the number of heads, with KV heads shared where there are fewer.
  for (int tp : {5, 6}) all.push_back({"LlamaForCausalLM", tp, 1});
  return all;
}

class Parity : public ::testing::TestWithParam<Layout> {};

TEST_P(Parity, BitsOfOneRank) {
  const Layout& layout = GetParam();
  const TinyModel model(tiny_config(layout.architecture));
  ScheduleOptions options;
  options.chunk = 5;
  options.groups = layout.pp;
  const auto schedule = make_schedule(requests(), options);
  const Results expected = run_cluster(dummy_engine(model.path(), 1, 1), schedule);
  expect_same(expected, run_cluster(dummy_engine(model.path(), layout.tp, layout.pp), schedule, {}, layout.transport));
}

INSTANTIATE_TEST_SUITE_P(Grid, Parity, ::testing::ValuesIn(grid()), name_of);

// Numbers of ranks that divide nothing, with KV heads of their own and with shared ones.
TEST(ManyRanks, BitsOfOneRank) {
  const auto schedule = make_schedule(requests());
  for (const int kv_heads : {7, 2}) {
    Json config = tiny_config();
    config["num_attention_heads"] = 14;
    config["num_key_value_heads"] = kv_heads;
    const TinyModel model(config);
    const Results expected = run_cluster(dummy_engine(model.path(), 1, 1), schedule);
    for (const int tp : {5, 6, 7}) {
      SCOPED_TRACE(::testing::Message() << tp << " ranks, " << kv_heads << " KV heads");
      expect_same(expected, run_cluster(dummy_engine(model.path(), tp, 1), schedule));
    }
    expect_same(expected, run_cluster(dummy_engine(model.path(), 7, 1), schedule, {}, TransportKind::kTcp));
  }
}

TEST(UnevenShares, LogitsOfOneRank) {
  const TinyModel model(tiny_config());
  const auto schedule = make_schedule(requests());
  const Results expected = run_cluster(dummy_engine(model.path(), 1, 1), schedule);
  for (const std::vector<int>& shares : {std::vector<int>{2, 1}, {1, 3}, {1, 20}}) {
    EngineConfig engine = dummy_engine(model.path(), 2, 1);
    engine.parallel.tensor_split = shares;
    expect_same(expected, run_cluster(engine, schedule));
  }
}

TEST(LayerPartition, LogitsOfOneRank) {
  const TinyModel model(tiny_config());
  const auto schedule = make_schedule(requests());
  const Results expected = run_cluster(dummy_engine(model.path(), 1, 1), schedule);
  EngineConfig engine = dummy_engine(model.path(), 1, 2);
  engine.parallel.pipeline_layer_partition = {2, 1};
  expect_same(expected, run_cluster(engine, schedule));
}

// Where an activation is rounded to 8 bits the last bit of a sum matters: it is the same at every layout.
TEST(Quantised, BitsOfOneRank) {
  const TinyModel model(tiny_config());
  const auto schedule = make_schedule(requests());
  for (const char* dtype : {"bfloat16", "float16", "q8_0", "q5_1", "q4_0", "q4_1", "iq4_nl"}) {
    SCOPED_TRACE(dtype);
    const Results expected = run_cluster(dummy_engine(model.path(), 1, 1, dtype), schedule);
    for (int tp : {2, 3, 5}) {
      SCOPED_TRACE(tp);
      expect_same(expected, run_cluster(dummy_engine(model.path(), tp, 1, dtype), schedule));
    }
    expect_same(expected, run_cluster(dummy_engine(model.path(), 2, 2, dtype), schedule));
  }
}

// A request's tokens do not depend on its neighbours, on the chunk of its prompt or on turns.
TEST(Batch, SameBitsAloneAndInACrowd) {
  const TinyModel model(tiny_config());
  const EngineConfig engine = dummy_engine(model.path(), 1, 1);
  auto all = requests();
  all[1].sampling.temperature = 0.8;
  all[1].sampling.seed = 7;
  all[2].sampling.temperature = 1.0;
  all[2].sampling.top_p = 0.9;
  all[2].sampling.seed = 7;
  const Results crowd = run_cluster(engine, make_schedule(all));
  ScheduleOptions chunked;
  chunked.chunk = 3;
  chunked.groups = 2;
  const Results small_chunks = run_cluster(engine, make_schedule(all, chunked));
  for (size_t i = 0; i < all.size(); ++i) {
    const RequestResult alone = run_cluster(engine, make_schedule({all[i]})).at(1);
    for (const Results* other : {&crowd, &small_chunks}) {
      EXPECT_EQ(alone.tokens, other->at(i + 1).tokens);
      EXPECT_EQ(logprob_rows(alone), logprob_rows(other->at(i + 1)));  // bit for bit
    }
  }
}

TEST(Errors, TooManyRanksNameTheLimit) {
  const TinyModel model(tiny_config());
  try {
    run_cluster(dummy_engine(model.path(), 7, 1), {});
    FAIL() << "7 ranks share 6 heads";
  } catch (const ConfigError& e) {
    EXPECT_THAT(e.what(), ::testing::HasSubstr("6 parts at most"));
  }
}

}  // namespace
}  // namespace tutti::testing
