#include "runtime/logprobs.h"

#include <cmath>

#include "base/check.h"
#include "runtime/token_choice.h"

namespace tutti {

TokenLogprobs compute_logprobs(std::span<const float> logits, int32_t chosen, int32_t count) {
  CHECK(chosen >= 0 && chosen < static_cast<int64_t>(logits.size()));
  const float max_logit = best_candidate(logits).logit;
  double sum = 0.0;
  for (float logit : logits) sum += std::exp(static_cast<double>(logit - max_logit));
  const double log_sum = static_cast<double>(max_logit) + std::log(sum);
  const auto logprob = [&](float logit) { return static_cast<float>(static_cast<double>(logit) - log_sum); };

  const float own = logits[static_cast<size_t>(chosen)];
  int32_t rank = 1;
  for (float logit : logits) rank += logit > own ? 1 : 0;
  TokenLogprobs result = {{chosen, logprob(own), rank}};
  const int64_t best_count = count == SamplingParams::kAllLogprobs ? static_cast<int64_t>(logits.size()) : count;
  if (best_count <= 0) return result;
  int32_t place = 0;
  for (const Candidate& c : best_candidates(logits, best_count)) result.push_back({c.id, logprob(c.logit), ++place});
  return result;
}

}  // namespace tutti
