#include "comm/cuda_ipc/ipc_peers.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <fstream>
#include <thread>

#include "base/error.h"
#include "comm/cuda_ipc/ipc_kernels.h"

namespace tutti::cuda_ipc {
namespace {

constexpr auto kVerifyTimeout = std::chrono::seconds(5);

std::string text_of(cudaError_t status) { return fmt::format("{} ({})", cudaGetErrorName(status), cudaGetErrorString(status)); }

std::string boot_id() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(file, id);
  return id;
}

// Different for every pair and both directions, and never zero.
uint32_t probe_value(int from, int to) { return 0x5eed0000u + static_cast<uint32_t>(from * 16 + to); }

}  // namespace

struct IpcPeers::Card {
  cudaIpcMemHandle_t handle;
  cudaUUID_t gpu;
  std::array<char, 64> machine;
  int64_t pid;
  std::byte* region;  // for ranks that are threads of this process
  int device;
  std::array<char, 256> model;
  int multiprocessors;
};

void agree(Communicator& control, const CommGroup& group, const std::string& problem) {
  std::array<char, 480> own{};
  std::copy_n(problem.begin(), std::min(problem.size(), own.size() - 1), own.begin());
  std::vector<std::array<char, 480>> all(static_cast<size_t>(group.size));
  control.all_gather(own.data(), all.data(), sizeof own);
  for (int r = 0; r < group.size; ++r) {
    const char* text = all[static_cast<size_t>(r)].data();
    if (*text != '\0') throw Unavailable(fmt::format("{}: {}", group.label(r), text));
  }
}

std::vector<std::string> gather_gpus(Communicator& control, Device device) {
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, device.index), "cudaGetDeviceProperties");
  std::array<char, 96> own{};
  const std::string machine = boot_id() + "/";
  std::copy_n(machine.begin(), std::min<size_t>(machine.size(), 64), own.begin());
  std::memcpy(own.data() + 64, &properties.uuid, sizeof properties.uuid);
  std::vector<std::array<char, 96>> all(static_cast<size_t>(control.size()));
  control.all_gather(own.data(), all.data(), sizeof own);
  std::vector<std::string> gpus;
  for (const auto& gpu : all) gpus.emplace_back(gpu.begin(), gpu.end());
  return gpus;
}

IpcPeers::IpcPeers(const CommGroup& group, CudaStream& stream, Communicator& control, Deadline deadline)
    : memory_(stream.device()) {
  if (group.size > kMaxRanks) throw Unavailable(fmt::format("{} GPUs are in the group, {} are possible", group.size, kMaxRanks));
  agree(control, group, allocate());
  std::vector<Card> cards(static_cast<size_t>(group.size));
  const Card own = own_card();
  control.all_gather(&own, cards.data(), sizeof own);
  agree(control, group, open(group, cards));
  agree(control, group, verify(group, stream, control, deadline));
}

IpcPeers::Memory::~Memory() {
  if (in_use) return;
  (void)cudaSetDevice(device.index);
  (void)cudaDeviceSynchronize();
  for (void* peer : mapped) (void)cudaIpcCloseMemHandle(peer);
  (void)cudaFree(region);
  (void)cudaFree(state);
  (void)cudaFreeHost(const_cast<IpcStatus*>(status));
}

// Returns what went wrong, as the others must hear of it.
std::string IpcPeers::allocate() {
  cudaError_t result = cudaSetDevice(memory_.device.index);
  if (result == cudaSuccess) result = cudaMalloc(reinterpret_cast<void**>(&memory_.region), kRegionBytes);  // plain memory, as IPC wants it
  if (result == cudaSuccess) result = cudaMemset(memory_.region, 0, kBulkOffset);  // no flag of whoever had it before
  if (result == cudaSuccess) result = cudaMalloc(reinterpret_cast<void**>(&memory_.state), sizeof(IpcState));
  if (result == cudaSuccess) result = cudaMemset(memory_.state, 0, sizeof(IpcState));
  void* status = nullptr;
  if (result == cudaSuccess) result = cudaHostAlloc(&status, sizeof(IpcStatus), cudaHostAllocMapped);
  if (result == cudaSuccess) {
    std::memset(status, 0, sizeof(IpcStatus));
    memory_.status = static_cast<volatile IpcStatus*>(status);
    result = cudaDeviceSynchronize();
  }
  if (result == cudaSuccess) return "";
  (void)cudaGetLastError();
  return fmt::format("no {} MiB of memory for messages between GPUs: {}", kRegionBytes >> 20, text_of(result));
}

