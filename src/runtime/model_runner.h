// Runs one step on one rank: takes its rows through this rank's layers, receives from the previous pipeline stage and
// sends to the next, and on the last stage chooses tokens. Steps may come before the engine has seen the tokens of the
// one before. Worker thread only.
#pragma once

#include <memory>
#include <vector>

#include "comm/communicator.h"
#include "models/decoder.h"
#include "ops/context.h"
#include "protocol/step.h"
#include "runtime/input_batch.h"
#include "runtime/kv_cache.h"
#include "runtime/sampler.h"
#include "runtime/token_relay.h"

namespace tutti {

// Rows of logits in memory at once: a long prompt whose log-probabilities are wanted has more.
constexpr int64_t kLogitRowsAtOnce = 256;

class ModelRunner {
 public:
  // `vocab`: the rows of the vocabulary of each tensor-parallel rank. All are kept by reference and outlive the runner.
  ModelRunner(const Context& ctx, const DecoderModel& model, const KVCache& cache, Communicator& tp, Communicator& pp,
              std::vector<Range> vocab, std::vector<int32_t> eos_token_ids, uint64_t seed);

  // The tokens chosen in this step; empty on all but the last stage. Throws CommError and DeviceError.
  std::vector<SampledToken> run(const SchedulerOutput& step);

 private:
  std::vector<SampledToken> run_rows(const SchedulerOutput& step, int64_t needed);
  std::vector<SampledToken> sample(const ForwardStep& forward, const StepInputs& inputs, Residual& r);
  void receive_hidden(Residual& r);
  void send_hidden(Residual& r);
  void note_sampled(const SchedulerOutput& step, const std::vector<SampledToken>& sampled);

  const Context& ctx_;
  const DecoderModel& model_;
  const KVCache& cache_;
  Communicator& tp_;
  Communicator& pp_;
  InputBatch batch_;
  TokenRelay relay_;
  Sampler sampler_;
};

}  // namespace tutti
