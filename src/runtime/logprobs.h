// Log-probabilities of one row of raw logits. Pure function, any thread.
#pragma once

#include <cstdint>
#include <span>

#include "protocol/step.h"

namespace tutti {

// The chosen token first, then the `count` best in order (SamplingParams::kAllLogprobs: all).
TokenLogprobs compute_logprobs(std::span<const float> logits, int32_t chosen, int32_t count);

}  // namespace tutti
