#include "apps/cluster_start.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <optional>

#include "apps/start_phases.h"
#include "base/error.h"
#include "base/log.h"
#include "cluster/network.h"
#include "cluster/units.h"
#include "grammar/vocabulary.h"
#include "runtime/rank_memory.h"
#include "server/port_owner.h"

namespace tutti {
namespace {

constexpr double kGiB = 1 << 30;
constexpr auto kLoadPatience = std::chrono::minutes(5);
constexpr auto kProgressInterval = std::chrono::milliseconds(500);
constexpr auto kStopGrace = std::chrono::seconds(3);

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

std::chrono::nanoseconds to_nanoseconds(double seconds) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<double>(seconds));
}

int64_t number(const Json& json, const char* key) {
  return json.is_object() && json.contains(key) && json[key].is_number() ? json[key].get<int64_t>() : 0;
}

// "[##########-------------]  44%  207.0 of 470.2 GB  26.9 GB/s  10 s left  last: rank 12, node2"
std::string weights_bar(const std::vector<Json>& progress, double seconds, const RankGroup& ranks) {
  double done = 0;
  double total = 0;
  size_t slowest = 0;
  double slowest_share = 2;
  for (size_t rank = 0; rank < progress.size(); ++rank) {
    const auto d = static_cast<double>(number(progress[rank], "done"));
    const auto t = static_cast<double>(number(progress[rank], "total"));
    done += d;
    total += t;
    const double share = t > 0 ? d / t : 0;
    if (share < slowest_share) {
      slowest_share = share;
      slowest = rank;
    }
  }
  constexpr int kWidth = 23;
  const int filled = static_cast<int>(done / total * kWidth);
  const double rate = done / std::max(seconds, 1e-3);
  return fmt::format("[{:#<{}}{:-<{}}] {:3.0f}%  {} of {}  {}/s  {:.0f} s left  last: rank {}, {}", "", filled, "",
                     kWidth - filled, done / total * 100, format_bytes(done), format_bytes(total), format_bytes(rate),
                     (total - done) / std::max(rate, 1.0), slowest, ranks.place(static_cast<int>(slowest)).node);
}

// The most that any rank holds of something.
double most_gib(const std::vector<Json>& loaded, const char* key) {
  int64_t most = 0;
  for (const Json& report : loaded) most = std::max(most, number(report, key));
  return static_cast<double>(most) / kGiB;
}

// "0.30, 0.16" when ranks hold clearly different parts, as --tensor-split asks for; "" otherwise.
std::string uneven_weights(const std::vector<Json>& loaded) {
  std::string text;
  double least = std::numeric_limits<double>::max();
  for (const Json& report : loaded) {
    const double weights = static_cast<double>(number(report, "weights")) / kGiB;
    least = std::min(least, weights);
    text += fmt::format("{}{:.2f}", text.empty() ? "" : ", ", weights);
  }
  return most_gib(loaded, "weights") > 1.2 * least ? text : "";
}

void say_memory(const std::vector<Json>& loaded, const EngineConfig& engine, int64_t num_blocks) {
  const double weights = most_gib(loaded, "weights");
  const double kv = most_gib(loaded, "kv_cache");
  const double workspace = most_gib(loaded, "activations") + most_gib(loaded, "rotary");
  if (engine.device == "cpu") {
    log::fact("memory", "{:.2f} GiB a rank: weights {:.2f}, workspace {:.2f}, KV {:.2f} (pages count when they are used)",
              weights + kv + workspace, weights, workspace, kv);
  } else {
    const double graphs = most_gib(loaded, "graphs");
    const double other = most_gib(loaded, "other");
    log::fact("memory", "{:.2f} GiB a GPU: weights {:.2f}, activations {:.2f}, KV {:.2f}, graphs {:.2f}, driver and libraries {:.2f}",
              weights + kv + workspace + graphs + other, weights, workspace, kv, graphs, other);
  }
  if (const std::string shares = uneven_weights(loaded); !shares.empty()) log::continuation("weights by rank: " + shares + " GiB");
  const int64_t tokens = num_blocks * engine.cache.block_size;
  const int64_t length = engine.scheduler.max_model_len;
  log::continuation(fmt::format("Available KV cache memory: {:.2f} GiB", kv));
  log::continuation(fmt::format("GPU KV cache size: {} tokens", group_digits(tokens)));
  log::continuation(fmt::format("Maximum concurrency for {} tokens per request: {:.2f}x", group_digits(length),
                                static_cast<double>(tokens) / static_cast<double>(length)));
  if (tokens < length) {
    log::warning("requests of more than {0} tokens are refused, although --max-model-len is {1}: give the KV cache more memory, or say "
                 "--max-model-len {0}. Going on",
                 tokens, length);
  }
}

