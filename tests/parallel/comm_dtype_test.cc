// What --comm-dtype costs: sums that cross between nodes as int8 or fp8 change the answer a little, and this measures it.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>

#include "parallel/thread_cluster.h"
#include "parallel/tiny_model.h"

namespace tutti::testing {
namespace {

Json model_config() {
  Json config = tiny_config();
  config["hidden_size"] = 256;
  config["intermediate_size"] = 512;
  config["num_hidden_layers"] = 6;
  config["num_attention_heads"] = 8;
  config["num_key_value_heads"] = 4;
  config["vocab_size"] = 512;
  return config;
}

std::vector<TestRequest> requests() {
  std::vector<int32_t> prompt;
  for (int i = 0; i < 100; ++i) prompt.push_back((i * i * 31 + 7) % 512);
  return {scored_request(prompt, 4)};
}

std::vector<std::vector<float>> rows(const std::string& path, const std::string& dtype, const std::string& comm_dtype, int tp) {
  EngineConfig engine = test_engine(path, tp);
  engine.load_format = "dummy";
  engine.dtype = dtype;
  engine.comm.dtype = comm_dtype;
  return logprob_rows(run_cluster(engine, make_schedule(requests()), {}, TransportKind::kTcp).at(1));
}

// Mean over the positions of sum p log(p / q), of the prompt: after it greedy texts may part.
double mean_divergence(const std::vector<std::vector<float>>& p, const std::vector<std::vector<float>>& q) {
  constexpr size_t kPositions = 99;
  double sum = 0.0;
  for (size_t r = 0; r < kPositions; ++r) {
    for (size_t i = 0; i < p[r].size(); ++i) sum += std::exp(static_cast<double>(p[r][i])) * (p[r][i] - q[r][i]);
  }
  return sum / static_cast<double>(kPositions);
}

struct Case {
  const char* comm_dtype;
  double most;  // mean divergence, a few times what was seen
};

class CommDTypeError : public ::testing::TestWithParam<Case> {};

TEST_P(CommDTypeError, IsSmall) {
  const TinyModel model(model_config());
  for (const char* dtype : {"float32", "q8_0"}) {
    const auto exact = rows(model.path(), dtype, "auto", 1);
    for (const int tp : {2, 3}) {
      const double divergence = mean_divergence(exact, rows(model.path(), dtype, GetParam().comm_dtype, tp));
      std::printf("%s over %s, TP=%d: mean KL %.2e\n", dtype, GetParam().comm_dtype, tp, divergence);
      EXPECT_LT(divergence, GetParam().most) << dtype << " TP=" << tp;
      EXPECT_GT(divergence, 0.0) << "nothing was rounded";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, CommDTypeError, ::testing::Values(Case{"int8", 5e-3}, Case{"fp8", 5e-2}),
                         [](const auto& info) { return std::string(info.param.comm_dtype); });

TEST(CommDType, AutoIsExact) {
  const TinyModel model(model_config());
  EXPECT_EQ(rows(model.path(), "q8_0", "auto", 1), rows(model.path(), "q8_0", "auto", 2));
}

TEST(CommDType, SeveralStreamsGiveTheSameBits) {
  const TinyModel model(model_config());
  EngineConfig engine = test_engine(model.path(), 2);
  engine.load_format = "dummy";
  const auto schedule = make_schedule(requests());
  const auto one = run_cluster(engine, schedule, {}, TransportKind::kTcp);
  engine.comm.tcp_streams = 3;
  EXPECT_EQ(logprob_rows(one.at(1)), logprob_rows(run_cluster(engine, schedule, {}, TransportKind::kTcp).at(1)));
}

}  // namespace
}  // namespace tutti::testing
