// The functions of NCCL that are used, in one table: the library is opened when the first group needs it, tests put their
// own functions in. The types are declared here as NCCL's ABI has them, so that no header of NCCL or CUDA is needed.
#pragma once

#include <climits>
#include <cstddef>
#include <string>

namespace tutti::nccl {

using Comm = struct OpaqueComm*;
using Stream = void*;  // cudaStream_t
using Result = int;

constexpr Result kSuccess = 0;
constexpr Result kInProgress = 7;
constexpr int kSum = 0;

// ncclDataType_t
enum Type : int { kUint8 = 1, kInt32 = 2, kInt64 = 4, kFloat16 = 6, kFloat32 = 7, kBfloat16 = 9 };

struct UniqueId {
  char bytes[128];
};

// ncclConfig_t as of NCCL 2.14, the first with non-blocking communicators; newer libraries read its size and version, and
// take defaults for what it lacks.
struct Config {
  size_t size = sizeof(Config);
  unsigned magic = 0xcafebeef;
  unsigned version = 21400;
  int blocking = 0;
  int unknown = INT_MIN;  // fills the struct up: what lies here in newer ones is "undefined"
};

struct Api {
  Result (*GetVersion)(int* version);
  Result (*GetUniqueId)(UniqueId* id);
  Result (*CommInitRankConfig)(Comm* comm, int size, UniqueId id, int rank, Config* config);
  Result (*CommGetAsyncError)(Comm comm, Result* error);
  Result (*CommAbort)(Comm comm);
  const char* (*GetErrorString)(Result result);
  const char* (*GetLastError)(Comm comm);
  Result (*GroupStart)();
  Result (*GroupEnd)();
  Result (*AllReduce)(const void* send, void* recv, size_t count, int type, int op, Comm comm, Stream stream);
  Result (*AllGather)(const void* send, void* recv, size_t count, int type, Comm comm, Stream stream);
  Result (*ReduceScatter)(const void* send, void* recv, size_t count, int type, int op, Comm comm, Stream stream);
  Result (*Broadcast)(const void* send, void* recv, size_t count, int type, int root, Comm comm, Stream stream);
  Result (*Send)(const void* data, size_t count, int type, int peer, Comm comm, Stream stream);
  Result (*Recv)(void* data, size_t count, int type, int peer, Comm comm, Stream stream);
};

// Opens libnccl.so.2 once; it stays open for the life of the process. Throws ConfigError that names the package when it is
// missing, and the version when it is too old. Any thread.
const Api& library();

// "2.28.9"
std::string version_text(int version);

}  // namespace tutti::nccl