// Pages of the cache count when they are used: what does not fit is found when it is too late. On GPUs it is measured.
void warn_of_kv(const std::vector<Json>& loaded, const std::vector<std::string>& nodes) {
  int64_t kv = 0;
  int64_t ranks = 0;
  for (size_t rank = 0; rank < loaded.size(); ++rank) {
    if (nodes[rank] != nodes[0]) continue;  // rank 0 is on this node
    kv += number(loaded[rank], "kv_cache");
    ++ranks;
  }
  const int64_t available = available_memory();
  if (kv <= available) return;
  const int64_t fits = std::max<int64_t>(1, available / ranks * 9 / 10 >> 20);
  log::warning("the KV cache may grow to {:.1f} GiB on this node, which has {:.1f} GiB free: when they are used up, the kernel "
               "kills a rank. --kv-cache-memory-bytes {}M, of each rank, fits. Going on",
               static_cast<double>(kv) / kGiB, static_cast<double>(available) / kGiB, fits);
}

void say_node(const Head& head, const EngineConfig& engine) {
  const MemberNode& self = head.self();
  log::fact(self.name, "{} ({}), {} cores ({}), {:.1f} GiB; {} of {} here", self.address, head.interface(),
            self.hello.cores, self.hello.processor, self.hello.memory_gib, self.ranks.size(), count_of(engine.parallel.world_size(), "rank"));
}

HeadOptions head_options(const ServeOptions& options, const LaunchPlan& plan, const ServedModel& model) {
  HeadOptions head;
  head.engine = options.engine;
  head.num_nodes = plan.num_nodes;
  head.local_ranks = plan.local_ranks;
  head.advertised = plan.master_addr;
  head.interface = options.interface;
  head.control_port = plan.master_port;
  head.flags = options.effective_flags;
  for (Fact& flag : head.flags) {
    if (flag.name == "--nnodes" && plan.num_nodes > 1) flag.value = std::to_string(plan.num_nodes);
  }
  head.model_files = model.files;
  head.vocabulary = grammar::Vocabulary::to_bytes(token_texts(*model.tokenizer));
  head.shutdown_timeout_s = options.shutdown_timeout_s;
  return head;
}

// For a head beside the one that has `port`: neither its control port nor its data ports are of that one.
int other_control_port(int port) {
  for (int other = port + kDataPorts + 1; other + kDataPorts <= kLastPort; other += kDataPorts + 1) {
    if (port_is_free("0.0.0.0", other)) return other;
  }
  return kDefaultControlPort;
}

// The system's words when nobody can listen there, which the control channel does not pass on.
std::string why_no_listener(int port) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return std::strerror(errno);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  const bool open = ::bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0 && ::listen(fd, 1) == 0;
  const std::string reason = open ? "" : std::strerror(errno);
  ::close(fd);
  return reason;
}

void open_control_port(Head& head, const ServeOptions& options, int port) {
  const ClusterToken token = head_token(options.token);
  try {
    head.listen(token, issue_identity(token));
  } catch (const ConfigError&) {
    const std::string owner = describe_port_owner(port), reason = why_no_listener(port);
    if (!reason.empty() && reason != std::strerror(EADDRINUSE)) throw ConfigError(fmt::format("--master-port {} cannot be opened: {}", port, reason));
    if (reason.empty() && owner.empty()) {
      throw ConfigError(fmt::format("--master-port {} cannot be opened, although nobody has it: are descriptors short (ulimit -n)?", port));
    }
    throw ConfigError(fmt::format("port {} is taken{}: --master-port {}, or end it", port, owner, other_control_port(port)));
  }
}

std::vector<std::string> nodes_of(const RankGroup& ranks) {
  std::vector<std::string> nodes;
  for (int rank = 0; rank < ranks.world_size(); ++rank) nodes.push_back(ranks.place(rank).node);
  return nodes;
}

// While any rank still reads weights it is about bytes, before and after that about ranks.
void say_progress(const std::vector<Json>& progress, double seconds, const RankGroup& ranks) {
  const auto reading = [](const Json& report) { return number(report, "done") < number(report, "total"); };
  if (std::any_of(progress.begin(), progress.end(), reading)) {
    log::progress("weights", weights_bar(progress, seconds, ranks));
  } else {
    log::progress("start", fmt::format("{}, {:.0f} s", awaited_rank(progress, nodes_of(ranks)), seconds));
  }
}

// Waits until all ranks have loaded, says what they hold, settles what depends on that in `engine`, lets them begin. Nothing
// when interrupted.
std::optional<ExecutorInfo> load_ranks(RankGroup& ranks, EngineConfig& engine, const std::function<bool()>& interrupted) {
  const auto begin = Clock::now();
  const std::vector<Json> loaded = ranks.wait_loaded(kLoadPatience, kProgressInterval, [&](const auto& progress) {
    const double seconds = seconds_since(begin);
    if (seconds > 2) say_progress(progress, seconds, ranks);
    return !interrupted();
  });
  if (loaded.empty()) return std::nullopt;
  int64_t num_blocks = std::numeric_limits<int64_t>::max();
  int64_t bytes = 0;
  for (const Json& report : loaded) {
    num_blocks = std::min(num_blocks, number(report, "num_kv_blocks"));
    bytes += number(report, "weights");
  }
  log::fact("weights", "{} on {} in {:.1f} s", format_bytes(static_cast<double>(bytes)),
            count_of(static_cast<int64_t>(loaded.size()), "rank"), seconds_since(begin));
  if (ranks.world_size() > 1) log::fact("start", "slowest ranks: {}", slowest_ranks(loaded, nodes_of(ranks)));
  fit_max_model_len(engine.scheduler, num_blocks * engine.cache.block_size);
  say_memory(loaded, engine, num_blocks);
  if (engine.device == "cpu") warn_of_kv(loaded, nodes_of(ranks));
  ranks.send_all(FrameType::kStart, dump_json({{"num_kv_blocks", num_blocks}}));
  const int stages = engine.parallel.pipeline_parallel_size;
  return ExecutorInfo{.num_kv_blocks = num_blocks, .pipeline_stages = stages, .max_steps_in_flight = stages + 1};
}

