#include "runtime/token_choice.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "runtime/vector_exp.h"

namespace tutti {
namespace {

constexpr float kNothing = -std::numeric_limits<float>::infinity();
constexpr int64_t kFewCandidates = 1024;
constexpr int64_t kBlock = 512;  // weights summed together, so that a draw skips most of the row

// Finite, so that the best logit's weight is 1 and no NaN.
float inverse_temperature(const SamplingParams& sampling) { return static_cast<float>(1.0 / std::max(sampling.temperature, 1e-10)); }

// NaN counts as less than everything.
float largest(std::span<const float> values) {
  constexpr size_t kLanes = 16;
  float lanes[kLanes];
  std::fill(lanes, lanes + kLanes, kNothing);
  size_t i = 0;
  for (; i + kLanes <= values.size(); i += kLanes) {
    for (size_t j = 0; j < kLanes; ++j) lanes[j] = values[i + j] > lanes[j] ? values[i + j] : lanes[j];
  }
  for (; i < values.size(); ++i) lanes[0] = values[i] > lanes[0] ? values[i] : lanes[0];
  float most = lanes[0];
  for (float lane : lanes) most = lane > most ? lane : most;
  return most;
}

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

// Eight chains at once; the order depends on the length alone.
double sum_of(std::span<const float> values) {
  constexpr size_t kChains = 8;
  double sums[kChains] = {};
  size_t i = 0;
  for (; i + kChains <= values.size(); i += kChains) {
    for (size_t j = 0; j < kChains; ++j) sums[j] += values[i + j];
  }
  for (; i < values.size(); ++i) sums[0] += values[i];
  return ((sums[0] + sums[4]) + (sums[1] + sums[5])) + ((sums[2] + sums[6]) + (sums[3] + sums[7]));
}

// weights[i] = exp((logit - max) / temperature), 0 below the limit. Gives the sum.
double to_weights(std::span<const float> logits, float max_logit, float limit, float inverse, std::vector<float>& weights,
                  std::vector<double>* block_sums) {
  weights.resize(logits.size());
  double total = 0.0;
  const auto size = static_cast<int64_t>(logits.size());
  for (int64_t begin = 0; begin < size; begin += kBlock) {
    const int64_t end = std::min(begin + kBlock, size);
    const float* __restrict in = logits.data() + begin;
    float* __restrict out = weights.data() + begin;
    for (int64_t i = 0; i < end - begin; ++i) {
      const float weight = exp_of_negative((in[i] - max_logit) * inverse);
      out[i] = std::bit_cast<float>(std::bit_cast<uint32_t>(weight) & (0u - static_cast<uint32_t>(in[i] >= limit)));
    }
    const double sum = sum_of(std::span(weights).subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin)));
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

// Weights are put into bins by their leading bits, the heaviest last.
constexpr int kBinShift = 18;
constexpr size_t kBins = (std::bit_cast<uint32_t>(1.0f) >> kBinShift) + 1;
size_t bin_of(float weight) { return std::bit_cast<uint32_t>(weight) >> kBinShift; }

// The last token, in order of weight, of the shortest list whose weight reaches `target`.
Candidate last_of_shortest(std::span<const float> weights, double target) {
  std::vector<double> bins(kBins, 0.0);
  for (float w : weights) bins[bin_of(w)] += w;
  size_t bin = kBins - 1;
  double above = 0.0;
  while (bin > 0 && above + bins[bin] < target) above += bins[bin--];
  std::vector<Candidate> inside;
  for (size_t i = 0; i < weights.size(); ++i) {
    if (weights[i] > 0.0f && bin_of(weights[i]) == bin) inside.push_back({weights[i], static_cast<int32_t>(i)});
  }
  std::sort(inside.begin(), inside.end(), better);
  for (const Candidate& c : inside) {
    above += c.logit;
    if (above >= target) return c;
  }
  return {0.0f, std::numeric_limits<int32_t>::max()};  // rounding: all of them
}

// top_p without a top_k: what lies outside the shortest list loses its weight, then a draw in the order of the ids.
int32_t draw_top_p(std::span<const float> logits, float max_logit, const SamplingParams& sampling, double draw,
                   std::vector<float>& weights) {
  const double total = to_weights(logits, max_logit, min_p_limit(max_logit, sampling), inverse_temperature(sampling), weights, nullptr);
  const Candidate last = last_of_shortest(weights, sampling.top_p * total);
  for (size_t i = 0; i < weights.size(); ++i) {
    if (better(last, {weights[i], static_cast<int32_t>(i)})) weights[i] = 0.0f;
  }
  return static_cast<int32_t>(pick(weights, draw * sum_of(weights)));
}

// Keeps the best in a heap whose top is the worst of them; whole blocks are passed over by their largest element.
std::vector<Candidate> few_best(std::span<const float> logits, size_t count, int32_t first_id) {
  std::vector<Candidate> heap;
  heap.reserve(count + 1);
  for (size_t begin = 0; begin < logits.size(); begin += kBlock) {
    const auto block = logits.subspan(begin, std::min<size_t>(kBlock, logits.size() - begin));
    if (heap.size() == count && largest(block) <= heap.front().logit) continue;
    for (size_t i = 0; i < block.size(); ++i) {
      const Candidate next = {std::isnan(block[i]) ? kNothing : block[i], first_id + static_cast<int32_t>(begin + i)};
      if (heap.size() == count && !better(next, heap.front())) continue;
      heap.push_back(next);
      std::push_heap(heap.begin(), heap.end(), better);
      if (heap.size() > count) {
        std::pop_heap(heap.begin(), heap.end(), better);
        heap.pop_back();
      }
    }
  }
  std::sort(heap.begin(), heap.end(), better);
  return heap;
}

}  // namespace

Candidate best_candidate(std::span<const float> logits, int32_t first_id) {
  CHECK(!logits.empty());
  // Blocks first, in a form that becomes vector code; then the place inside the best one.
  size_t block = 0;
  float value = kNothing;
  for (size_t begin = 0; begin < logits.size(); begin += kBlock) {
    const float most = largest(logits.subspan(begin, std::min<size_t>(kBlock, logits.size() - begin)));
    if (most > value) {
      value = most;
      block = begin;
    }
  }
  size_t best = block;
  while (best < logits.size() && logits[best] != value) ++best;
  return {value, first_id + static_cast<int32_t>(best < logits.size() ? best : 0)};
}

std::vector<Candidate> best_candidates(std::span<const float> logits, int64_t count, int32_t first_id) {
  count = std::min(count, static_cast<int64_t>(logits.size()));
  if (count == 1) return {best_candidate(logits, first_id)};
  if (count <= kFewCandidates) return few_best(logits, static_cast<size_t>(count), first_id);
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
