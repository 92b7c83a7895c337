// Chooses the next tokens from logits whose vocabulary is cut over the tensor-parallel group, and computes the
// log-probabilities that were asked for. Ranks exchange only their best candidates where the sampling parameters allow
// it, whole rows otherwise. Every rank learns the tokens; the first one the log-probabilities. Worker thread only.
#pragma once

#include <span>
#include <vector>

#include "comm/communicator.h"
#include "ops/ops.h"
#include "runtime/grammars.h"
#include "runtime/input_batch.h"
#include "runtime/vocab_gather.h"

namespace tutti {

// The weights or the memory are damaged.
[[noreturn]] void throw_not_finite(RequestId id, int64_t position);

class Sampler {
 public:
  // `vocab`: the rows of each rank of the group. `seed` is for requests that bring none.
  // `vocabulary` is for requests with a grammar.
  Sampler(Communicator& tp, std::vector<Range> vocab, std::vector<int32_t> eos_token_ids, uint64_t seed,
          VocabularySource vocabulary = {});

  // One result for each request that has a row, in the order of the rows. `logits` F32 [num_rows, this rank's part of
  // the vocabulary], changed in place. Throws DeviceError when the model's logits are not numbers.
  std::vector<SampledToken> sample(const Context& ctx, const Tensor& logits, std::span<const LogitRow> rows);

  // Whether ops::draw_tokens() chooses the same token from a row's logits as they are; and what it is told about it.
  static bool draws_suffice(const SamplingParams& sampling, int64_t vocab_size);
  ops::TokenDraw token_draw(const RequestState& request) const;

 private:
  struct Choice;
  void read_raw_rows(const Context& ctx, const Tensor& logits, std::span<const LogitRow> rows);
  void process(const Context& ctx, const Tensor& logits, std::span<const LogitRow> rows);
  void choose_by_candidates(const Context& ctx, const Tensor& logits, std::span<Choice> choices);
  void choose_by_rows(const Context& ctx, const Tensor& logits, std::span<Choice> choices);
  void share(std::span<Choice> choices);
  double draw(const RequestState& request) const;

  Communicator& tp_;
  std::vector<Range> vocab_;
  VocabGather gather_;
  std::vector<int32_t> eos_token_ids_;
  uint64_t seed_;
  Grammars grammars_;

  std::vector<std::vector<float>> scratch_;  // of each thread

  // First rank, one step long: of rows whose log-probabilities are wanted, by row.
  std::vector<std::vector<float>> raw_rows_;
  std::vector<TokenLogprobs> prompt_logprobs_;
};

}  // namespace tutti
