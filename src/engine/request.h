// One request's life in the engine. Owned by the Scheduler, touched by the engine thread only.
//
//   tokens      [ prompt ............ | output ..... ] ( pending )
//   computed    [ ...................... )                          num_computed_tokens, steps in flight included
//
// A request owes num_tokens() + num_pending - num_computed_tokens; a step pays part of it. `num_pending` tokens have
// been sampled by steps in flight and are not known here yet.
#pragma once

#include <cstdint>
#include <vector>

#include "base/sha256.h"
#include "engine/engine_types.h"

namespace tutti {

using BlockHash = Sha256Digest;

struct Request {
  EngineRequest spec;                // without the prompt: that is in `tokens`
  std::vector<int32_t> tokens;
  int64_t num_prompt_tokens = 0;
  int64_t num_computed_tokens = 0;   // in the KV cache once the steps in flight have run
  int64_t num_confirmed_tokens = 0;  // in the KV cache now
  int num_pending = 0;
  int64_t last_step = 0;             // the last step that holds rows of it
  bool running = false;
  bool known_to_workers = false;
  // Counts preemptions: an answer that was computed for an earlier placement says nothing about today's blocks.
  int incarnation = 0;
  int64_t num_cached_tokens = 0;     // prompt tokens that the prefix cache gave, at the first start
  int64_t num_counted_tokens = 0;    // prompt tokens that the counters know
  uint64_t order = 0;                // arrival
  RequestId waits_for = 0;           // a running request that computes what this one begins with
  int64_t num_shared_blocks = 0;     // how many blocks that are
  Clock::time_point started{};       // its first step
  size_t form = 0;                   // a hash of its grammar, where it has one

  std::vector<int32_t> block_ids;
  std::vector<BlockHash> block_hashes;   // of the full blocks of `tokens`
  int64_t num_cached_blocks = 0;         // leading blocks entered in the prefix cache
  std::vector<TokenLogprobs> prompt_logprobs;

  int64_t num_tokens() const { return static_cast<int64_t>(tokens.size()); }
  int64_t num_output_tokens() const { return num_tokens() - num_prompt_tokens; }
  int64_t num_owed() const { return num_tokens() + num_pending - num_computed_tokens; }
};

}  // namespace tutti
