// Runs steps on one rank: takes a step's rows through this rank's layers, receives from the previous pipeline stage and
// sends to the next, and on the last stage chooses tokens. Steps may come before the engine has seen the tokens of the
// one before. On a GPU a step may also start before the one before it has ended: where all of a step's tokens
// can be chosen from their logits as they are, the GPU chooses them and the next step reads them there. Worker thread only.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "comm/communicator.h"
#include "models/decoder.h"
#include "ops/context.h"
#include "protocol/step.h"
#include "runtime/device_step.h"
#include "runtime/graph_runner.h"
#include "runtime/input_batch.h"
#include "runtime/kv_cache.h"
#include "runtime/sampler.h"
#include "runtime/token_relay.h"

namespace tutti {

// Rows of logits in memory at once: a long prompt whose log-probabilities are wanted has more.
constexpr int64_t kLogitRowsAtOnce = 256;

// What a runner works with; all of it outlives the runner.
struct RunnerParts {
  const Context& ctx;
  const DecoderModel& model;
  const KVCache& cache;
  Communicator& tp;  // of values on the CPU: candidates, tokens
  Communicator& pp;
  Communicator& tp_tensors;  // of activations, where they lie
  Communicator& pp_tensors;
};

class ModelRunner {
 public:
  // `vocab`: the rows of the vocabulary of each tensor-parallel rank.
  ModelRunner(const RunnerParts& parts, const SchedulerConfig& scheduler, std::vector<Range> vocab,
              std::vector<int32_t> eos_token_ids, uint64_t seed, VocabularySource vocabulary = {});
  ~ModelRunner();

  // Begins a step; on the CPU it is complete on return. Throws CommError and DeviceError.
  void start(const SchedulerOutput& step);
  size_t num_started() const { return started_.size(); }
  // Steps that may be started and not finished.
  static constexpr size_t kMaxStarted = DeviceStep::kMaxSteps;
  // The oldest started step: whether finish() would return at once, and the tokens chosen in it, which are empty on all
  // but the last stage.
  bool ready() const;
  std::vector<SampledToken> finish();

  // GPUs, before the first step: a step of rows that are nobody's, so that kernels are chosen and memory is shown to
  // suffice; then its graph.
  void rehearse(int64_t rows, bool decode);
  void capture(int64_t rows);
  // GPUs: from here on, how long they had nothing to do before each step.
  void measure_idle(bool on) { device_->measure_idle(on); }
  const std::vector<float>& idle_us() const { return device_->idle_us(); }

 private:
  // Of a token that is chosen on the GPU.
  struct Pending {
    RequestId id;
    uint64_t incarnation;
    int64_t position;
  };
  struct Started {
    int64_t step = 0;
    std::vector<SampledToken> sampled;
    std::vector<Pending> pending;  // as many as `sampled`, or none
    size_t ticket = 0;             // DeviceStep's
  };

  void run_on_cpu(const SchedulerOutput& step, int64_t needed);
  void run_on_gpu(const SchedulerOutput& step, int64_t needed);
  // From the ids to the stream after this rank's layers.
  void forward(const ForwardStep& step, const ops::TokenIds& tokens, Residual& r, int64_t needed);
  // What draws the tokens of a step's logit rows.
  void fill_draws(StepInputs& host, bool on_gpu) const;
  StepInputs nobodys_inputs(int64_t rows);
  // The token of each logit row, on the GPU: every rank of the tensor-parallel group knows it.
  Tensor choose_tokens(const ForwardStep& step, const StepInputs& inputs, Residual& r);
  void best_of_ranks(const Tensor& logits, const Tensor& values, const Tensor& tokens);
  Tensor run_whole(const StepInputs& inputs);
  std::vector<SampledToken> sample(const ForwardStep& step, const StepInputs& inputs, Residual& r);
  std::vector<SampledToken> sample_rows(const Tensor& logits, std::span<const LogitRow> rows);
  bool gpu_can_choose(std::span<const LogitRow> rows) const;
  void note_pending(std::span<const LogitRow> rows);
  std::vector<SampledToken> take_chosen(std::span<const LogitRow> rows);
  void watch_tensors();
  void note_sampled(const SchedulerOutput& step, const std::vector<SampledToken>& sampled);
  std::vector<RequestState*> sampling_requests(const SchedulerOutput& step);

  const RunnerParts parts_;
  InputBatch batch_;
  TokenRelay relay_;
  Sampler sampler_;
  std::deque<Started> started_;

  // GPUs only.
  std::unique_ptr<DeviceStep> device_;
  GraphRunner graphs_;
  std::map<int64_t, Tensor> graph_logits_;  // of each graph
  Tensor host_logits_;                      // pinned, made when first needed
  std::unique_ptr<Arena> host_arena_;
  Context host_ctx_;
};

}  // namespace tutti
