#include <dlfcn.h>
#include <fmt/format.h>

#include <string>

#include "base/error.h"
#include "comm/nccl/nccl_api.h"

namespace tutti::nccl {
namespace {

constexpr int kOldest = 21400;  // non-blocking communicators
constexpr const char* kInstall = "install libnccl2 of the CUDA repository, or pip's nvidia-nccl-cu13, and put its folder into LD_LIBRARY_PATH";

template <typename Function>
void find(void* library, const char* name, Function*& function) {
  function = reinterpret_cast<Function*>(::dlsym(library, name));
  if (function == nullptr) throw ConfigError(fmt::format("libnccl.so.2 has no {}: it is too old; {}", name, kInstall));
}

Api open_library() {
  void* library = ::dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) throw ConfigError(fmt::format("cannot open libnccl.so.2 ({}): {}", ::dlerror(), kInstall));
  Api api{};
  find(library, "ncclGetVersion", api.GetVersion);
  int version = 0;
  if (api.GetVersion(&version) != kSuccess || version < kOldest) {
    throw ConfigError(fmt::format("NCCL {}: expected at least {}; {}", version_text(version), version_text(kOldest), kInstall));
  }
  find(library, "ncclGetUniqueId", api.GetUniqueId);
  find(library, "ncclCommInitRankConfig", api.CommInitRankConfig);
  find(library, "ncclCommGetAsyncError", api.CommGetAsyncError);
  find(library, "ncclCommAbort", api.CommAbort);
  find(library, "ncclGetErrorString", api.GetErrorString);
  find(library, "ncclGetLastError", api.GetLastError);
  find(library, "ncclGroupStart", api.GroupStart);
  find(library, "ncclGroupEnd", api.GroupEnd);
  find(library, "ncclAllReduce", api.AllReduce);
  find(library, "ncclAllGather", api.AllGather);
  find(library, "ncclReduceScatter", api.ReduceScatter);
  find(library, "ncclBroadcast", api.Broadcast);
  find(library, "ncclSend", api.Send);
  find(library, "ncclRecv", api.Recv);
  return api;
}

}  // namespace

const Api& library() {
  static const Api api = open_library();  // tried again by the next caller when it throws
  return api;
}

std::string version_text(int version) {
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

}  // namespace tutti::nccl
