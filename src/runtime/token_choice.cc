#include "runtime/token_choice.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "runtime/vector_exp.h"

namespace tutti {
namespace {

constexpr float kNothing = -std::numeric_limits<float>::infinity();
constexpr int64_t kBlock = 512;  // weights summed together, so that a draw skips most of the row

float inverse_temperature(const SamplingParams& sampling) { return static_cast<float>(1.0 / sampling.temperature); }

// The smallest logit that min_p leaves; -inf when it leaves all.
float min_p_limit(float max_logit, const SamplingParams& sampling) {
  if (sampling.min_p <= 0.0) return kNothing;
  return max_logit + static_cast<float>(sampling.temperature * std::log(sampling.min_p));
}

// The index that `draw` falls on; the last one with a weight when rounding leads past the end.
size_t pick(std::span<const float> weights, double target) {
  size_t last = 0;
  double sum = 0.0;
  for (size_t i = 0; i < weights.size(); ++i) {
    if (weights[i] <= 0.0f) continue;
    sum += weights[i];
    last = i;
    if (sum > target) return i;
  }
  return last;
}

// weights[i] = exp((logit - max) / temperature), 0 below the limit. Gives the sum.
double to_weights(std::span<const float> logits, float max_logit, float limit, float inverse, std::vector<float>& weights,
                  std::vector<double>* block_sums) {
  weights.resize(logits.size());
  double total = 0.0;
  const auto size = static_cast<int64_t>(logits.size());
  for (int64_t begin = 0; begin < size; begin += kBlock) {
    const int64_t end = std::min(begin + kBlock, size);
    for (int64_t i = begin; i < end; ++i) {
      const float logit = logits[static_cast<size_t>(i)];
      const float weight = exp_of_negative((logit - max_logit) * inverse);
      weights[static_cast<size_t>(i)] = logit >= limit ? weight : 0.0f;
    }
    double sum = 0.0;
    for (int64_t i = begin; i < end; ++i) sum += weights[static_cast<size_t>(i)];
    if (block_sums != nullptr) block_sums->push_back(sum);
    total += sum;
  }
  return total;
}

// Without top_k and top_p: over the whole row, in the order of the ids.
int32_t draw_from_row(std::span<const float> logits, float max_logit, const SamplingParams& sampling, double draw,
                      std::vector<float>& weights) {
  std::vector<double> block_sums;
  const double total = to_weights(logits, max_logit, min_p_limit(max_logit, sampling), inverse_temperature(sampling), weights, &block_sums);
  double target = draw * total;
  size_t block = 0;
  while (block + 1 < block_sums.size() && target >= block_sums[block]) target -= block_sums[block++];
  while (block > 0 && block_sums[block] <= 0.0) --block;
  const size_t begin = block * kBlock;
  const size_t count = std::min<size_t>(kBlock, logits.size() - begin);
  return static_cast<int32_t>(begin + pick(std::span(weights).subspan(begin, count), target));
}

// The shortest prefix of `best` whose weight reaches top_p of `total`; 0 when all of `best` is not enough.
size_t top_p_prefix(std::span<const float> weights, double top_p, double total) {
  double sum = 0.0;
  for (size_t i = 0; i < weights.size(); ++i) {
    sum += weights[i];
    if (sum >= top_p * total) return i + 1;
  }
  return 0;
}

std::vector<float> candidate_weights(std::span<const Candidate> best, const SamplingParams& sampling) {
  const float max_logit = best.front().logit;
  const float limit = min_p_limit(max_logit, sampling);
  const float inverse = inverse_temperature(sampling);
  std::vector<float> weights;
  weights.reserve(best.size());
  for (const Candidate& c : best) {
    weights.push_back(c.logit >= limit ? exp_of_negative((c.logit - max_logit) * inverse) : 0.0f);
  }
  return weights;
}

int32_t draw_from_prefix(std::span<const Candidate> best, std::span<const float> weights, size_t count, double draw) {
  double sum = 0.0;
  for (size_t i = 0; i < count; ++i) sum += weights[i];
  return best[pick(weights.first(count), draw * sum)].id;
}

// top_p without a top_k: only as many of the best are put in order as the probability asks for.
int32_t draw_top_p(std::span<const float> logits, float max_logit, const SamplingParams& sampling, double draw,
                   std::vector<float>& scratch) {
  const double total = to_weights(logits, max_logit, min_p_limit(max_logit, sampling), inverse_temperature(sampling), scratch, nullptr);
  const auto size = static_cast<int64_t>(logits.size());
  for (int64_t count = std::min<int64_t>(64, size);; count = std::min(count * 8, size)) {
    const auto best = best_candidates(logits, count);
    const auto weights = candidate_weights(best, sampling);
    size_t prefix = top_p_prefix(weights, sampling.top_p, total);
    if (prefix == 0 && count == size) prefix = best.size();
    if (prefix > 0) return draw_from_prefix(best, weights, prefix, draw);
  }
}

}  // namespace

Candidate best_candidate(std::span<const float> logits, int32_t first_id) {
  CHECK(!logits.empty());
  size_t best = 0;
  float value = kNothing;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] > value) {
      value = logits[i];
      best = i;
    }
  }
  return {value, first_id + static_cast<int32_t>(best)};
}

std::vector<Candidate> best_candidates(std::span<const float> logits, int64_t count, int32_t first_id) {
  count = std::min(count, static_cast<int64_t>(logits.size()));
  if (count == 1) return {best_candidate(logits, first_id)};
  std::vector<Candidate> all(logits.size());
  for (size_t i = 0; i < logits.size(); ++i) {
    all[i] = {std::isnan(logits[i]) ? kNothing : logits[i], first_id + static_cast<int32_t>(i)};
  }
  if (count < static_cast<int64_t>(all.size())) std::nth_element(all.begin(), all.begin() + count, all.end(), better);
  all.resize(static_cast<size_t>(count));
  std::sort(all.begin(), all.end(), better);
  return all;
}

int32_t choose_from_candidates(std::span<const Candidate> best, const SamplingParams& sampling, double draw) {
  CHECK(!best.empty());
  if (sampling.greedy() || best.front().logit == kNothing) return best.front().id;
  if (sampling.top_k > 0) best = best.first(std::min(best.size(), static_cast<size_t>(sampling.top_k)));
  const auto weights = candidate_weights(best, sampling);
  size_t count = best.size();
  if (sampling.top_p < 1.0) {
    double total = 0.0;
    for (float w : weights) total += w;
    if (const size_t prefix = top_p_prefix(weights, sampling.top_p, total); prefix > 0) count = prefix;
  }
  return draw_from_prefix(best, weights, count, draw);
}

int32_t choose_token(std::span<const float> logits, const SamplingParams& sampling, double draw, std::vector<float>& scratch) {
  const Candidate top = best_candidate(logits);
  if (sampling.greedy() || top.logit == kNothing) return top.id;
  if (sampling.top_k > 0 && sampling.top_k < static_cast<int64_t>(logits.size())) {
    return choose_from_candidates(best_candidates(logits, sampling.top_k), sampling, draw);
  }
  if (sampling.top_p < 1.0) return draw_top_p(logits, top.logit, sampling, draw, scratch);
  return draw_from_row(logits, top.logit, sampling, draw, scratch);
}

}  // namespace tutti
