// Makes the communicator of a group of GPUs, one rank each: through each other's memory (comm/cuda_ipc) on one host,
// through NCCL (comm/nccl) across hosts and for what is long. A build without CUDA has the same function; it throws there.
#pragma once

#include <memory>
#include <string>

#include "comm/comm_factory.h"
#include "comm/communicator.h"
#include "comm/store.h"
#include "tensor/device.h"

namespace tutti {

struct DeviceCommOptions {
  CommOptions group;  // as for the CPU communicator of the same ranks: names, nodes, addresses, deadlines
  Device device;
  void* stream = nullptr;  // cudaStream_t on which every call is queued; outlives the communicator
  enum class Path { kAuto, kCudaIpc, kNccl };
  Path path = Path::kAuto;         // kNccl: --disable-custom-all-reduce; kCudaIpc: benchmarks and tests
  std::string why_nccl;            // who asked for kNccl, for the log
  bool fuse = true;                // sums that go on to their norm (all_reduce_add_norm)
  bool measure_algorithms = true;  // once at start, when there is a choice
};

// Every rank of the group calls it, each on the thread that will use the communicator. Says in one line which way the group
// goes, and why not through each other's memory when that was wanted. Throws ConfigError when a library is missing (named
// with its package), CommError when a rank does not come, DeviceError when the GPU fails.
std::unique_ptr<Communicator> make_device_communicator(const DeviceCommOptions& options, Store& store);

}  // namespace tutti
