// The settings of gRPC that both ends must agree on. Included only by the files that speak gRPC.
#pragma once

#include <grpc/support/log.h>

#include <string>

#include "base/log.h"

namespace tutti {

inline constexpr int kMaxControlMessage = 512 << 20;  // a step with long prompts is far beyond the default of 4 MB
inline constexpr int kKeepaliveTimeMs = 2000;         // a silent connection is probed this often
inline constexpr int kKeepaliveTimeoutMs = 5000;      // and given up after this long

// gRPC's own lines ("Handshake failed ...") are for debugging; what went wrong is said by us, in words.
inline void quiet_grpc_log() {
  gpr_set_log_function([](gpr_log_func_args* line) { log::debug(std::string("grpc: ") + line->message); });
}

}  // namespace tutti