// One try to form the cluster again. Nothing when interrupted; throws when the others do not come or fail again.
std::shared_ptr<RankGroup> reform(Head& head, const ServeOptions& options, int64_t num_blocks, Deadline deadline,
                                  const std::function<bool()>& interrupted) {
  if (!head.wait_for_nodes(deadline, "--recovery-wait", interrupted)) return nullptr;
  auto ranks = head.start_ranks();
  EngineConfig engine = options.engine;
  const auto info = load_ranks(*ranks, engine, interrupted);
  if (!info) return nullptr;
  if (info->num_kv_blocks < num_blocks) {
    throw DeviceError(fmt::format("the ranks now hold {} KV blocks, {} before", info->num_kv_blocks, num_blocks));
  }
  return ranks;
}

// On the engine thread, whose requests wait meanwhile: stops what is left of the ranks, waits for the lost ones (or a
// spare node) and starts all again. Nothing when that did not work out in time.
std::shared_ptr<RankGroup> recover_ranks(Head& head, const ServeOptions& options, int64_t num_blocks,
                                         const std::string& reason, const std::function<bool()>& interrupted) {
  const auto begin = Clock::now();
  const Deadline deadline = Deadline::after(to_nanoseconds(options.recovery_wait_s));
  log::warning("{}. Requests wait, for {:.0f} s (--recovery-wait); streams get a keep-alive", reason, options.recovery_wait_s);
  while (!interrupted()) {
    head.stop_ranks(reason, false, kStopGrace);
    try {
      auto ranks = reform(head, options, num_blocks, deadline, interrupted);
      if (ranks == nullptr) break;
      log::fact("ready", "{} again: requests go on from the tokens they have, out for {:.1f} s",
                options.engine.parallel.describe(), seconds_since(begin));
      return ranks;
    } catch (const Error& e) {
      const bool of_ranks = dynamic_cast<const CommError*>(&e) != nullptr || dynamic_cast<const ConfigError*>(&e) != nullptr;
      if (deadline.passed() || !of_ranks) {
        log::error("no recovery: {}", e.what());
        return nullptr;
      }
      log::warning("the recovery failed and is tried again: {}", e.what());
    }
  }
  return nullptr;
}

}  // namespace

int local_rank_count(const LaunchPlan& plan, const ParallelConfig& parallel) {
  if (plan.local_ranks > 0) return plan.local_ranks;
  return static_cast<int>(Membership(parallel.world_size(), plan.num_nodes).share_of(0).size());
}

Cluster start_cluster(ServeOptions& options, const LaunchPlan& plan, ServedModel& model, bool control_port,
                      const std::function<bool()>& interrupted) {
  Cluster cluster;
  cluster.head = std::make_unique<Head>(head_options(options, plan, model));
  Head& head = *cluster.head;
  say_node(head, options.engine);
  const bool others = head.needs_other_nodes();
  if (!options.launch.nnodes && plan.num_nodes > 1) {
    log::note("{} ranks and {} GPUs here: as with --nnodes {}, the others are for nodes like this one", options.engine.parallel.world_size(),
              options.launch.gpus, plan.num_nodes);
  }
  if (others || control_port) open_control_port(head, options, plan.master_port);
  const auto wait_begin = Clock::now();
  const Deadline ready_by = Deadline::after(to_nanoseconds(options.ready_timeout_s));
  if (others && !head.wait_for_nodes(ready_by, "--ready-timeout", interrupted)) return cluster;
  cluster.waited_s = seconds_since(wait_begin);
  if (others) log::fact("layout", "{} over {} nodes", options.engine.parallel.describe(), head.members().size());

  const auto ranks = head.start_ranks();
  const auto info = load_ranks(*ranks, options.engine, interrupted);
  if (!info) return cluster;
  model.info.max_model_len = options.engine.scheduler.max_model_len;
  ClusterExecutor::Recover recover;
  if (options.recovery_wait_s > 0) {
    recover = [&head, &options, blocks = info->num_kv_blocks, interrupted](const std::string& reason) {
      return recover_ranks(head, options, blocks, reason, interrupted);
    };
  }
  cluster.executor = std::make_unique<ClusterExecutor>(ranks, *info, std::move(recover));
  return cluster;
}

}  // namespace tutti
