#include "runtime/token_choice.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "runtime/random.h"
#include "runtime/vector_exp.h"

namespace tutti {
namespace {

constexpr float kNothing = -std::numeric_limits<float>::infinity();

std::vector<float> random_logits(int count, unsigned seed, float spread = 2.0f) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal(0.0f, spread);
  std::vector<float> logits(static_cast<size_t>(count));
  for (float& l : logits) l = normal(rng);
  return logits;
}

// The plain way: everything sorted, everything in double.
std::vector<double> reference_probabilities(const std::vector<float>& logits, const SamplingParams& p) {
  std::vector<size_t> order(logits.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return logits[a] > logits[b]; });
  std::vector<double> weight(logits.size());
  for (size_t i : order) weight[i] = std::exp((static_cast<double>(logits[i]) - logits[order[0]]) / p.temperature);
  for (double& w : weight) {
    if (w < p.min_p * (1 - 1e-6)) w = 0.0;
  }
  if (p.top_k > 0) {
    for (size_t i = static_cast<size_t>(p.top_k); i < order.size(); ++i) weight[order[i]] = 0.0;
  }
  double total = std::accumulate(weight.begin(), weight.end(), 0.0);
  double sum = 0.0;
  for (size_t i : order) {
    if (sum >= p.top_p * total) weight[i] = 0.0;
    sum += weight[i];
  }
  total = std::accumulate(weight.begin(), weight.end(), 0.0);
  for (double& w : weight) w /= total;
  return weight;
}

// Pearson's statistic of 100,000 draws against the reference; tokens with few expected draws are put together.
double chi_square_excess(const std::vector<float>& logits, const SamplingParams& p) {
  constexpr int kDraws = 100000;
  const auto expected = reference_probabilities(logits, p);
  std::vector<double> count(logits.size(), 0.0);
  std::vector<float> scratch;
  for (int i = 0; i < kDraws; ++i) {
    const int32_t token = choose_token(logits, p, uniform(42, static_cast<uint64_t>(i)), scratch);
    EXPECT_GT(expected[static_cast<size_t>(token)], 0.0) << "token " << token << " should be out of reach";
    ++count[static_cast<size_t>(token)];
  }
  double statistic = 0.0, rest_expected = 0.0, rest_count = 0.0;
  int cells = 0;
  for (size_t t = 0; t < logits.size(); ++t) {
    const double e = expected[t] * kDraws;
    if (e < 20.0) {
      rest_expected += e;
      rest_count += count[t];
      continue;
    }
    statistic += (count[t] - e) * (count[t] - e) / e;
    ++cells;
  }
  if (rest_expected >= 20.0) {
    statistic += (rest_count - rest_expected) * (rest_count - rest_expected) / rest_expected;
    ++cells;
  }
  const double freedom = std::max(1, cells - 1);
  return (statistic - freedom) / std::sqrt(2.0 * freedom);  // standard deviations above the mean
}

SamplingParams params(double temperature, int32_t top_k = 0, double top_p = 1.0, double min_p = 0.0) {
  SamplingParams p;
  p.temperature = temperature;
  p.top_k = top_k;
  p.top_p = top_p;
  p.min_p = min_p;
  return p;
}

TEST(TokenChoice, DrawsFollowTheDistribution) {
  const auto logits = random_logits(100, 1);
  for (const SamplingParams& p : {params(1.0), params(0.5), params(0.8, 30), params(1.0, 0, 0.9), params(1.7, 0, 0.999),
                                  params(1.0, 20, 0.9), params(1.0, 0, 1.0, 0.05), params(0.9, 50, 0.95, 0.02)}) {
    SCOPED_TRACE(testing::Message() << "temperature " << p.temperature << ", top_k " << p.top_k << ", top_p " << p.top_p
                                    << ", min_p " << p.min_p);
    EXPECT_LT(chi_square_excess(logits, p), 4.0);
  }
}

TEST(TokenChoice, GreedyTakesTheFirstOfEquals) {
  EXPECT_EQ(best_candidate(std::vector<float>{1, 3, 2, 3}).id, 1);
  EXPECT_EQ(best_candidate(std::vector<float>{1, 3, 2, 3}, 10).id, 11);
  std::vector<float> scratch;
  EXPECT_EQ(choose_token(std::vector<float>{1, 3, 2, 3}, params(0.0), 0.99, scratch), 1);
}

