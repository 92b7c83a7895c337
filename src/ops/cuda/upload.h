// The way of weights to the GPU: the context's threads read mapped files, converting where types differ, into pinned
// buffers, of which one is filled while the others are on their way. Worker thread only.
#pragma once

#include <array>
#include <functional>
#include <memory>

#include "ops/context.h"
#include "tensor/device_memory.h"

namespace tutti::cuda {

class Upload {
 public:
  Upload();

  // Writes `rows` rows of `row_bytes` at `to`, in the order of the context's stream; what `fill` reads is read when this
  // returns. fill(first, count, memory) writes some rows; on several threads at once, and it must not throw.
  using Fill = std::function<void(int64_t first, int64_t count, std::byte* memory)>;
  void rows(const Context& ctx, std::byte* to, int64_t rows, size_t row_bytes, const Fill& fill);

 private:
  struct Stage {
    std::shared_ptr<Buffer> memory;
    StreamEvent sent;
    bool used = false;
  };
  std::array<Stage, 4> stages_;
  size_t next_ = 0;
};

}  // namespace tutti::cuda
