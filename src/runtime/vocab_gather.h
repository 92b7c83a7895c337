// Brings rows whose vocabulary is cut over a group's ranks together. Worker thread only.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "comm/communicator.h"
#include "ops/context.h"
#include "nn/parameter.h"
#include "runtime/token_choice.h"
#include "tensor/tensor.h"

namespace tutti {

class VocabGather {
 public:
  VocabGather(Communicator& tp, std::vector<Range> vocab);

  // Whole rows of `logits` [num_rows, this rank's part], a few at a time: visit(i, row, thread) for each of `rows` with
  // row[vocab_size], on all threads of the context at once; it must not throw. Every rank gets the rows; they are gone
  // when visit returns.
  using Visit = std::function<void(size_t index, std::span<const float> row, int thread)>;
  void whole_rows(const Context& ctx, const Tensor& logits, std::span<const int64_t> rows, const Visit& visit);

  // The `count` best of each of `rows`, in order, over the whole vocabulary.
  std::vector<std::vector<Candidate>> best(const Context& ctx, const Tensor& logits, std::span<const int64_t> rows, int32_t count);

 private:
  void gather_chunk(const Context& ctx, const Tensor& logits, std::span<const int64_t> rows, const Tensor& whole);

  Communicator& tp_;
  std::vector<Range> vocab_;
  int64_t vocab_size_;
  int64_t widest_;
};

}  // namespace tutti
