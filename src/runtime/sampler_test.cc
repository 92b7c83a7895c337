#include "runtime/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <thread>

#include "base/error.h"
#include "comm/comm_factory.h"

namespace tutti {
namespace {

constexpr int64_t kVocab = 101;

std::vector<float> row_of(size_t row) {
  std::mt19937 rng(static_cast<unsigned>(row) + 1);
  std::normal_distribution<float> normal(0.0f, 2.0f);
  std::vector<float> logits(kVocab);
  for (float& l : logits) l = normal(rng);
  return logits;
}

struct Row {
  SamplingParams sampling;
  bool samples = true;
  int32_t prompt_target = -1;
  RequestId id = 0;  // 0: its own
};

// What a group of `parts.size()` ranks (threads) chooses; checks that all ranks agree.
std::vector<SampledToken> sample(const std::vector<Row>& rows, const std::vector<Range>& parts) {
  InMemoryStore store;
  std::vector<std::vector<SampledToken>> results(parts.size());
  const auto run = [&](int rank) {
    CommOptions options;
    options.rank = rank;
    options.size = static_cast<int>(parts.size());
    options.transport = TransportKind::kInProcess;
    const auto comm = make_communicator(options, store);
    ThreadPool pool(1);
    Arena arena(1 << 22, Device::cpu());
    const Context ctx{Device::cpu(), &pool, &arena};
    const Range own = parts[static_cast<size_t>(rank)];
    const Tensor logits = Tensor::empty({static_cast<int64_t>(rows.size()), own.count}, DType::kF32);
    std::vector<RequestState> states(rows.size());
    std::vector<LogitRow> wanted;
    for (size_t i = 0; i < rows.size(); ++i) {
      const auto whole = row_of(i);
      std::copy_n(whole.begin() + own.begin, own.count, logits.row<float>(static_cast<int64_t>(i)));
      states[i].id = rows[i].id != 0 ? rows[i].id : i + 1;
      states[i].token_ids = {3, 5};
      states[i].num_prompt_tokens = 2;
      states[i].sampling = rows[i].sampling;
      wanted.push_back({&states[i], static_cast<int64_t>(i), rows[i].samples, rows[i].prompt_target});
    }
    Sampler sampler(*comm, parts, {}, 0);
    results[static_cast<size_t>(rank)] = sampler.sample(ctx, logits, wanted);
  };
  std::vector<std::thread> threads;
  for (int r = 0; r < static_cast<int>(parts.size()); ++r) threads.emplace_back(run, r);
  for (std::thread& t : threads) t.join();
  for (const auto& other : results) {
    EXPECT_EQ(other.size(), results[0].size());
    for (size_t i = 0; i < other.size(); ++i) EXPECT_EQ(other[i].token_id, results[0][i].token_id);
  }
  return results[0];
}

SamplingParams params(double temperature, int32_t top_k = 0, double top_p = 1.0) {
  SamplingParams p;
  p.temperature = temperature;
  p.top_k = top_k;
  p.top_p = top_p;
  p.seed = 11;
  return p;
}

const std::vector<Range> kOne = {{0, kVocab}};
const std::vector<Range> kThree = {{0, 48}, {48, 32}, {80, 21}};

TEST(Sampler, TheGroupsSizeChangesNothing) {
  std::vector<Row> rows = {{params(0.0)}, {params(1.0)}, {params(0.7, 20)}, {params(1.2, 0, 0.8)}, {params(0.0)}, {params(1.0, 90)}};
  rows[3].sampling.logit_bias = {{100, 3.0f}, {50, 3.0f}};
  rows[4].sampling.logprobs = 3;
  const auto alone = sample(rows, kOne);
  EXPECT_EQ(alone, sample(rows, kThree));
  ASSERT_EQ(alone.size(), rows.size());
  EXPECT_EQ(alone[0].token_id, best_candidate(row_of(0)).id);
}

TEST(Sampler, NeighboursChangeNothing) {
  const std::vector<Row> rows = {{params(1.0)}, {params(0.9, 0, 0.9)}, {params(1.0)}};
  const auto crowd = sample(rows, kOne);
  EXPECT_EQ(sample({rows[0]}, kOne)[0].token_id, crowd[0].token_id);
}

TEST(Sampler, LogprobsAreThoseOfTheModel) {
  Row row{params(0.0)};
  row.sampling.logprobs = 2;
  row.sampling.logit_bias = {{7, 1000.0f}};  // forces token 7, but does not change its probability
  for (const auto& parts : {kOne, kThree}) {
    const auto result = sample({row}, parts);
    ASSERT_EQ(result[0].token_id, 7);
    const auto logits = row_of(0);
    double sum = 0.0;
    int32_t rank = 1;
    for (float l : logits) {
      sum += std::exp(static_cast<double>(l));
      rank += l > logits[7] ? 1 : 0;
    }
    const TokenLogprobs& found = result[0].logprobs;
    ASSERT_EQ(found.size(), 3u);
    EXPECT_EQ(found[0].token_id, 7);
    EXPECT_EQ(found[0].rank, rank);
    EXPECT_NEAR(found[0].logprob, logits[7] - std::log(sum), 1e-5);
    EXPECT_EQ(found[1].token_id, best_candidate(logits).id);
    EXPECT_EQ(found[1].rank, 1);
    EXPECT_EQ(found[2].rank, 2);
  }
}

TEST(Sampler, PromptRowsOfOneRequestComeTogether) {
  SamplingParams p = params(0.0);
  p.prompt_logprobs = 0;
  const std::vector<Row> rows = {{p, false, 4, 9}, {p, false, 8, 9}, {p, true, -1, 9}, {p, false, 2, 10}};
  const auto result = sample(rows, kThree);
  ASSERT_EQ(result.size(), 2u);
  ASSERT_EQ(result[0].prompt_logprobs.size(), 2u);
  EXPECT_EQ(result[0].prompt_logprobs[1][0].token_id, 8);
  EXPECT_EQ(result[0].token_id, best_candidate(row_of(2)).id);
  EXPECT_TRUE(result[0].has_token);
  EXPECT_FALSE(result[1].has_token);
}

TEST(Sampler, LogitsThatAreNoNumbersEndTheStep) {
  ThreadPool pool(1);
  Arena arena(1 << 20, Device::cpu());
  const Context ctx{Device::cpu(), &pool, &arena};
  const auto comm = make_self_communicator();
  Sampler sampler(*comm, {{0, 4}}, {}, 0);
  const Tensor logits = Tensor::empty({1, 4}, DType::kF32);
  for (const SamplingParams& p : {params(0.0), params(1.0)}) {
    RequestState request;
    request.id = 5;
    request.sampling = p;
    std::fill_n(logits.data_as<float>(), 4, std::numeric_limits<float>::quiet_NaN());
    const LogitRow row{&request, 0, true, -1};
    EXPECT_THAT([&] { sampler.sample(ctx, logits, {&row, 1}); },
                testing::ThrowsMessage<DeviceError>(testing::HasSubstr("logits of request 5")));
  }
}

}  // namespace
}  // namespace tutti
