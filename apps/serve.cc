// `tutti serve`: the head of a cluster with the API, or, started with --node-rank 1 and above, the agent of a node.
#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <thread>

#include "apps/cluster_start.h"
#include "apps/commands.h"
#include "apps/environment.h"
#include "apps/model_path.h"
#include "apps/serve_options.h"
#include "apps/served_model.h"
#include "apps/signals.h"
#include "apps/stats_log.h"
#include "apps/worker_health.h"
#include "base/error.h"
#include "base/log.h"
#include "cluster/network.h"
#include "cluster/node_agent.h"
#include "cluster/units.h"
#include "server/metrics.h"
#include "server/port_owner.h"
#include "server/server.h"
#include "tensor/nvml.h"

namespace tutti {
namespace {

constexpr auto kStopGrace = std::chrono::seconds(3);

std::chrono::nanoseconds seconds(double value) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<double>(value));
}

// One process a rank was started without a word about the layout: all of them share each layer.
void adopt_world_size(ServeOptions& options) {
  if (const std::string alone = ignored_variable(options.launch, environment); !alone.empty()) {
    log::note("{} is not used: one process a rank needs MASTER_ADDR, WORLD_SIZE and RANK", alone);
  }
  const auto world = world_size_of_environment(options.launch, environment);
  if (!world || options.parallel_given) return;
  options.engine.parallel.tensor_parallel_size = *world;
  for (Fact& flag : options.effective_flags) {
    if (flag.name == "--tensor-parallel-size") flag.value = std::to_string(*world);
  }
  log::note("WORLD_SIZE={} processes were started, one a rank: -tp {}", *world, *world);
}

int run_agent(const ServeOptions& options, const LaunchPlan& plan, Signals& signals) {
  AgentOptions agent;
  agent.head_address = plan.master_addr;
  agent.control_port = plan.master_port;
  agent.token = options.token;
  agent.node_rank = plan.node_rank;
  agent.first_rank = plan.first_rank;
  agent.num_ranks = plan.num_ranks;
  agent.interface = options.interface;
  // The same command on every node names the same model, each time as that node sees it.
  agent.model = find_model(options.engine.model, options.revision);
  agent.flags = options.cluster_flags;
  agent.once = true;
  // As `tutti worker` has it. --port is the API's, on the head; --host too, and it may be an address of the head.
  const std::string health_host = is_local_address(options.host) ? options.host : "0.0.0.0";
  agent.health_port = options.server.http.port == 0 ? 0 : default_health_port(health_host, "");
  const int health_port = agent.health_port;
  NodeAgent node(std::move(agent), [&] { return signals.count(); });
  std::optional<WorkerHealth> health;
  if (health_port > 0) health.emplace(health_host, health_port, [&node] { return node.report(); });
  node.run();
  return static_cast<int>(ExitCode::kOk);
}

// The API's port, or the folder of its socket, is checked before minutes of loading, not after.
void check_address(const ServerConfig& server) {
  const HttpConfig& http = server.http;
  if (!http.uds.empty()) {
    const std::filesystem::path folder = std::filesystem::absolute(http.uds).parent_path();
    if (!std::filesystem::is_directory(folder)) throw ConfigError(fmt::format("--uds {}: there is no folder {}", http.uds, folder.string()));
    if (::access(folder.c_str(), W_OK | X_OK) != 0) throw ConfigError(fmt::format("--uds {}: this user may not write to {}", http.uds, folder.string()));
  }
  if (http.port == 0 || !http.uds.empty()) return;
  if (port_is_free(http.host, http.port)) return;
  throw ConfigError(fmt::format("port {} is taken{}: --port {}, or end it", http.port, describe_port_owner(http.port), http.port + 1));
}

