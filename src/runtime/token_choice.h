// Choosing a token from one row of logits. The order of the steps is the one users know: minimum probability, then
// top_k, then top_p, then a draw; temperature divides the logits first. Pure functions, any thread; nothing depends on
// other rows.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "protocol/sampling_params.h"

namespace tutti {

struct Candidate {
  float logit = 0.0f;
  int32_t id = 0;
};

// Higher logits first; equal ones by id, so that every way of cutting the vocabulary gives the same order.
inline bool better(const Candidate& a, const Candidate& b) { return a.logit > b.logit || (a.logit == b.logit && a.id < b.id); }

// The best of a row whose first element is token `first_id`. NaN counts as less than everything.
Candidate best_candidate(std::span<const float> logits, int32_t first_id = 0);
// The `count` best, in order.
std::vector<Candidate> best_candidates(std::span<const float> logits, int64_t count, int32_t first_id = 0);

// Whether the best `kMaxCandidates` of each part of the vocabulary are enough to choose a token.
constexpr int32_t kMaxCandidates = 64;
inline bool candidates_suffice(const SamplingParams& sampling) {
  return sampling.greedy() || (sampling.top_k > 0 && sampling.top_k <= kMaxCandidates);
}
// How many of the best are looked at: 1 when greedy, else top_k.
inline int32_t num_candidates(const SamplingParams& sampling) { return sampling.greedy() ? 1 : sampling.top_k; }

// Draws from the best candidates, which are in order and at least top_k. `draw` is uniform in [0, 1).
int32_t choose_from_candidates(std::span<const Candidate> best, const SamplingParams& sampling, double draw);
// Draws from a whole row. `scratch` is reused between calls.
int32_t choose_token(std::span<const float> logits, const SamplingParams& sampling, double draw, std::vector<float>& scratch);

}  // namespace tutti
