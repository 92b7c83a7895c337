#include "cluster/launcher.h"

#include <fmt/format.h>

#include "base/error.h"

namespace tutti {
namespace {

int to_number(const std::string& text, const char* name) {
  const bool digits = !text.empty() && text.size() <= 9 && text.find_first_not_of("0123456789") == std::string::npos;
  if (!digits) throw ConfigError(fmt::format("environment variable {}=\"{}\" is not a number", name, text));
  return std::stoi(text);
}

// One process a rank, started by something like torchrun.
LaunchPlan plan_from_environment(const ParallelConfig& parallel,
                                 const std::function<std::string(const char*)>& environment) {
  LaunchPlan plan;
  const int world = to_number(environment("WORLD_SIZE"), "WORLD_SIZE");
  const int rank = to_number(environment("RANK"), "RANK");
  if (world != parallel.world_size()) {
    throw ConfigError(fmt::format("WORLD_SIZE={} processes were started, but the flags ask for {} ranks ({})", world,
                                  parallel.world_size(), parallel.describe()));
  }
  if (rank >= world) throw ConfigError(fmt::format("RANK={} is not below WORLD_SIZE={}", rank, world));
  plan.master_addr = environment("MASTER_ADDR");
  plan.master_port = environment("MASTER_PORT").empty() ? kDefaultControlPort : to_number(environment("MASTER_PORT"), "MASTER_PORT");
  plan.num_nodes = world == 1 ? 1 : 0;
  plan.role = rank == 0 ? Role::kHead : Role::kAgent;
  plan.local_ranks = 1;
  plan.first_rank = rank;
  plan.num_ranks = 1;
  return plan;
}

// A node whose GPUs are fewer than the ranks is one of several that are like it.
int nodes_for_gpus(const LaunchFlags& flags, const ParallelConfig& parallel) {
  return flags.gpus > 0 ? (parallel.world_size() + flags.gpus - 1) / flags.gpus : 1;
}

}  // namespace

std::optional<int> world_size_of_environment(const LaunchFlags& flags, const std::function<std::string(const char*)>& environment) {
  const bool any_flag = flags.nnodes || flags.node_rank || !flags.master_addr.empty();
  if (any_flag || environment("MASTER_ADDR").empty() || environment("WORLD_SIZE").empty() || environment("RANK").empty()) {
    return std::nullopt;
  }
  return to_number(environment("WORLD_SIZE"), "WORLD_SIZE");
}

LaunchPlan plan_launch(const LaunchFlags& flags, const ParallelConfig& parallel,
                       const std::function<std::string(const char*)>& environment) {
  if (world_size_of_environment(flags, environment)) return plan_from_environment(parallel, environment);

  LaunchPlan plan;
  plan.num_nodes = flags.nnodes.value_or(nodes_for_gpus(flags, parallel));
  plan.master_addr = flags.master_addr;
  plan.master_port = flags.master_port.value_or(kDefaultControlPort);
  const int node_rank = flags.node_rank.value_or(0);
  if (plan.num_nodes < 1) throw ConfigError(fmt::format("--nnodes {}: at least one node is needed", plan.num_nodes));
  if (node_rank > 0 && !flags.nnodes && plan.num_nodes == 1) {
    throw ConfigError(fmt::format("--node-rank {} needs --nnodes: how many nodes are there?", node_rank));
  }
  if (node_rank < 0 || node_rank >= plan.num_nodes) {
    throw ConfigError(fmt::format("--node-rank {} with --nnodes {}: expected 0 to {}", node_rank, plan.num_nodes,
                                  plan.num_nodes - 1));
  }
  if (plan.num_nodes > parallel.world_size()) {
    throw ConfigError(fmt::format("--nnodes {} for {} ranks ({}): a node without a rank has nothing to do", plan.num_nodes,
                                  parallel.world_size(), parallel.describe()));
  }
  if (node_rank == 0) {
    if (flags.headless) {
      throw ConfigError("--headless on node 0: the head serves the API; use it on the nodes with --node-rank 1 and above");
    }
    return plan;
  }
  if (plan.master_addr.empty()) {
    throw ConfigError(fmt::format("--node-rank {} needs --master-addr: where is node 0?", node_rank));
  }
  plan.role = Role::kAgent;
  plan.node_rank = node_rank;
  return plan;
}

}  // namespace tutti
