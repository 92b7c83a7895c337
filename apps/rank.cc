// `tutti rank`: the process of one rank, started by the head or by a node's agent. Never typed by people.
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>

#include "apps/commands.h"
#include "base/error.h"
#include "base/log.h"
#include "cluster/rank_link.h"
#include "comm/parallel_groups.h"
#include "runtime/worker.h"

namespace tutti {
namespace {

constexpr auto kProgressInterval = std::chrono::milliseconds(200);
constexpr auto kVocabularyTimeout = std::chrono::seconds(30);
constexpr auto kStartTimeout = std::chrono::minutes(30);  // the slowest rank's loading

CommOptions world_options(const RankConfig& config) {
  CommOptions world;
  world.rank = config.rank;
  world.size = config.world_size();
  world.epoch = static_cast<uint64_t>(config.epoch);
  world.nodes = config.node_of_rank;
  world.ranks_on_node = config.ranks_on_node();
  world.bind_address = config.address;
  world.port_min = config.port_min;
  world.port_max = config.port_max;
  world.secret = config.secret;
  world.link = config.engine.comm.transport == "ucx" ? LinkKind::kUcx : LinkKind::kTcp;
  world.tcp_streams = config.engine.comm.tcp_streams;
  world.comm_dtype = comm_dtype_from_name(config.engine.comm.dtype).value();
  world.timeout = std::chrono::duration_cast<std::chrono::nanoseconds>(
      std::chrono::duration<double>(config.engine.collective_timeout_s));
  for (int rank = 0; rank < world.size; ++rank) {
    const std::string& node = config.node_of_rank[static_cast<size_t>(rank)];
    world.labels.push_back("rank " + std::to_string(rank) + " (" + node.substr(0, node.rfind('#')) + ")");
  }
  return world;
}

ParallelGroups make_groups(const RankConfig& config, Store& store) {
  const ParallelConfig& parallel = config.engine.parallel;
  return make_parallel_groups(world_options(config), parallel.tp_group(config.rank), parallel.pp_group(config.rank), store);
}

// NCCL, which sums between nodes, adds in an order that depends on a message's size.
void require_sums_in_one_order(const RankConfig& config) {
  const std::vector<int> group = config.engine.parallel.tp_group(config.rank);
  const auto node_of = [&](int rank) { return config.node_of_rank[static_cast<size_t>(rank)]; };
  for (const int rank : group) {
    if (node_of(rank) == node_of(group[0])) continue;
    throw ConfigError("--batch-invariant: ranks " + std::to_string(group[0]) + " and " + std::to_string(rank) +
                      " sum through NCCL, as they are on two nodes, and its order of additions depends on the batch: keep the ranks of "
                      "--tensor-parallel-size on one node (--pipeline-parallel-size for the others), or leave --batch-invariant out");
  }
}

ParallelGroups make_groups_of_gpus(const RankConfig& config, Device device, void* stream, Store& store) {
  const ParallelConfig& parallel = config.engine.parallel;
  if (config.engine.batch_invariant) require_sums_in_one_order(config);
  DeviceCommOptions options;
  options.device = device;
  options.stream = stream;
  if (config.engine.disable_custom_all_reduce) {
    options.path = DeviceCommOptions::Path::kNccl;
    options.why_nccl = "--disable-custom-all-reduce";
  } else if (config.engine.batch_invariant) {
    options.path = DeviceCommOptions::Path::kCudaIpc;
    options.fuse = false;  // squares of a norm are added in an order that depends on the number of tokens
  }
  return make_device_groups(world_options(config), parallel.tp_group(config.rank), parallel.pp_group(config.rank), options, store);
}

Json loaded_report(const Worker& worker) {
  const MemoryReport memory = worker.memory();
  return {{"num_kv_blocks", worker.num_kv_blocks()}, {"weights", memory.weights},         {"kv_cache", memory.kv_cache},
          {"activations", memory.activations},       {"rotary", memory.rotary},
          {"graphs", memory.graphs},                 {"other", memory.other}};
}

// What is said about another rank says when it happened.
template <typename Body>
auto in_phase(const char* phase, const Body& body) {
  try {
    return body();
  } catch (const CommError& error) {
    throw CommError(std::string(phase) + ": " + error.what(), error.peer());
  }
}

// How far this rank has come with its start, for the head (apps/start_phases.h).
class StartReport {
 public:
  explicit StartReport(RankLink& link) : link_(link) {}
  void end_phase(const char* phase) {
    phases_.push_back({phase, log::seconds_since_start()});
    send();
  }
  void weights(int64_t done, int64_t total) {
    if (done < total && Clock::now() - sent_ < kProgressInterval) return;
    done_ = done;
    total_ = total;
    send();
  }
  const Json& phases() const { return phases_; }