// Where the API is, who reaches it, and a command that works on this machine.
void say_address(const ServeOptions& options, const Server& server, const std::string& node_address) {
  const HttpConfig& http = options.server.http;
  const bool keys = !options.server.api_keys.empty();
  const std::string header = keys ? " -H 'Authorization: Bearer KEY'" : "";
  if (!http.uds.empty()) {
    log::continuation(fmt::format("API        Unix socket {}{}", http.uds, keys ? " (with a key)" : ""));
    log::continuation(fmt::format("try        curl --unix-socket {} http://localhost/v1/models{}", http.uds, header));
    return;
  }
  const auto url_at = [&](const std::string& host) {
    const bool v6 = host.find(':') != std::string::npos;
    return fmt::format("{}://{}{}{}:{}", http.tls.enabled() ? "https" : "http", v6 ? "[" : "", host, v6 ? "]" : "", server.port());
  };
  std::string url = server.address();
  std::string here = url;
  std::string who = keys ? " (with a key)" : "";
  if (http.host == "0.0.0.0" || http.host == "::") {
    url = url_at(node_address);
    here = url_at("127.0.0.1");
    who = keys ? " (all interfaces, with a key)" : " (all interfaces, without a key: --api-key KEY asks for one)";
  } else if (options.host.empty()) {
    who = " (this machine only; --host 0.0.0.0 --api-key KEY opens it)";
  }
  log::continuation(fmt::format("API        {}/v1{}", url, who));
  log::continuation(fmt::format("metrics    {}/metrics", url));
  if (http.tls.enabled()) {
    log::continuation(fmt::format("try        curl {}/v1/models{}", here, header));
  } else {
    log::continuation(fmt::format("try        tutti complete \"Hello\"{}{}", here == "http://127.0.0.1:8000" ? "" : " --url " + here,
                                  keys ? " --api-key KEY" : ""));
  }
}

void say_ready(const ServeOptions& options, const Server& server, const std::string& node_address, double waited) {
  const double total = log::seconds_since_start();
  const std::string wait = waited > 0.5 ? fmt::format(", {:.1f} s waiting for other nodes", waited) : "";
  log::fact("ready", "Application startup complete. {:.1f} s of work{}", total - waited, wait);
  say_address(options, server, node_address);
}

// "1 request runs", "41 requests run"
std::string running(const AsyncEngine& engine) {
  const int64_t open = engine.num_open();
  return count_of(open, "request") + (open == 1 ? " runs" : " run");
}

// Turns signals into a drain: the first lets running requests finish, the second ends now.
class Drain {
 public:
  // `ending` is set at the first signal.
  Drain(Signals& signals, Server& server, const AsyncEngine& engine, double timeout_s, std::atomic<bool>& ending)
      : ending_(ending),
        thread_([&signals, &server, &engine, timeout_s, this] { watch(signals, server, engine, timeout_s); }) {}
  ~Drain() {
    stop_ = true;
    thread_.join();
  }

 private:
  void watch(Signals& signals, Server& server, const AsyncEngine& engine, double timeout_s) {
    int count = 0;
    while (!stop_) {
      if (!signals.wait(Deadline::after(std::chrono::milliseconds(100)))) continue;
      ending_ = true;
      if (++count == 1) {
        log::fact("draining", "{}, no new ones, for up to {:.0f} s (--shutdown-timeout). Ctrl-C again ends now",
                  running(engine), timeout_s);
        server.drain(Deadline::after(seconds(timeout_s)), "the --shutdown-timeout is over");
      } else {
        server.drain(Deadline::after(std::chrono::nanoseconds(0)), "it was asked to end now, by a second signal");
      }
    }
  }

