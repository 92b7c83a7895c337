// The requests that this rank knows, kept up to date by the differences in each step, and the tensors that a step's
// rows become. Worker thread only.
#pragma once

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "grammar/automaton.h"
#include "ops/attention.h"
#include "ops/context.h"
#include "protocol/step.h"

namespace tutti {

// Token counts for penalties; only kept for requests whose sampling looks back.
struct TokenHistory {
  std::unordered_map<int32_t, int32_t> output_counts;
  std::unordered_map<int32_t, int32_t> prompt_counts;
};

struct RequestState {
  RequestId id = 0;
  uint64_t incarnation = 0;         // tells a request that came back from what it was before
  std::vector<int32_t> token_ids;   // prompt and everything sampled so far
  int32_t num_prompt_tokens = 0;
  std::vector<int32_t> block_ids;
  SamplingParams sampling;
  std::unique_ptr<TokenHistory> history;
  std::shared_ptr<grammar::Automaton> automaton;      // last stage: of sampling.grammar, from the first token on
  grammar::Progress progress;                         // of the tokens so far, in it
  std::shared_ptr<const grammar::TokenMask> mask;     // what may come next
  int64_t last_sampled_step = 0;    // the latest step that samples for it, 0 = none

  int64_t num_output_tokens() const { return static_cast<int64_t>(token_ids.size()) - num_prompt_tokens; }
  void append(int32_t token);
  // The next token is chosen on the device and not yet known here: number `row` of those that its step samples. Not for
  // requests whose sampling looks back.
  void append_pending(int64_t row) { token_ids.push_back(static_cast<int32_t>(-1 - row)); }
  // The pending token at `position` is known.
  void settle(int64_t position, int32_t token);
};

// A row whose logits are wanted, and for what.
struct LogitRow {
  RequestState* request = nullptr;
  int64_t row = 0;            // in the step
  bool samples = false;
  int32_t prompt_target = -1;  // the prompt token that follows, when its logprob is wanted
};

struct StepInputs {
  Tensor ids;  // I32 [num_tokens]; -1 - i stands for the token that the step before samples as its number i
  AttentionMetadata meta;
  std::vector<LogitRow> logit_rows;  // in the order of the rows
  Tensor logit_row_ids;              // I32 [logit_rows.size()]: their rows
  Tensor draws;                      // U8 [sequences * sizeof(ops::TokenDraw)]: for steps whose logit rows all sample; not filled
};

class InputBatch {
 public:
  explicit InputBatch(int64_t block_size) : block_size_(block_size) {}

  // Forgets and adds requests and appends new blocks. Throws CommError when the step does not follow the last one:
  // then the engine has to send everything again, beginning with step 1.
  void apply(const SchedulerOutput& step);
  // The latest step whose sampled tokens the rows of this one continue; 0 = none.
  int64_t depends_on(const SchedulerOutput& step);
  // Tensors from `arena`, whose memory the CPU can write; the block table comes last. All tokens of the rows must be known
  // or pending. `padded_rows`, for steps in which every request has one row: as many sequences and rows, those beyond the
  // step's own empty, without a slot and with logit rows that are nobody's.
  StepInputs build(Arena& arena, const SchedulerOutput& step, int64_t padded_rows = 0);

  RequestState* find(RequestId id);
  // nullptr when the request is gone, or came back since.
  RequestState* find(RequestId id, uint64_t incarnation);
  size_t num_requests() const { return requests_.size(); }

 private:
  RequestState& scheduled(const SchedulerOutput& step, RequestId id);
  void fill_sequence(const RequestState& request, const ScheduledRequest& part, int64_t row, StepInputs& inputs) const;
  void add_logit_rows(RequestState& request, const ScheduledRequest& part, int64_t row, StepInputs& inputs) const;
  static void pad(int64_t own, int64_t padded_rows, StepInputs& inputs);

  int64_t block_size_;
  int64_t last_step_ = 0;
  uint64_t next_incarnation_ = 1;
  std::unordered_map<RequestId, RequestState> requests_;
};

}  // namespace tutti
