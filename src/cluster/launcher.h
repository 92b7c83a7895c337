// Which part this process plays, from the flags and the environment. All ways of launching end in one of two roles: the
// head, or the agent of a node. Pure; called on the main thread at start.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "config/parallel_config.h"

namespace tutti {

inline constexpr int kDefaultControlPort = 29500;
inline constexpr int kDataPorts = 100;  // after the control port, for ranks
inline constexpr int kLastPort = 65535;

struct LaunchFlags {
  std::optional<int> nnodes;           // --nnodes
  std::optional<int> node_rank;        // --node-rank
  std::string master_addr;             // --master-addr
  std::optional<int> master_port;      // --master-port
  bool headless = false;               // --headless
  int gpus = 0;                        // of this node, when ranks run on them; 0 = on the CPU
};

enum class Role { kHead, kAgent };

struct LaunchPlan {
  Role role = Role::kHead;
  std::string master_addr;    // where the head is; "" on a head that was not told its address
  int master_port = kDefaultControlPort;
  int num_nodes = 1;          // 0 = unknown (one process a rank)
  int local_ranks = 0;        // of a head: 0 = its share
  int node_rank = -1;         // of an agent
  int first_rank = -1;        // of an agent started once a rank
  int num_ranks = 0;          // of an agent: 0 = as given by the head
};

// Ranks that something like torchrun has started, one process each; nothing when flags or a lack of variables say that
// it was not so.
std::optional<int> world_size_of_environment(const LaunchFlags& flags, const std::function<std::string(const char*)>& environment);

// "RANK=1", where it is the only one of MASTER_ADDR, WORLD_SIZE and RANK and no flag is about nodes: it is not for us. "" when
// there is none.
std::string ignored_variable(const LaunchFlags& flags, const std::function<std::string(const char*)>& environment);

// `environment` returns a variable's value or "". MASTER_ADDR, MASTER_PORT, WORLD_SIZE and RANK (as torchrun and others
// set them) count when no node flag is given; two of the three without a default are an error. Throws ConfigError when what is said does not fit together.
LaunchPlan plan_launch(const LaunchFlags& flags, const ParallelConfig& parallel,
                       const std::function<std::string(const char*)>& environment);

}  // namespace tutti
