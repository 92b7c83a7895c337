// `tutti worker`: gives this node's ranks to a head elsewhere, and to the next head after that one.
#include <fmt/format.h>

#include <optional>

#include "apps/commands.h"
#include "apps/flag_parser.h"
#include "apps/serve_options.h"
#include "apps/signals.h"
#include "apps/worker_health.h"
#include "base/error.h"
#include "base/log.h"
#include "cluster/launcher.h"
#include "cluster/node_agent.h"

namespace tutti {
int run_worker(const Arguments& arguments) {
  AgentOptions agent;
  std::string master_addr;
  int port = kDefaultControlPort;
  int tensor_parallel = 0;
  int pipeline_parallel = 0;
  bool debug = false;
  std::string log_format = "text";
  std::string host = "0.0.0.0";
  int health_port = 0;
  FlagParser p("tutti worker", "Joins the cluster of a head and runs the ranks it gives to this node. Model and flags come from the head.");
  p.value("--master-ip", &agent.head_address, "the head's address");
  p.value("--master-addr", &master_addr, "the same");
  p.value("--master-port", &port, "the head's control port (29500)");
  p.value("--token", &agent.token.token, "the cluster token; kept after the first join");
  p.value("--token-file", &agent.token.token_file, "a file that holds the cluster token");
  p.value("--model", &agent.model, "where this node has the model, if not where the head has it");
  p.value("--node-rank", &agent.node_rank, "this node's number, 0 = the head");
  p.value("--num-ranks", &agent.num_ranks, "most ranks to take");
  p.value("--network-interface", &agent.interface, "name or CIDR of the network between nodes");
  p.value("--tensor-parallel-size", &tensor_parallel, "must be the head's, when given");
  p.value("--pipeline-parallel-size", &pipeline_parallel, "must be the head's, when given");
  p.value("--host", &host, "where /health, /ready and /metrics of this node are served (0.0.0.0)");
  p.value("--port", &health_port, "of these (8001); 0 = not at all");
  p.toggle("--once", &agent.once, "end with the head");
  p.value("--log-format", &log_format, "text or json");
  p.toggle("--debug", &debug, "also show lines for developers");
  p.parse(arguments);
  log::setup({.format = parse_log_format(log_format), .debug = debug});
  if (agent.head_address.empty()) agent.head_address = master_addr;
  if (agent.head_address.empty()) throw ConfigError("where is the head? tutti worker --master-ip ADDRESS");
  agent.control_port = port;
  if (tensor_parallel > 0) agent.flags.push_back({"--tensor-parallel-size", std::to_string(tensor_parallel)});
  if (pipeline_parallel > 0) agent.flags.push_back({"--pipeline-parallel-size", std::to_string(pipeline_parallel)});
  Signals signals;
  log::fact("tutti", "{}", build_id());
  if (health_port < 0 || health_port > 65535) throw ConfigError(fmt::format("--port {}: expected 0 to 65535", health_port));
  if (!p.given("--port")) health_port = default_health_port(host, ". --port N serves them elsewhere");
  agent.health_port = health_port;
  NodeAgent node(std::move(agent), [&] { return signals.count(); });
  std::optional<WorkerHealth> health;
  if (health_port > 0) health.emplace(host, health_port, [&node] { return node.report(); });
  node.run();
  return static_cast<int>(ExitCode::kOk);
}

}  // namespace tutti
