// The memory of an IPC group on one rank: its own region, those of the other ranks, mapped, and the words that only this
// rank and its host thread see. All ranks of the group make it together; each pair is written and read back before it
// counts as there.
#pragma once

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "comm/cuda_ipc/cuda_stream.h"
#include "tensor/cuda/ipc_memory.h"
#include "comm/transport.h"

namespace tutti::cuda_ipc {

// Why the ranks cannot use each other's memory, in the same words on all of them. The caller goes another way.
class Unavailable : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Throws Unavailable on every rank when one of them has something to say; the first one's words.
void agree(Communicator& control, const CommGroup& group, const std::string& problem);

// What tells the GPU of each rank from all others of the cluster; bytes, not text. All ranks together.
std::vector<std::string> gather_gpus(Communicator& control, Device device);

class IpcPeers {
 public:
  // Throws Unavailable, and CommError when a rank does not come.
  IpcPeers(const CommGroup& group, CudaStream& stream, Communicator& control, Deadline deadline);
  IpcPeers(const IpcPeers&) = delete;
  IpcPeers& operator=(const IpcPeers&) = delete;

  const IpcGroup& kernel_group() const { return kernel_group_; }
  volatile IpcStatus& status() const { return *memory_.status; }
  int ranks_on_this_gpu() const { return ranks_on_this_gpu_; }
  // Are all GPUs of one kind, so that the ranks cut a kernel's work alike?
  bool alike() const { return alike_; }

 private:
  struct Card;  // what a rank tells the others about itself
  struct Memory {
    explicit Memory(Device on) : device(on) {}
    ~Memory();
    Memory(const Memory&) = delete;
    Memory& operator=(const Memory&) = delete;
    const Device device;
    std::byte* region = nullptr;
    IpcState* state = nullptr;
    volatile IpcStatus* status = nullptr;
    std::vector<void*> mapped;
    bool in_use = false;  // by a rank's writes that may never end: then it is left alone
  };
  std::string allocate();
  Card own_card() const;
  std::string open(const CommGroup& group, const std::vector<Card>& cards);
  std::string verify(const CommGroup& group, CudaStream& stream, Communicator& control, Deadline deadline);

  Memory memory_;
  IpcGroup kernel_group_{};
  int ranks_on_this_gpu_ = 1;
  bool alike_ = true;
};

}  // namespace tutti::cuda_ipc