IpcPeers::Card IpcPeers::own_card() const {
  Card card{};
  cudaDeviceProp properties{};
  check(cudaIpcGetMemHandle(&card.handle, memory_.region), "cudaIpcGetMemHandle");
  check(cudaGetDeviceProperties(&properties, memory_.device.index), "cudaGetDeviceProperties");
  card.gpu = properties.uuid;
  const std::string machine = boot_id();
  std::copy_n(machine.begin(), std::min(machine.size(), card.machine.size() - 1), card.machine.begin());
  card.pid = ::getpid();
  card.region = memory_.region;
  card.device = memory_.device.index;
  std::copy_n(properties.name, card.model.size(), card.model.begin());
  card.multiprocessors = properties.multiProcessorCount;
  return card;
}

std::string IpcPeers::open(const CommGroup& group, const std::vector<Card>& cards) {
  const Card& own = cards[static_cast<size_t>(group.rank)];
  void* status = nullptr;
  if (const cudaError_t result = cudaHostGetDevicePointer(&status, const_cast<IpcStatus*>(memory_.status), 0); result != cudaSuccess)
    return "host memory is not mapped: " + text_of(result);
  kernel_group_.state = memory_.state;
  kernel_group_.status = static_cast<IpcStatus*>(status);
  kernel_group_.rank = group.rank;
  kernel_group_.size = group.size;
  ranks_on_this_gpu_ = 0;
  int capability = 0;
  if (cudaDeviceGetAttribute(&capability, cudaDevAttrComputeCapabilityMajor, memory_.device.index) != cudaSuccess) capability = 0;
  for (int r = 0; r < group.size; ++r) {
    const Card& card = cards[static_cast<size_t>(r)];
    const bool same_gpu = std::memcmp(&card.gpu, &own.gpu, sizeof own.gpu) == 0;
    ranks_on_this_gpu_ += same_gpu ? 1 : 0;
    alike_ = alike_ && card.model == own.model && card.multiprocessors == own.multiprocessors;
    if (card.machine != own.machine) return fmt::format("{} is on another machine", group.label(r));
    std::byte*& region = kernel_group_.region[r];
    if (card.pid == own.pid) {
      region = card.region;
      if (same_gpu) continue;
      const cudaError_t result = cudaDeviceEnablePeerAccess(card.device, 0);
      (void)cudaGetLastError();
      if (result != cudaSuccess && result != cudaErrorPeerAccessAlreadyEnabled)
        return fmt::format("no peer-to-peer access to the GPU of {}: {}", group.label(r), text_of(result));
      continue;
    }
    void* mapped = nullptr;
    const cudaError_t result = cudaIpcOpenMemHandle(&mapped, card.handle, cudaIpcMemLazyEnablePeerAccess);
    if (result != cudaSuccess) {
      (void)cudaGetLastError();
      return fmt::format("no peer-to-peer access to the GPU of {}: {}", group.label(r), text_of(result));
    }
    memory_.mapped.push_back(mapped);
    region = static_cast<std::byte*>(mapped);
  }
  kernel_group_.lets_next_start = ranks_on_this_gpu_ == 1 && capability >= 9;
  return "";
}

// Writes to every peer, waits until all have written, and looks at what has arrived. A write that never ends (as through a
// broken IOMMU setting) is found by the deadline.
std::string IpcPeers::verify(const CommGroup& group, CudaStream& stream, Communicator& control, Deadline deadline) {
  const Deadline limit(std::min(deadline.instant(), Clock::now() + kVerifyTimeout));
  std::string problem;
  memory_.in_use = true;
  try {
    for (int r = 0; r < group.size; ++r) probe(kernel_group_, r, probe_value(group.rank, r), stream.stream());
    const uint64_t written = stream.mark();
    while (!stream.reached(written) && !limit.passed()) std::this_thread::sleep_for(std::chrono::microseconds(50));
    if (!stream.reached(written)) problem = "writing into the memory of the other GPUs does not end";
  } catch (const DeviceError& error) {
    problem = fmt::format("writing into the memory of the other GPUs failed: {}", error.what());
  }
  agree(control, group, problem);
  memory_.in_use = false;
  const auto* flags = reinterpret_cast<const IpcFlags*>(memory_.region);
  std::array<uint32_t, kMaxRanks> arrived{};
  const cudaError_t result = cudaMemcpy(arrived.data(), flags->probe, sizeof arrived, cudaMemcpyDeviceToHost);
  if (result != cudaSuccess) return "reading own memory failed: " + text_of(result);
  for (int r = 0; r < group.size; ++r) {
    if (arrived[static_cast<size_t>(r)] != probe_value(r, group.rank))
      return fmt::format("what the GPU of {} wrote has not arrived", group.label(r));
  }
  return "";
}

}  // namespace tutti::cuda_ipc
