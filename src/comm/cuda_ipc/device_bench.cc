#include "comm/device_bench.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>
#include <random>

#include "comm/cuda_ipc/cuda_stream.h"
#include "tensor/device_memory.h"

namespace tutti {

using cuda_ipc::check;

int visible_gpus() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

struct DeviceBench::Impl {
  Device device;
  cudaStream_t stream = nullptr;
  cudaEvent_t begin = nullptr;
  cudaEvent_t end = nullptr;
};

DeviceBench::DeviceBench(Device device) : impl_(std::make_unique<Impl>()) {
  impl_->device = device;
  check(cudaSetDevice(device.index), ("cannot use " + to_string(device)).c_str());
  check(cudaStreamCreateWithFlags(&impl_->stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  check(cudaEventCreate(&impl_->begin), "cudaEventCreate");
  check(cudaEventCreate(&impl_->end), "cudaEventCreate");
}

DeviceBench::~DeviceBench() {
  (void)cudaStreamSynchronize(impl_->stream);
  (void)cudaEventDestroy(impl_->begin);
  (void)cudaEventDestroy(impl_->end);
  (void)cudaStreamDestroy(impl_->stream);
}

void* DeviceBench::stream() const { return impl_->stream; }

std::shared_ptr<Buffer> DeviceBench::random(size_t bytes) {
  auto memory = cuda::allocate(bytes, impl_->device);
  std::vector<uint16_t> block(size_t{1} << 19);
  std::minstd_rand numbers(17);
  for (uint16_t& value : block) value = static_cast<uint16_t>(0x3f00 + numbers() % 256);  // BF16 in [0.5, 2)
  const size_t block_bytes = block.size() * sizeof(uint16_t);
  for (size_t at = 0; at < bytes; at += block_bytes)
    cuda::copy_async(memory->data() + at, block.data(), std::min(block_bytes, bytes - at), impl_->stream);
  cuda::synchronize(impl_->stream);
  return memory;
}

std::vector<double> DeviceBench::microseconds(int calls, int rounds, const std::function<void()>& queue,
                                              const std::function<void()>& meet) {
  cudaGraph_t recorded = nullptr;
  cudaGraphExec_t graph = nullptr;
  queue();  // NCCL connects at the first call of a kind
  check(cudaStreamSynchronize(impl_->stream), "cudaStreamSynchronize");
  check(cudaStreamBeginCapture(impl_->stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
  for (int i = 0; i < calls; ++i) queue();
  check(cudaStreamEndCapture(impl_->stream, &recorded), "cudaStreamEndCapture");
  check(cudaGraphInstantiate(&graph, recorded, 0), "cudaGraphInstantiate");
  check(cudaGraphDestroy(recorded), "cudaGraphDestroy");
  std::vector<double> times;
  for (int round = -1; round < rounds; ++round) {
    meet();
    check(cudaEventRecord(impl_->begin, impl_->stream), "cudaEventRecord");
    check(cudaGraphLaunch(graph, impl_->stream), "cudaGraphLaunch");
    check(cudaEventRecord(impl_->end, impl_->stream), "cudaEventRecord");
    check(cudaEventSynchronize(impl_->end), "cudaEventSynchronize");
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, impl_->begin, impl_->end), "cudaEventElapsedTime");
    if (round >= 0) times.push_back(1e3 * static_cast<double>(milliseconds) / calls);
  }
  check(cudaGraphExecDestroy(graph), "cudaGraphExecDestroy");
  return times;
}

}  // namespace tutti
