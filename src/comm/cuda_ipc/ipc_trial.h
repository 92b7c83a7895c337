// What an IPC group does before it is used: sums of known numbers, and measurements to choose its ways by.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "comm/algorithm_table.h"
#include "comm/communicator.h"
#include "comm/cuda_ipc/cuda_stream.h"
#include "comm/transport.h"
#include "tensor/buffer.h"

namespace tutti::cuda_ipc {

struct SelfTest {
  CommGroup group;
  CudaStream* stream = nullptr;
  Deadline deadline = Deadline::never();
  std::function<void(SumWay way, void* data, size_t bytes, DType dtype)> sum;
  std::function<void(const void* send, void* recv, size_t bytes)> gather;
  std::function<bool()> failed;  // a kernel has given up
};

// Every way of summing at sizes around its edges, and a gather; nothing when all is right, else what is wrong. All ranks
// together.
std::string run_self_test(const SelfTest& test);

// Times ways of doing one thing in graphs of several calls and fills a table with the fastest for each size.
class Measurement {
 public:
  static constexpr size_t kLargestBytes = size_t{64} << 20;
  static constexpr size_t kRoomBytes = 8 * kLargestBytes;

  // Takes kRoomBytes of device memory while it lives. `finish` waits for the stream.
  Measurement(CudaStream& stream, Communicator& control, std::function<void()> finish);
  ~Measurement();
  Measurement(const Measurement&) = delete;
  Measurement& operator=(const Measurement&) = delete;

  using Run = std::function<void(SumWay way, void* data, size_t bytes)>;
  // `run` queues one call on `data`, of at most `largest` bytes. All ranks together.
  void choose(AlgorithmTable& table, const std::vector<SumWay>& ways, size_t largest, const Run& run);

 private:
  double replay(SumWay way, size_t bytes, const Run& run);  // seconds, by the device's clock
  void drop_graphs();

  CudaStream& stream_;
  Communicator& control_;
  std::function<void()> finish_;
  std::shared_ptr<Buffer> data_;
  cudaEvent_t begin_ = nullptr;
  cudaEvent_t end_ = nullptr;
  std::map<std::pair<SumWay, size_t>, cudaGraphExec_t> graphs_;
};

}  // namespace tutti::cuda_ipc
