#include "runtime/logits_processor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

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

// Every way to cut the vocabulary gives the same, and the ends of a text are where the grammar says.
TEST(LogitsProcessor, AGrammarsMask) {
  std::mt19937 random(1);
  constexpr int64_t kVocab = 300;
  grammar::TokenMask dense;
  dense.bits = {0, ~uint64_t{0}, 0x8000'0000'0000'0001, 0xF0F0, 1ull << 40};  // up to token 319
  std::vector<int32_t> few = {3, 64, 127, 299};
  SamplingParams p;
  p.grammar = GrammarBytes("x");
  p.stop_token_ids = {7};
  p.min_tokens = 5;
  for (const bool may_end : {false, true}) {
    for (const bool is_dense : {false, true}) {
      auto r = request(p, {0});
      grammar::TokenMask mask = is_dense ? dense : grammar::TokenMask{.bits = {}, .tokens = few};
      mask.may_end = may_end;
      r.mask = std::make_shared<const grammar::TokenMask>(mask);
      r.sampling.min_tokens = 0;
      ASSERT_TRUE(changes_logits(r));
      for (const int64_t cut : {0, 1, 63, 64, 65, 100, 299, 300}) {
        std::vector<float> logits(kVocab, 1.0f);
        const std::span<float> all(logits);
        process_logits(all.first(static_cast<size_t>(cut)), {0, cut}, r, std::vector<int32_t>{20});
        process_logits(all.subspan(static_cast<size_t>(cut)), {cut, kVocab - cut}, r, std::vector<int32_t>{20});
        for (int32_t t = 0; t < kVocab; ++t) {
          const bool ends = t == 7 || t == 20;
          ASSERT_EQ(logits[static_cast<size_t>(t)], mask.allows(t) || (ends && may_end) ? 1.0f : kForbidden) << t << " cut at " << cut;
        }
      }
    }
  }
  // Without a way on the text ends, before min_tokens too.
  auto stuck = request(p, {0});
  stuck.mask = std::make_shared<const grammar::TokenMask>();
  EXPECT_EQ(processed(stuck, std::vector<float>(9, 1.0f), {8})[8], 1.0f);
  EXPECT_EQ(processed(stuck, std::vector<float>(9, 1.0f), {8})[0], kForbidden);
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

// Token by token, straight from the definitions.
float reference_logit(int32_t token, float logit, const SamplingParams& p, const std::vector<int32_t>& prompt,
                      const std::vector<int32_t>& output, int32_t eos) {
  const auto has = [](const std::vector<int32_t>& list, int32_t item) { return std::find(list.begin(), list.end(), item) != list.end(); };
  if (!p.allowed_token_ids.empty() && !has(p.allowed_token_ids, token)) logit = kForbidden;
  for (const auto& word : p.bad_words) {
    const size_t before = word.size() - 1;
    const bool follows = before <= output.size() && std::equal(word.begin(), word.end() - 1, output.end() - static_cast<long>(before));
    if (word.back() == token && follows) logit = kForbidden;
  }
  const bool ends = has(p.stop_token_ids, token) || token == eos;
  if (ends && static_cast<int32_t>(output.size()) < p.min_tokens) logit = kForbidden;
  for (const auto& [id, bias] : p.logit_bias) {
    if (id == token) logit += bias;
  }
  if (has(prompt, token) || has(output, token)) {
    const auto penalty = static_cast<float>(p.repetition_penalty);
    logit = logit > 0 ? logit / penalty : logit * penalty;
  }
  const auto count = std::count(output.begin(), output.end(), token);
  if (count > 0) logit -= static_cast<float>(p.frequency_penalty * static_cast<double>(count) + p.presence_penalty);
  return logit;
}

TEST(LogitsProcessor, RandomParametersGiveTheReference) {
  constexpr int32_t kVocab = 40;
  std::mt19937 rng(11);
  const auto draw = [&](int n) { return static_cast<int32_t>(rng() % static_cast<unsigned>(n)); };
  const auto tokens = [&](int most) {
    std::vector<int32_t> list(static_cast<size_t>(draw(most + 1)));
    for (int32_t& t : list) t = draw(kVocab);
    return list;
  };
  for (int round = 0; round < 500; ++round) {
    SamplingParams p;
    if (draw(2)) p.repetition_penalty = 0.5 + 0.1 * draw(20);
    if (draw(2)) p.frequency_penalty = 0.25 * (draw(17) - 8);
    if (draw(2)) p.presence_penalty = 0.25 * (draw(17) - 8);
    if (draw(3) == 0) p.allowed_token_ids = tokens(20);
    if (draw(2)) p.logit_bias = {{draw(kVocab), 0.5f * static_cast<float>(draw(40) - 20)}, {draw(kVocab), 1.0f}};
    if (draw(2)) p.bad_words = {{draw(kVocab)}, {draw(3), draw(3)}, {draw(3), draw(3), draw(kVocab)}};
    if (draw(2)) p.min_tokens = draw(12);
    p.stop_token_ids = tokens(3);
    const std::vector<int32_t> prompt = tokens(15);
    std::vector<int32_t> output = tokens(10);
    if (draw(2)) output.insert(output.end(), {draw(3), draw(3)});
    std::vector<float> logits(kVocab);
    for (float& l : logits) l = 0.125f * static_cast<float>(draw(200) - 100);
    const int32_t eos = draw(kVocab);
    const RequestState state = request(p, prompt, output);
    const std::vector<float> actual = processed(state, logits, {eos});
    for (int32_t token = 0; token < kVocab; ++token) {
      const float expected = reference_logit(token, logits[static_cast<size_t>(token)], p, prompt, output, eos);
      EXPECT_EQ(actual[static_cast<size_t>(token)], expected) << "round " << round << ", token " << token;
    }
    if (!changes_logits(state)) {
      EXPECT_EQ(actual, logits);
    }
  }
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
