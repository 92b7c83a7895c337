// How far models of every quantised type are from the float model whose weights they round. A made-up model has the
// same weights at every --dtype, before rounding; being random it has no redundancy, so real models diverge less.
#include <gtest/gtest.h>

#include "golden/divergence.h"
#include "parallel/thread_cluster.h"
#include "parallel/tiny_model.h"

namespace tutti::testing {
namespace {

Json model_config() {
  Json config = tiny_config();
  config["hidden_size"] = 256;
  config["intermediate_size"] = 512;
  config["num_attention_heads"] = 8;
  config["num_key_value_heads"] = 2;
  config["head_dim"] = 64;  // a KV head's queries fill a block of 256
  config["vocab_size"] = 512;
  return config;
}

std::vector<std::vector<float>> rows(const std::string& path, const std::string& dtype, int tp, const std::string& cache = "auto") {
  std::vector<int32_t> prompt;
  for (int i = 0; i < 100; ++i) prompt.push_back((i * i * 31 + 7) % 512);
  EngineConfig engine = test_engine(path, tp);
  engine.load_format = "dummy";
  engine.dtype = dtype;
  engine.cache.kv_cache_dtype = cache;
  return logprob_rows(run_cluster(engine, make_schedule({scored_request(prompt, 1)})).at(1));
}

struct Case {
  const char* dtype;
  double most;
};

class QuantisedModel : public ::testing::TestWithParam<Case> {};

TEST_P(QuantisedModel, StaysCloseToTheFloatModel) {
  const TinyModel model(model_config());
  static const auto expected = rows(model.path(), "float32", 1);
  for (int tp : {1, 2}) {
    const double divergence = mean_divergence(expected, rows(model.path(), GetParam().dtype, tp));
    RecordProperty("mean_kl_tp" + std::to_string(tp), std::to_string(divergence));
    std::printf("%s TP=%d: mean KL %.2e\n", GetParam().dtype, tp, divergence);
    EXPECT_LT(divergence, GetParam().most);
    EXPECT_GT(divergence, 0.0);
  }
}

INSTANTIATE_TEST_SUITE_P(Types, QuantisedModel,
                         ::testing::Values(Case{"bfloat16", 1e-4}, Case{"q8_0", 1e-3}, Case{"q6_k", 5e-3}, Case{"q5_k", 2e-2},
                                           Case{"q5_1", 2e-2}, Case{"q5_0", 2e-2}, Case{"q4_k", 8e-2}, Case{"q4_1", 8e-2},
                                           Case{"q4_0", 8e-2}, Case{"iq4_nl", 8e-2}, Case{"iq4_xs", 8e-2}, Case{"q3_k", 3e-1},
                                           Case{"q2_k", 1.0}),
                         [](const auto& info) { return std::string(info.param.dtype); });

// A cache of fewer bits: the weights are the float model's. Measured: bfloat16 5.6e-6, int8 5.2e-5; the bounds are twice
// that. The ratio of 9 is that of the two roundings' variances: 2^-9 relative, and 1/127 of a block's largest of 32.
TEST(QuantisedCache, StaysCloseToTheFloatCache) {
  const TinyModel model(model_config());
  const auto expected = rows(model.path(), "float32", 1);
  for (const auto& [cache, most] : {std::pair("bfloat16", 1.2e-5), std::pair("int8", 1.1e-4)}) {
    const double divergence = mean_divergence(expected, rows(model.path(), "float32", 1, cache));
    RecordProperty(std::string("mean_kl_cache_") + cache, std::to_string(divergence));
    std::printf("cache %s: mean KL %.2e\n", cache, divergence);
    EXPECT_LT(divergence, most);
    EXPECT_GT(divergence, 0.0);
  }
  EXPECT_EQ(rows(model.path(), "float32", 2, "int8"), rows(model.path(), "float32", 1, "int8")) << "TP=2";
}

}  // namespace
}  // namespace tutti::testing
