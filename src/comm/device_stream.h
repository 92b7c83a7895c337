// The stream on which the communicators of a GPU queue their calls, as the host sees it. No header of CUDA's: the real one
// is made in comm/cuda_ipc, tests have a fake.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tutti {

class DeviceStream {
 public:
  virtual ~DeviceStream() = default;

  virtual void* handle() const = 0;  // the cudaStream_t
  // Calls are being recorded into a graph: nothing that is queued now runs now.
  virtual bool capturing() const = 0;
  // A point behind everything queued so far; not while capturing. Worker thread.
  virtual uint64_t mark() = 0;
  // Whether the stream has come so far; a mark older than the last 64 may stand for a later one. Any thread. Throws
  // DeviceError when the device has failed.
  virtual bool reached(uint64_t mark) = 0;
  // Within the device's memory. Worker thread.
  virtual void copy(void* to, const void* from, size_t bytes) = 0;
};

}  // namespace tutti
