// The memory through which the GPUs of a host talk, as the host code and the kernels see it: collectives (comm/cuda_ipc),
// and products that add up over the ranks themselves (ops/cuda). Every rank owns one region of plain device memory, which all
// others map through CUDA IPC. Ranks write into each other's regions ("push") and poll their own, so a message costs one
// trip over the link.
//
// A collective is numbered by its epoch (`IpcState::ticks`), which the kernels count themselves: a captured graph can be
// replayed. All areas exist twice and an epoch uses the half of its parity. That is enough: a rank enters epoch e + 2 only
// after it has heard every other rank in e + 1, and a rank speaks in e + 1 only when it has read everything of e.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tutti::cuda_ipc {

constexpr int kMaxRanks = 8;
constexpr int kMaxBlocks = 64;       // of a kernel: those of all ranks that share a GPU must be resident together
constexpr int kChannels = 16;        // blocks of a send or a recv
constexpr size_t kFlagBytes = size_t{128} << 10;
constexpr size_t kMailBytes = size_t{64} << 10;    // one of the two letters of a channel
constexpr size_t kLowLatencyBytes = size_t{512} << 10;  // the largest message whose flags lie beside its data
constexpr size_t kBulkBytes = size_t{32} << 20;    // of one parity

// Flags of a region. A flag holds the epoch (or the number of the letter) that it announces; it is compared for equality,
// so what an older one left behind never counts.
struct IpcFlags {
  uint32_t arrived[2][2][kMaxRanks][kMaxBlocks];  // [parity][phase][from][block]
  uint32_t letters[kMaxRanks][kChannels];         // [from]: letters written so far
  uint32_t read[kMaxRanks][kChannels];            // [by]: letters that the reader is done with
  uint32_t probe[kMaxRanks];                      // [from]: what the pair's test wrote
};
static_assert(sizeof(IpcFlags) <= kFlagBytes);

constexpr size_t kLowLatencyOffset = kFlagBytes;
constexpr size_t kLowLatencySlot = 2 * kLowLatencyBytes;  // half of every 16 bytes are flags
constexpr size_t kBulkOffset = kLowLatencyOffset + 2 * kMaxRanks * kLowLatencySlot;
constexpr size_t kMailOffset = kBulkOffset + 2 * kBulkBytes;
constexpr size_t kRegionBytes = kMailOffset + kMaxRanks * kChannels * 2 * kMailBytes;

// A block that has read the epoch adds its share of this; the next epoch is there when all have, and nobody waits for them.
constexpr uint64_t kTicks = uint64_t{1} << 32;

// Of one rank, in its own device memory.
struct IpcState {
  uint64_t ticks;    // kTicks for each collective, of which every block of its kernel has added its share
  uint32_t broken;   // a wait was given up: later kernels do not wait
  uint32_t unused;
  uint32_t sent[kMaxRanks][kChannels];      // letters
  uint32_t received[kMaxRanks][kChannels];
};

// In host memory that both sides see.
struct IpcStatus {
  uint32_t abort;   // written by the host: give up every wait
  uint32_t failed;  // written by the kernel that gave up, after the two below
  int32_t peer;     // whom it waited for
  uint32_t epoch;
  uint64_t timeout_ns;  // of a wait; written by the host with every call, for graphs the latest one counts
};

// What every kernel is told.
struct IpcGroup {
  std::byte* region[kMaxRanks];
  IpcState* state;
  IpcStatus* status;
  int rank;
  int size;
  // The next kernel may be brought onto the GPU while this one waits (programmatic dependent launch): not where ranks share
  // it, as what is brought early could take the room that another rank's kernel needs to be heard.
  bool lets_next_start;
};

}  // namespace tutti::cuda_ipc