  std::atomic<bool>& ending_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

// `ready_at`: since the start of the process.
Json status_of(const AsyncEngine& engine, const std::shared_ptr<RankGroup>& group, double ready_at) {
  const EngineStats stats = engine.stats();
  Json rows = Json::array();
  const std::vector<RankGroup::Times> times = group ? group->times() : std::vector<RankGroup::Times>{};
  for (size_t rank = 0; rank < times.size(); ++rank) {
    const RankGroup::Place place = group->place(static_cast<int>(rank));
    const RankGroup::Times& t = times[rank];
    rows.push_back({{"rank", rank}, {"node", place.node}, {"pid", place.pid}, {"steps", t.steps},
                    {"total_seconds", t.total}, {"comm_seconds", t.comm}, {"comm_bytes", t.comm_bytes},
                    {"pp_comm_seconds", t.pp_comm}, {"pp_comm_bytes", t.pp_comm_bytes}});
  }
  return {{"state", engine.draining() ? "draining" : !stats.healthy ? "lost" : group ? "ready" : "degraded"},
          {"uptime_s", log::seconds_since_start() - ready_at},
          {"running", stats.num_running},
          {"waiting", stats.num_waiting},
          {"prompt_tokens", stats.prompt_tokens},
          {"generation_tokens", stats.generation_tokens},
          {"steps", stats.steps},
          {"step_seconds", stats.step_seconds},
          {"compute_seconds", stats.compute_seconds},
          {"comm_seconds", stats.comm_seconds},
          {"host_seconds", stats.host_seconds},
          {"comm_bytes", stats.comm_bytes},
          {"pp_comm_seconds", stats.pp_comm_seconds},
          {"pp_comm_bytes", stats.pp_comm_bytes},
          {"bubble_seconds", stats.bubble_seconds},
          {"slowest_rank", stats.slowest_rank},
          {"kv_blocks_total", stats.kv_blocks_total},
          {"kv_blocks_used", stats.kv_blocks_used},
          {"prefix_queries", stats.prefix_cache_queries},
          {"prefix_hits", stats.prefix_cache_hits},
          {"preemptions", stats.num_preemptions},
          {"ranks", rows}};
}

// What the head's threads call in the objects of a running server, for as long as this lives: an engine that has failed
// leaves with an exception.
class HeadCallbacks {
 public:
  HeadCallbacks(Head& head, std::function<Json()> status, std::function<bool(const std::string&)> leaving) : head_(head) {
    head_.set_status_source(std::move(status));
    head_.on_leaving(std::move(leaving));
  }
  ~HeadCallbacks() {
    head_.on_leaving({});
    head_.set_status_source({});
  }

