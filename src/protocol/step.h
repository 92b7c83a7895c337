// The seam between the half that decides and the half that computes: one plain struct down, one up. Workers keep the
// state of every request they have seen (its tokens, its blocks), so a step carries differences only.
//
// Look-ahead: a step may be sent before the previous one has answered. A decode row then computes on the token that the
// previous step sampled for its request; workers append sampled tokens themselves, so the row only says how many
// tokens of the request are computed so far. A worker that finds a gap in the step numbers refuses the step.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "protocol/sampling_params.h"

namespace tutti {

using RequestId = uint64_t;

// A request that workers see for the first time, or again after a preemption or a recovery.
struct NewRequestData {
  RequestId id = 0;
  std::vector<int32_t> token_ids;  // the prompt, and after a preemption what was generated before it
  int32_t num_prompt_tokens = 0;
  SamplingParams sampling;
  bool operator==(const NewRequestData&) const = default;
};

// One request's share of a step.
struct ScheduledRequest {
  RequestId id = 0;
  int32_t num_tokens = 0;               // rows in this step
  int64_t num_computed_tokens = 0;      // tokens of the request in the KV cache before this step
  std::vector<int32_t> new_block_ids;   // blocks added since the request's last step (all of them in its first)
  bool samples = false;                 // the last row's logits choose the next token
  bool operator==(const ScheduledRequest&) const = default;
};

struct SchedulerOutput {
  int64_t step = 0;                         // counts from 1 within an epoch
  std::vector<NewRequestData> new_requests;
  std::vector<ScheduledRequest> scheduled;  // the order of the rows
  std::vector<RequestId> dropped;           // finished, aborted or preempted: forget them before this step

  int64_t num_tokens() const {
    int64_t sum = 0;
    for (const ScheduledRequest& s : scheduled) sum += s.num_tokens;
    return sum;
  }
  bool operator==(const SchedulerOutput&) const = default;
};

struct TokenLogprob {
  int32_t token_id = 0;
  float logprob = 0.0f;
  int32_t rank = 0;  // 1 = the most likely
  bool operator==(const TokenLogprob&) const = default;
};

// The chosen token first, then the best ones in order.
using TokenLogprobs = std::vector<TokenLogprob>;

struct SampledToken {
  RequestId id = 0;
  int32_t token_id = 0;
  TokenLogprobs logprobs;                      // empty unless asked for
  std::vector<TokenLogprobs> prompt_logprobs;  // of the prompt rows in this step, if asked for
  bool has_token = true;                       // false: only prompt_logprobs (a prompt chunk that does not sample)
  bool operator==(const SampledToken&) const = default;
};

// Where a rank's time went in one step, in microseconds.
struct StepTiming {
  int32_t rank = 0;
  float total_us = 0;      // from the arrival of the step to its end
  float compute_us = 0;
  float comm_us = 0;       // inside collectives of all groups, waiting for others included
  int64_t comm_bytes = 0;
  float pp_comm_us = 0;    // of that, between pipeline stages
  int64_t pp_comm_bytes = 0;
  bool operator==(const StepTiming&) const = default;
};

struct ModelRunnerOutput {
  int64_t step = 0;
  std::vector<SampledToken> sampled; // in the order of the step's rows
  std::vector<StepTiming> timings;   // one a rank
  bool operator==(const ModelRunnerOutput&) const = default;
};

}  // namespace tutti
