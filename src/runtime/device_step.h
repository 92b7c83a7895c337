// A step's way to a GPU and back. Its inputs go over in one copy, while the step before still computes; a small kernel
// then brings them to addresses and strides that never change, so that graphs can read them. The tokens that its kernels
// choose come back into pinned memory. Two steps may be on their way: the second one reads the first one's tokens on the
// device. Worker thread only.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "ops/context.h"
#include "runtime/input_batch.h"
#include "tensor/device_memory.h"

namespace tutti {

class DeviceStep {
 public:
  static constexpr size_t kMaxSteps = 2;  // on their way

  // The largest step: rows, sequences, and blocks of a sequence. Throws DeviceError.
  DeviceStep(const Context& ctx, int64_t max_tokens, int64_t max_seqs, int64_t max_blocks);

  // Memory for the next step's InputBatch::build(). Waits until the copies of the step before the last are done.
  Arena& next_inputs();
  // What was built there, on the device, once the stream comes to it. `for_graph`: a graph reads it; kernels that are
  // launched one by one may look at a step's inputs before the kernels ahead of them have ended, and get a fence.
  StepInputs upload(StepInputs host, bool for_graph);

  // Where kernels put the tokens of a step and their logits, and where the next step finds them.
  const Tensor& tokens() const { return tokens_; }  // I32 [max_seqs]
  const Tensor& values() const { return values_; }  // F32 [max_seqs]

  struct Answer {
    std::span<const int32_t> tokens;
    std::span<const float> values;
  };
  // Brings the first `count` of them back; read() waits for that of the step with this ticket.
  size_t fetch(int64_t count);
  bool ready(size_t ticket) const { return slots_[ticket].fetched.done(); }
  Answer read(size_t ticket);

  // Around the kernels of a step. What the GPU idles between two steps is collected from here on, when asked for.
  void begin_kernels();
  void end_kernels();
  void measure_idle(bool on) { measures_idle_ = on; }
  const std::vector<float>& idle_us() const { return idle_us_; }

 private:
  struct Slot {
    std::unique_ptr<Arena> inputs;           // pinned
    std::shared_ptr<Buffer> answers;         // pinned: max_seqs tokens, then as many values
    std::shared_ptr<Buffer> staged;          // device: the inputs as they came
    cuda::StreamEvent uploaded;
    cuda::StreamEvent taken;
    bool used = false;
    cuda::StreamEvent fetched;
    size_t timed = 0;
    size_t count = 0;
  };
  Tensor on_device(const Tensor& host) const;

  const Context& ctx_;
  int64_t max_seqs_;
  cuda::CopyStream copies_;
  std::array<Slot, kMaxSteps> slots_;
  size_t current_ = 0;
  bool measures_idle_ = false;
  struct Times {
    cuda::StreamEvent begun{true};
    cuda::StreamEvent ended{true};
  };
  std::array<Times, 2 * kMaxSteps> times_;  // of the latest steps
  size_t timed_ = 0;
  std::vector<float> idle_us_;
  std::shared_ptr<Buffer> inputs_;  // device: as the inputs' arena, without the block table
  Tensor block_table_;              // device: I32 [max_seqs, max_blocks]
  Tensor fence_;                    // a write that waits for all kernels before it
  Tensor tokens_;
  Tensor values_;
};

}  // namespace tutti
