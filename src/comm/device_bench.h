// For benchmarks: a stream of a GPU, memory on it, and the time of calls that are queued there, measured with the device's
// own events in captured graphs, as a decode step runs them. A build without CUDA has the same class; it throws there.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "tensor/buffer.h"
#include "tensor/device.h"

namespace tutti {

// GPUs that this process sees.
int visible_gpus();

class DeviceBench {
 public:
  explicit DeviceBench(Device device);
  ~DeviceBench();

  void* stream() const;
  // On the device, filled with random BF16 numbers around 1.
  std::shared_ptr<Buffer> random(size_t bytes);
  // Microseconds of a call: of each of `rounds` replays of a graph of `calls` calls of `queue`. `meet` is called before each
  // replay, for the ranks to start together; one call and one replay before are not timed.
  std::vector<double> microseconds(int calls, int rounds, const std::function<void()>& queue, const std::function<void()>& meet);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tutti