TEST(TokenChoice, BestCandidatesAreInOrder) {
  const auto logits = random_logits(1000, 2);
  auto all = best_candidates(logits, 1000);
  EXPECT_TRUE(std::is_sorted(all.begin(), all.end(), better));
  const auto best = best_candidates(logits, 17);
  ASSERT_EQ(best.size(), 17u);
  for (size_t i = 0; i < best.size(); ++i) EXPECT_EQ(best[i].id, all[i].id);
  EXPECT_EQ(best_candidates(logits, 5000).size(), 1000u);
}

// What a tensor-parallel group exchanges gives the same token as the whole row.
TEST(TokenChoice, CandidatesGiveTheTokenOfTheWholeRow) {
  const auto logits = random_logits(2000, 3);
  std::vector<float> scratch;
  for (const SamplingParams& p : {params(1.0, 20), params(0.7, 64, 0.8), params(1.5, 5, 0.99, 0.1)}) {
    ASSERT_TRUE(candidates_suffice(p));
    std::vector<Candidate> merged;
    for (int part = 0; part < 3; ++part) {
      const int begin = part * 700, count = std::min(700, 2000 - begin);
      const auto best = best_candidates(std::span(logits).subspan(static_cast<size_t>(begin), static_cast<size_t>(count)), p.top_k, begin);
      merged.insert(merged.end(), best.begin(), best.end());
    }
    std::sort(merged.begin(), merged.end(), better);
    for (uint64_t i = 0; i < 200; ++i) {
      const double draw = uniform(7, i);
      EXPECT_EQ(choose_from_candidates(merged, p, draw), choose_token(logits, p, draw, scratch));
    }
  }
}

TEST(TokenChoice, EdgesOfTheDraw) {
  std::vector<float> scratch;
  const std::vector<float> logits = {kNothing, 0.0f, kNothing, 0.0f, kNothing};
  for (const SamplingParams& p : {params(1.0), params(1.0, 3), params(1.0, 0, 0.999999)}) {
    EXPECT_EQ(choose_token(logits, p, 0.0, scratch), 1);
    EXPECT_EQ(choose_token(logits, p, std::nextafter(1.0, 0.0), scratch), 3);
  }
  EXPECT_EQ(choose_token(std::vector<float>(700, kNothing), params(1.0), 0.5, scratch), 0);
  // A very low temperature is greedy.
  for (double temperature : {1e-6, 1e-300}) {
    for (const SamplingParams& p : {params(temperature), params(temperature, 0, 0.9), params(temperature, 7)}) {
      EXPECT_EQ(choose_token(random_logits(100, 5), p, 0.7, scratch), best_candidate(random_logits(100, 5)).id);
    }
  }
}

TEST(TokenChoice, DrawsReachEveryBlockOfALongRow) {
  const std::vector<float> logits(5000, 1.0f);
  std::vector<float> scratch;
  for (int i = 0; i < 5000; i += 37) {
    EXPECT_EQ(choose_token(logits, params(1.0), (i + 0.5) / 5000.0, scratch), i);
  }
}

TEST(VectorExp, IsAccurate) {
  for (float x = 0.0f; x > -86.0f; x -= 0.0137f) {
    const double exact = std::exp(static_cast<double>(x));
    EXPECT_NEAR(exp_of_negative(x) / exact, 1.0, 2e-7) << x;
  }
  EXPECT_EQ(exp_of_negative(0.0f), 1.0f);
  EXPECT_EQ(exp_of_negative(-100.0f), 0.0f);
  EXPECT_EQ(exp_of_negative(kNothing), 0.0f);
}

TEST(Random, PhiloxGivesThePublishedNumbers) {
  // Known answers of the reference implementation (philox4x32-10) for an all-zero and an all-one key and counter.
  EXPECT_EQ(philox(0, 0), (std::array<uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
}

TEST(Random, UniformIsUniform) {
  double sum = 0.0;
  std::array<int, 16> cells{};
  for (uint64_t i = 0; i < 160000; ++i) {
    const double u = uniform(99, i);
    ASSERT_GE(u, 0.0);
    ASSERT_LT(u, 1.0);
    sum += u;
    ++cells[static_cast<size_t>(u * 16)];
  }
  EXPECT_NEAR(sum / 160000, 0.5, 0.003);
  double statistic = 0.0;
  for (int c : cells) statistic += (c - 10000.0) * (c - 10000.0) / 10000.0;
  EXPECT_LT(statistic, 15 + 4 * std::sqrt(30.0));
}

}  // namespace
}  // namespace tutti
