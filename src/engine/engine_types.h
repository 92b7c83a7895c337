// What goes into the engine and what comes out, across threads (server/async_engine moves them).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "protocol/step.h"

namespace tutti {

struct EngineRequest {
  RequestId id = 0;
  std::vector<int32_t> prompt_token_ids;
  SamplingParams sampling;
  int32_t priority = 0;                      // smaller first, with --scheduling-policy priority
  std::string cache_salt;                    // separates prefix caches
  Clock::time_point arrival = Clock::now();
  std::optional<Clock::time_point> deadline; // the request fails with finish reason kError after it
};

enum class FinishReason : uint8_t { kNone, kStop, kLength, kAbort, kError };

// What one step added to a request.
struct TokenOutput {
  RequestId id = 0;
  std::vector<int32_t> token_ids;              // new ones, mostly one
  std::vector<TokenLogprobs> logprobs;         // parallel to token_ids, empty unless asked for
  std::vector<TokenLogprobs> prompt_logprobs;  // of the whole prompt, once, before the first token
  FinishReason finish_reason = FinishReason::kNone;
  std::optional<int32_t> stop_token;           // the stop_token_id that ended it
  std::string error;                           // with kError: the rank that is lost, or what of the request does not fit
  int64_t num_cached_tokens = 0;               // prompt tokens that the prefix cache gave
  Clock::time_point started{};                 // when its first step was scheduled; the epoch before that
};

}  // namespace tutti
