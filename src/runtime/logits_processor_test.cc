#include "runtime/logits_processor.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace tutti {
namespace {

constexpr float kForbidden = -std::numeric_limits<float>::infinity();

RequestState request(SamplingParams sampling, std::vector<int32_t> prompt, std::vector<int32_t> output = {}) {
  InputBatch batch(16);
  SchedulerOutput step;
  step.step = 1;
  std::vector<int32_t> tokens = prompt;
  tokens.insert(tokens.end(), output.begin(), output.end());
  step.new_requests.push_back({1, tokens, static_cast<int32_t>(prompt.size()), std::move(sampling)});
  batch.apply(step);
  return std::move(*batch.find(1));
}

std::vector<float> processed(const RequestState& r, std::vector<float> logits, std::vector<int32_t> eos = {}) {
  process_logits(logits, {0, static_cast<int64_t>(logits.size())}, r, eos);
  return logits;
}

TEST(LogitsProcessor, PenaltiesAsDefined) {
  SamplingParams p;
  p.repetition_penalty = 2.0;
  p.frequency_penalty = 0.5;
  p.presence_penalty = 0.25;
  // Token 0 in the prompt only, 1 twice in the output, 2 in both, 3 nowhere.
  const auto r = request(p, {0, 2}, {1, 1, 2});
  EXPECT_EQ(processed(r, {4.0f, -4.0f, 4.0f, 4.0f}), (std::vector<float>{2.0f, -8.0f - 1.25f, 2.0f - 0.75f, 4.0f}));
}

TEST(LogitsProcessor, CountsFollowNewTokens) {
  SamplingParams p;
  p.frequency_penalty = 1.0;
  auto r = request(p, {0});
  r.append(1);
  r.append(1);
  EXPECT_EQ(processed(r, {0.0f, 0.0f}), (std::vector<float>{0.0f, -2.0f}));
}

TEST(LogitsProcessor, AllowedBiasAndMinimumLength) {
  SamplingParams p;
  p.allowed_token_ids = {1, 3};
  p.logit_bias = {{1, 2.0f}, {0, 100.0f}};
  EXPECT_EQ(processed(request(p, {0}), {1, 1, 1, 1}), (std::vector<float>{kForbidden, 3.0f, kForbidden, 1.0f}));
  SamplingParams length;
  length.min_tokens = 2;
  length.stop_token_ids = {2};
  EXPECT_EQ(processed(request(length, {0}, {5}), {1, 1, 1, 1}, {3}), (std::vector<float>{1, 1, kForbidden, kForbidden}));
  EXPECT_FALSE(changes_logits(request(length, {0}, {5, 6})));
}

TEST(LogitsProcessor, BadWordsAreNeverCompleted) {
  SamplingParams p;
  p.bad_words = {{0}, {4, 5, 1}, {9, 2}, {}};
  EXPECT_EQ(processed(request(p, {7}, {4, 5}), {1, 1, 1, 1}), (std::vector<float>{kForbidden, kForbidden, 1.0f, 1.0f}));
  // The start of a word in the prompt does not count.
  EXPECT_EQ(processed(request(p, {4}, {5}), {1, 1, 1, 1}), (std::vector<float>{kForbidden, 1.0f, 1.0f, 1.0f}));
}

TEST(LogitsProcessor, PartsOfTheVocabularyGiveTheWhole) {
  SamplingParams p;
  p.repetition_penalty = 1.3;
  p.presence_penalty = 0.1;
  p.logit_bias = {{2, 1.0f}, {7, -1.0f}};
  p.bad_words = {{6}};
  p.allowed_token_ids = {0, 1, 2, 5, 6, 7};
  const auto r = request(p, {1, 5}, {2, 7});
  const std::vector<float> logits = {1, -1, 2, -2, 3, -3, 4, -4};
  const auto whole = processed(r, logits);
  std::vector<float> parts = logits;
  process_logits(std::span(parts).first(3), {0, 3}, r, {});
  process_logits(std::span(parts).subspan(3), {3, 5}, r, {});
  EXPECT_EQ(whole, parts);
}

}  // namespace
}  // namespace tutti
