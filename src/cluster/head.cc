#include "cluster/head.h"

#include <fmt/format.h>
#include <openssl/rand.h>
#include <unistd.h>

#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "base/sha256.h"
#include "cluster/control_client.h"
#include "cluster/rank_link.h"
#include "cluster/units.h"

namespace tutti {
namespace {

constexpr auto kLookInterval = std::chrono::seconds(2);
constexpr auto kLookTimeout = std::chrono::seconds(2);

std::string random_secret() {
  uint8_t bytes[16];
  if (RAND_bytes(bytes, sizeof bytes) != 1) throw IoError("the system gives no random numbers");
  return to_hex(bytes);
}

RankGroup::Sender sender_to(const std::weak_ptr<RankProcesses>& here, int rank) {
  return [here, rank](FrameType type, std::string_view payload) {
    const auto processes = here.lock();
    if (processes == nullptr) throw CommError(fmt::format("rank {} has ended", rank), rank);
    processes->send(rank, type, payload);
  };
}

RankGroup::Sender sender_to(const std::shared_ptr<NodeSession>& session, int64_t epoch, int rank) {
  return [session, epoch, rank](FrameType type, std::string_view payload) {
    if (session->send(RankFrame{epoch, rank, Frame{type, std::string(payload)}})) return;
    throw CommError("the connection to its node is broken", rank);
  };
}

}  // namespace

Head::Head(HeadOptions options)
    : options_(std::move(options)), instance_(random_secret()), membership_(options_.engine.parallel.world_size(), options_.num_nodes) {
  const NodeSummary summary = summarize_node();
  const LocalAddress local = options_.advertised.empty() ? default_local_address(options_.interface)
                                                        : local_address_towards(options_.advertised, options_.interface);
  own_address_ = options_.advertised.empty() ? local.address : options_.advertised;
  own_interface_ = local.interface;
  NodeHello hello;
  hello.name = summary.name;
  hello.address = own_address_;
  hello.machine = summary.machine;
  if (options_.local_ranks > 0) {
    hello.first_rank = 0;
    hello.num_ranks = options_.local_ranks;
  } else {
    hello.node_rank = options_.num_nodes > 0 ? 0 : -1;
  }
  hello.cores = summary.cores;
  hello.processor = summary.processor;
  hello.memory_gib = summary.memory_gib;
  auto admitted = membership_.admit(hello, Clock::now());
  if (const auto* refusal = std::get_if<Refusal>(&admitted)) throw ConfigError(refusal->reason);
  self_ = std::get<MemberNode>(admitted);
  membership_.find(self_.id)->state = NodeState::kJoined;
  watch_ = std::thread([this] { watch(); });
}

Head::~Head() {
  stop_ranks("the head ends", true, std::chrono::seconds(2));
  server_.reset();
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  watch_.join();
}

bool Head::needs_other_nodes() const {
  std::lock_guard lock(mutex_);
  return !membership_.free_ranks().empty();
}

void Head::listen(const ClusterToken& token, const TlsIdentity& identity) {
  cluster_id_ = token.cluster_id();
  identity_ = identity;
  // A secret goes to a terminal only; in a log stands where it is kept.
  show_token_ = ::isatty(STDERR_FILENO) == 1;
  token_ = token.text();
  const auto kept = kept_token();
  if (kept && *kept == token) kept_token_file_ = token_path();
  ControlHandler& handler = *this;
  server_ = std::make_unique<ControlServer>(options_.control_port, identity, handler);
}

void Head::announce_wait(Deadline deadline, const char* flag) const {
  const std::vector<int> missing = membership_.free_ranks();
  if (missing.empty()) return;  // the last node is being checked
  const auto seconds = std::chrono::duration<double>(deadline.left()).count();
  const std::string time = seconds > 90 ? fmt::format("{:.0f} min", seconds / 60) : fmt::format("{:.0f} s", seconds);
  log::fact("waiting", "for {}, for {} ({}). On the other node type:", count_of(static_cast<int64_t>(missing.size()), "more rank"), time, flag);
  std::string port;
  if (options_.control_port != kDefaultControlPort) port = fmt::format(" --master-port {}", options_.control_port);
  const std::string token_flag = show_token_ ? " --token " + token_ : " --token-file FILE";
  log::continuation(fmt::format("tutti worker --master-ip {}{}{}", own_address_, port, token_flag));
  if (!show_token_) {
    const std::string place = kept_token_file_.empty() ? "" : " (here: " + kept_token_file_ + ")";
    log::continuation(fmt::format("FILE holds the cluster token{}; a worker that has joined before needs none", place));
  }
}

// A node that has joined, but has not passed its checks; "" when there is none.
std::string Head::unchecked_node() const {
  for (const auto& [id, node] : membership_.nodes()) {
    if (node.state == NodeState::kChecking) return node.name;
  }
  return "";
}

std::string Head::explain_missing(double waited, const char* flag) const {
  std::string have;
  for (const auto& [id, node] : membership_.nodes()) {
    have += fmt::format("{}{} on {}", have.empty() ? "" : ", ", node.ranks.size(), node.name);
  }
  std::string tried = membership_.nodes().size() > 1 ? "nobody else tried to join" : "nobody tried to join";
  if (!last_refusal_.empty()) tried = "the last that tried was refused: " + last_refusal_;
  if (const std::string unchecked = unchecked_node(); !unchecked.empty()) tried = unchecked + " has not shown its model files";
  return fmt::format(
      "need {}, have {} after {:.0f} s; {}. Is the worker running, does it reach {} port {}? Start `tutti worker` on the other nodes, "
      "which waits for a head, then this one again; {} gives them longer",
      count_of(membership_.world_size(), "rank"), have, waited, tried, own_address_, options_.control_port, flag);
}

// What another head at the address that should be this one's serves; nothing when there is none.
std::optional<std::string> Head::other_head() const {
  const Deadline deadline = Deadline::after(kLookTimeout);
  const Probe probe = probe_head(options_.advertised, options_.control_port, *identity_, deadline);
  if (probe.result == ProbeResult::kWrongToken) return "of another cluster";
  if (probe.result != ProbeResult::kOk) return std::nullopt;
  try {
    const std::string text = fetch_status(options_.advertised, options_.control_port, *identity_, deadline);
    const Json report = parse_json(text, "the other head's report");
    // Through an address that is translated it may be this very head.
    if (report.value("instance", instance_) == instance_) return std::nullopt;
    return "with " + report.value("model", std::string("a model"));
  } catch (const CommError&) {
    return std::nullopt;  // it has gone meanwhile
  }
}

// The same command on two nodes without --node-rank makes two heads, each of which would wait for the other.
void Head::look_for_another_head() const {
  const std::string& address = options_.advertised;
  if (address.empty() || !identity_ || is_local_address(address)) return;
  const auto who = other_head();
  if (!who) return;
  throw JoinError(fmt::format("two heads: {}:{} is not this node and has a head already ({}). Join it: --node-rank 1, or tutti "
                              "worker --master-ip {}",
                              address, options_.control_port, *who, address));
}

bool Head::wait_for_nodes(Deadline deadline, const char* flag, const std::function<bool()>& interrupted) {
  std::unique_lock lock(mutex_);
  if (membership_.complete()) return true;
  const auto begin = Clock::now();
  announce_wait(deadline, flag);
  auto next_look = begin;
  while (!membership_.complete()) {
    if (interrupted()) return false;
    if (Clock::now() >= next_look) {
      lock.unlock();
      look_for_another_head();
      lock.lock();
      next_look = Clock::now() + kLookInterval;
      continue;
    }
    const double waited = std::chrono::duration<double>(Clock::now() - begin).count();
    if (deadline.passed()) throw JoinError(explain_missing(waited, flag));
    if (waited > 2) {
      log::progress("waiting", fmt::format("for {}, {:.0f} s left", count_of(static_cast<int64_t>(membership_.free_ranks().size()), "more rank"),
                                           std::chrono::duration<double>(deadline.left()).count()));
    }
    changed_.wait_for(lock, std::chrono::milliseconds(200));
  }
  return true;
}

RankConfig Head::rank_config(int rank, const MemberNode& node, const std::string& secret) const {
  RankConfig config;
  config.rank = rank;
  config.epoch = epoch_;
  config.node_name = node.name;
  config.address = node.address;
  const CommConfig& comm = options_.engine.comm;
  config.port_min = comm.port_min > 0 ? comm.port_min : options_.control_port + 1;
  config.port_max = comm.port_max > 0 ? comm.port_max : std::min(options_.control_port + kDataPorts, kLastPort);
  config.secret = secret;
  config.engine = options_.engine;
  for (int r = 0; r < membership_.world_size(); ++r) {
    config.node_of_rank.push_back(fmt::format("{}#{}", membership_.node_of(r)->name, membership_.node_of(r)->id));
  }
  return config;
}

// The lock is for the plan alone: processes and nodes take their time, and whoever joins or asks for the status does not wait
// for them.
std::shared_ptr<RankGroup> Head::start_ranks() {
  const auto group = std::make_shared<RankGroup>(membership_.world_size());
  group->store_set(kVocabularyKey, options_.vocabulary);
  const auto processes = std::make_shared<RankProcesses>(RankProcesses::Callbacks{
      [group](int rank, Frame frame) { group->on_frame(rank, std::move(frame)); },
      [group](int rank, pid_t, const std::string& how) { group->on_exit(rank, how); }});
  std::vector<std::pair<int, std::string>> here;
  std::vector<std::pair<std::shared_ptr<NodeSession>, StartRanks>> elsewhere;
  std::shared_ptr<RankProcesses> earlier;
  {
    std::lock_guard lock(mutex_);
    if (!membership_.complete()) {  // since somebody waited for it
      const std::string unchecked = unchecked_node();
      throw CommError(unchecked.empty() ? "a node has left before its ranks were started"
                                        : unchecked + " has not shown its model files yet, its ranks are not started");
    }
    ++epoch_;
    const std::string secret = random_secret();
    MemberNode& self = *membership_.find(self_.id);
    const auto other = std::find_if(membership_.nodes().begin(), membership_.nodes().end(),
                                    [&](const auto& entry) { return entry.first != self_.id; });
    if (other != membership_.nodes().end()) {
      self.address = local_address_towards(other->second.address, options_.interface).address;
    }
    for (const auto& [id, node] : membership_.nodes()) {
      const bool is_here = id == self_.id;
      if (!is_here) elsewhere.emplace_back(sessions_.at(id), StartRanks{.epoch = epoch_});
      for (const int rank : node.ranks) {
        group->attach(rank, {node.name, 0}, is_here ? sender_to(processes, rank) : sender_to(sessions_.at(id), epoch_, rank));
        (is_here ? here : elsewhere.back().second.ranks).emplace_back(rank, to_text(rank_config(rank, node, secret)));
      }
    }
    group_ = group;
    earlier = std::exchange(local_ranks_, processes);
  }
  for (const auto& [rank, config] : here) group->set_pid(rank, processes->spawn(rank, config));
  for (const auto& [session, start] : elsewhere) session->send(start);  // a node that has left meanwhile is lost to the group
  return group;
}

void Head::stop_ranks(const std::string& reason, bool leave, std::chrono::nanoseconds grace) {
  std::map<int, std::shared_ptr<NodeSession>> sessions;
  std::shared_ptr<RankGroup> group;
  {
    std::lock_guard lock(mutex_);
    group = std::exchange(group_, nullptr);
    leaving_ = leaving_ || leave;
    sessions = sessions_;
  }
  StopRanks stop{epoch_, reason, leave};
  if (group) {
    if (const auto failure = group->failure()) {
      stop.failed = true;
      stop.reason = failure->message;
    }
    group->expect_end();
  }
  for (const auto& [id, session] : sessions) session->send(stop);
  if (local_ranks_) local_ranks_->stop(grace);
}

std::shared_ptr<RankGroup> Head::ranks() const {
  std::lock_guard lock(mutex_);
  return group_;
}

void Head::set_status_source(std::function<Json()> source) {
  std::lock_guard lock(status_mutex_);
  status_source_ = std::move(source);
}

void Head::on_leaving(std::function<bool(const std::string&)> callback) {
  std::lock_guard lock(mutex_);
  leaving_callback_ = std::move(callback);
}

std::vector<MemberNode> Head::members() const {
  std::lock_guard lock(mutex_);
  std::vector<MemberNode> members;
  for (const auto& [id, node] : membership_.nodes()) members.push_back(node);
  return members;
}

std::string Head::status_json() {
  Json report = Json::object();
  {
    std::lock_guard lock(mutex_);
    report["cluster"] = cluster_id_;
    report["instance"] = instance_;
    report["build"] = build_id();
    report["model"] = options_.engine.model;
    report["layout"] = options_.engine.parallel.describe();
    report["world_size"] = membership_.world_size();
    report["epoch"] = epoch_;
    report["nodes"] = Json::array();
    for (const auto& [id, node] : membership_.nodes()) {
      report["nodes"].push_back({{"name", node.name},
                                 {"address", node.address},
                                 {"state", node.state == NodeState::kChecking ? "checking" : group_ == nullptr ? "joined" : "ready"},
                                 {"ranks", node.ranks},
                                 {"processor", node.hello.processor},
                                 {"cores", node.hello.cores},
                                 {"memory_gib", node.hello.memory_gib}});
    }
  }
  std::lock_guard lock(status_mutex_);
  if (status_source_) report.update(status_source_());
  return dump_json(report);
}

}  // namespace tutti
