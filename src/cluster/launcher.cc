#include "cluster/launcher.h"

#include <fmt/format.h>

#include <vector>

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

// What is said of the layout by the environment, where no flag says it.
struct Variables {
  std::vector<std::string> given;    // "RANK=1"
  std::vector<std::string> missing;  // "MASTER_ADDR"
};

Variables launch_variables(const LaunchFlags& flags, const std::function<std::string(const char*)>& environment) {
  Variables variables;
  if (flags.nnodes || flags.node_rank || !flags.master_addr.empty()) return variables;
  for (const char* name : {"MASTER_ADDR", "WORLD_SIZE", "RANK"}) {
    const std::string value = environment(name);
    (value.empty() ? variables.missing : variables.given).push_back(value.empty() ? name : fmt::format("{}={}", name, value));
  }
  return variables;
}

// One of the three alone is another program's, as of a batch system; two are a start of ranks that has lost the third, and
// serving alone would answer, only not with the ranks that were asked for. A world of one process is served alone anyway.
void require_all_variables(const LaunchFlags& flags, const std::function<std::string(const char*)>& environment) {
  const Variables variables = launch_variables(flags, environment);
  if (variables.given.size() != 2 || environment("WORLD_SIZE") == "1") return;
  throw ConfigError(fmt::format(
      "{} and {} are set, but not {}: one process a rank needs MASTER_ADDR, WORLD_SIZE and RANK. Set {} too, or unset the others (or "
      "say --nnodes 1) to run without them",
      variables.given[0], variables.given[1], variables.missing[0], variables.missing[0]));
}

// A node whose GPUs are fewer than the ranks is one of several that are like it.
int nodes_for_gpus(const LaunchFlags& flags, const ParallelConfig& parallel) {
  return flags.gpus > 0 ? (parallel.world_size() + flags.gpus - 1) / flags.gpus : 1;
}

}  // namespace

std::optional<int> world_size_of_environment(const LaunchFlags& flags, const std::function<std::string(const char*)>& environment) {
  const Variables variables = launch_variables(flags, environment);
  if (variables.given.empty() || !variables.missing.empty()) return std::nullopt;
  return to_number(environment("WORLD_SIZE"), "WORLD_SIZE");
}

std::string ignored_variable(const LaunchFlags& flags, const std::function<std::string(const char*)>& environment) {
  const Variables variables = launch_variables(flags, environment);
  return variables.given.size() == 1 ? variables.given.front() : "";
}

LaunchPlan plan_launch(const LaunchFlags& flags, const ParallelConfig& parallel,
                       const std::function<std::string(const char*)>& environment) {
  require_all_variables(flags, environment);
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
