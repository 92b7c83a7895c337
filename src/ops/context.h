// Where a step computes: the device, the threads, and the memory for activations. One per rank; used by its worker
// thread only.
#pragma once

#include "base/thread_pool.h"
#include "tensor/arena.h"
#include "tensor/device.h"

namespace tutti {

struct Context {
  Device device;
  ThreadPool* pool = nullptr;  // CPU kernels
  Arena* arena = nullptr;      // activations and scratch of one step
};

}  // namespace tutti