 private:
  void send() {
    sent_ = Clock::now();
    link_.send_progress({{"done", done_}, {"total", total_}, {"phases", phases_}});
  }

  RankLink& link_;
  Json phases_ = Json::array();
  int64_t done_ = 0, total_ = 0;
  Clock::time_point sent_{};
};

void load(Worker& worker, RankLink& link, StartReport& report) {
  worker.on_phase([&](const char* phase) { report.end_phase(phase); });
  in_phase("loading", [&] {
    try {
      worker.load([&](int64_t done, int64_t total) { report.weights(done, total); });
    } catch (const IoError& error) {  // of the model's files: another start would end in the same way
      throw ConfigError(error.what());
    }
  });
  worker.on_phase({});
  Json loaded = loaded_report(worker);
  loaded["phases"] = report.phases();
  link.send_loaded(loaded);
  link.wait_start(Deadline::after(kStartTimeout));
}

// A GPU gets the next step while it computes one: between two of them it has nothing to wait for.
void run_steps(Worker& worker, RankLink& link) {
  int64_t expected = 1;
  while (true) {
    const bool busy = worker.num_started() > 0;
    std::optional<SchedulerOutput> step;
    if (worker.num_started() < ModelRunner::kMaxStarted) step = busy ? link.poll_step() : link.next_step();
    if (step) {
      if (step->step != expected) {
        throw IoError("step " + std::to_string(step->step) + " where step " + std::to_string(expected) + " was expected");
      }
      ++expected;
      worker.start(*step);
    } else if (!busy) {
      return;
    }
    if (worker.ready()) link.send_output(worker.finish());
  }
}

void serve(RankLink& link) {
  const RankConfig& config = link.config();
  StartReport report(link);
  report.end_phase("process");
  Worker worker(config.engine, config.rank, in_phase("connecting ranks", [&] { return make_groups(config, link.store()); }),
                config.ranks_on_node(), config.local_rank());
  report.end_phase("connect");
  worker.set_device_groups(
      [&](Device device, void* stream) { return make_groups_of_gpus(config, device, stream, link.store()); });
  worker.set_vocabulary([&] { return link.store().get(kVocabularyKey, Deadline::after(kVocabularyTimeout)); });
  struct EndWatch {
    RankLink& link;
    EndWatch(RankLink& l, Worker& worker) : link(l) {
      link.on_end([&worker](const std::string& reason) { worker.abort(reason); });
    }
    ~EndWatch() { link.on_end({}); }
  } watch(link, worker);
  load(worker, link, report);
  run_steps(worker, link);
}

}  // namespace

int run_rank(int parent_pid) {
  if (!die_with_parent(parent_pid)) return static_cast<int>(ExitCode::kClusterLost);
  ::signal(SIGPIPE, SIG_IGN);
  ::prctl(PR_SET_NAME, "tutti");  // it was started as /proc/self/exe, and would be called so in `top`
  RankLink link(RankLink::kInheritedFd);
  log::setup({.prefix = "rank " + std::to_string(link.config().rank) + ", " + link.config().node_name});
  try {
    serve(link);
    return static_cast<int>(ExitCode::kOk);
  } catch (const Error& e) {
    if (link.ended()) return static_cast<int>(ExitCode::kOk);  // freed by the end of the cluster, as asked
    const bool others = dynamic_cast<const CommError*>(&e) != nullptr;
    const bool config = dynamic_cast<const ConfigError*>(&e) != nullptr;
    link.send_failed(others ? "comm" : config ? "config" : "own", e.what());
    return static_cast<int>(e.exit_code());
  } catch (const std::exception& e) {
    link.send_failed("own", e.what());
    return static_cast<int>(ExitCode::kChecks);
  }
}

}  // namespace tutti
