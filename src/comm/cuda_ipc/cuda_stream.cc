#include "comm/cuda_ipc/cuda_stream.h"

#include "base/error.h"

namespace tutti::cuda_ipc {

void check(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  throw DeviceError(std::string(what) + ": " + cudaGetErrorName(status) + ": " + cudaGetErrorString(status));
}

CudaStream::CudaStream(Device device, void* stream) : device_(device), stream_(static_cast<cudaStream_t>(stream)) {
  check(cudaSetDevice(device.index), ("cannot use " + to_string(device)).c_str());
  for (cudaEvent_t& event : events_) check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreate");
}

CudaStream::~CudaStream() {
  for (cudaEvent_t event : events_) (void)cudaEventDestroy(event);
}

bool CudaStream::capturing() const {
  cudaStreamCaptureStatus status{};
  check(cudaStreamIsCapturing(stream_, &status), "cudaStreamIsCapturing");
  return status != cudaStreamCaptureStatusNone;
}

uint64_t CudaStream::mark() {
  std::lock_guard lock(mutex_);
  ++last_;
  check(cudaEventRecord(events_[last_ % kEvents], stream_), "cudaEventRecord");
  return last_;
}

bool CudaStream::reached(uint64_t mark) {
  std::lock_guard lock(mutex_);
  // Another thread may be capturing a graph, which forbids this question to threads of the usual mode.
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  check(cudaThreadExchangeStreamCaptureMode(&mode), "cudaThreadExchangeStreamCaptureMode");
  const cudaError_t status = cudaEventQuery(events_[mark % kEvents]);
  if (status != cudaSuccess) (void)cudaGetLastError();  // "not ready" would be found by the next launch
  check(cudaThreadExchangeStreamCaptureMode(&mode), "cudaThreadExchangeStreamCaptureMode");
  if (status == cudaErrorNotReady) return false;
  check(status, "a kernel on the stream has failed");
  return true;
}

void CudaStream::copy(void* to, const void* from, size_t bytes) {
  check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream_), "cudaMemcpyAsync");
}

}  // namespace tutti::cuda_ipc