 private:
  Head& head_;
};

// Rows of /metrics that only the head of the ranks knows.
std::string rank_metrics(const std::shared_ptr<RankGroup>& group) {
  if (group == nullptr) return "";
  const RankGroup& ranks = *group;
  const std::vector<RankGroup::Times> times = ranks.times();
  std::string text;
  const auto counter = [&](const char* name, const char* help, const auto& value) {
    text += fmt::format("# HELP {0} {1}\n# TYPE {0} counter\n", name, help);
    for (int rank = 0; rank < ranks.world_size(); ++rank) {
      text += fmt::format("{}{{rank=\"{}\",node=\"{}\"}} {}\n", name, rank, ranks.place(rank).node,
                          value(times[static_cast<size_t>(rank)]));
    }
  };
  counter("tutti:rank_step_seconds_total", "Time of all steps.", [](const auto& t) { return t.total; });
  counter("tutti:rank_compute_seconds_total", "Of that, computing.", [](const auto& t) { return t.compute; });
  counter("tutti:rank_comm_seconds_total", "Of that, inside collectives.", [](const auto& t) { return t.comm; });
  counter("tutti:rank_comm_bytes_total", "Moved in collectives.", [](const auto& t) { return t.comm_bytes; });
  counter("tutti:rank_pp_comm_seconds_total", "Of comm_seconds, between pipeline stages.", [](const auto& t) { return t.pp_comm; });
  counter("tutti:rank_pp_comm_bytes_total", "Of comm_bytes, between pipeline stages.", [](const auto& t) { return t.pp_comm_bytes; });
  text += "# HELP tutti:rank_memory_bytes Who holds a rank's memory, since it has loaded.\n# TYPE tutti:rank_memory_bytes gauge\n";
  const std::vector<Json> loaded = ranks.loaded();
  for (int rank = 0; rank < ranks.world_size(); ++rank) {
    for (const char* holder : {"weights", "kv_cache", "activations", "rotary", "graphs", "other"}) {
      text += fmt::format("tutti:rank_memory_bytes{{rank=\"{}\",node=\"{}\",holder=\"{}\"}} {}\n", rank, ranks.place(rank).node, holder,
                          loaded[static_cast<size_t>(rank)].is_object() ? loaded[static_cast<size_t>(rank)].value(holder, int64_t{0}) : 0);
    }
  }
  return text;
}

int run_head(ServeOptions& options, const LaunchPlan& plan, Signals& signals) {
  check_address(options.server);
  ServedModel model = open_served_model(options, local_rank_count(plan, options.engine.parallel));
  std::atomic<bool> serving{false};
  std::atomic<bool> ending{false};  // somebody has asked for the end while we served
  Cluster cluster = start_cluster(options, plan, model, true, [&] { return serving ? ending.load() : signals.interrupted(); });
  if (cluster.executor == nullptr) {
    log::fact("ended", "as asked, before it was ready");
    return static_cast<int>(ExitCode::kOk);
  }

  nvml::Monitor gpus(options.engine.device == "cuda" ? nvml::library() : nullptr);
  Metrics metrics(options.engine, model.info.served_names.front(), options.server.metrics_prefixes);
  metrics.add_source([&head = *cluster.head] { return rank_metrics(head.ranks()); });
  metrics.add_source([&gpus] { return gpus.metrics(); });
  AsyncEngine engine(options.engine, model.info.eos_token_ids, *cluster.executor, metrics);
  Server server(options.server, model.info, engine, metrics, *model.tokenizer, *model.chat_template);
  say_ready(options, server, cluster.head->self().address, cluster.waited_s);
  const double ready_at = log::seconds_since_start();
  std::optional<StatsLog> stats_log;
  if (options.log_stats) stats_log.emplace(engine);
  log::use_time_of_day();
  std::string leaver;
  {
    const HeadCallbacks callbacks(
        *cluster.head, [&] { return status_of(engine, cluster.head->ranks(), ready_at); },
        [&](const std::string& node) {
          // Another node may take its place while requests wait, as for one that is lost without a word.
          if (options.recovery_wait_s > 0 && !ending) return false;
          log::fact("draining", "{} wants to leave: {}, no new ones, for up to {:.0f} s (--shutdown-timeout)", node,
                    running(engine), options.shutdown_timeout_s);
          leaver = node;
          server.drain(Deadline::after(seconds(options.shutdown_timeout_s)), "the --shutdown-timeout is over");
          return true;
        });
    serving = true;
    Drain drain(signals, server, engine, options.shutdown_timeout_s, ending);
    server.run();
  }
  stats_log.reset();
  cluster.head->stop_ranks(leaver.empty() ? "the head was asked to end" : leaver + " left", true, kStopGrace);
  const std::string requests = server.num_aborted() == 0 ? "all requests are answered"
                                                         : count_of(server.num_aborted(), "request") + " ended with an error";
  if (!leaver.empty()) throw CommError(fmt::format("{} left, {}; this head cannot serve without its ranks", leaver, requests));
  log::fact("ended", "{}, all ranks have ended", requests);
  return static_cast<int>(ExitCode::kOk);
}

}  // namespace

int run_serve(const Arguments& arguments) {
  Signals signals;  // first: looking for GPUs may start threads of the driver
  ServeOptions options = parse_serve_options(arguments);
  log::setup(options.log);
  log::fact("tutti", "{}", build_id());
  for (const std::string& note : options.notes) log::note("{}", note);
  adopt_world_size(options);
  const LaunchPlan plan = plan_launch(options.launch, options.engine.parallel, environment);
  return plan.role == Role::kAgent ? run_agent(options, plan, signals) : run_head(options, plan, signals);
}

}  // namespace tutti
