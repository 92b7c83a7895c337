#include "cluster/node_agent.h"

#include <fmt/format.h>

#include <thread>

#include "base/error.h"
#include "base/json.h"
#include "base/log.h"
#include "cluster/membership.h"
#include "cluster/model_files.h"
#include "cluster/network.h"
#include "cluster/units.h"

namespace tutti {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr auto kRetryInterval = seconds(2);
constexpr auto kStillWaiting = seconds(9);  // no line says so before
constexpr auto kHeartbeatInterval = milliseconds(500);
constexpr auto kHeadSilence = seconds(6);
constexpr auto kConnectTimeout = seconds(5);
constexpr auto kStopGrace = seconds(3);
constexpr auto kLeavePatience = seconds(60);  // beyond the time that the head gives running requests

}  // namespace

NodeAgent::NodeAgent(AgentOptions options, std::function<int()> signals)
    : options_(std::move(options)), signals_(std::move(signals)), summary_(summarize_node()) {}

void NodeAgent::announce_wait(const std::string& why) {
  const std::string text = fmt::format("for the head at {}:{} ({}), trying every 2 s without end", options_.head_address,
                                       options_.control_port, why);
  const auto now = Clock::now();
  if (waiting_for_.empty()) waiting_since_ = now;
  if (text != waiting_for_) {
    log::line("waiting", text);
    waiting_for_ = text;
    waiting_said_ = now;
  } else if (now - waiting_said_ > kStillWaiting) {
    log::progress("waiting", fmt::format("{:.0f} s {}", std::chrono::duration<double>(now - waiting_since_).count(), text));
  }
}

void NodeAgent::pause(milliseconds duration) {
  const Deadline deadline = Deadline::after(duration);
  while (!deadline.passed() && signals_() == 0) std::this_thread::sleep_for(milliseconds(100));
}

// The identity of the token. Nothing when there is no token yet: the head, on this machine, may be about to make it.
std::optional<TlsIdentity> NodeAgent::find_identity() {
  if (identity_) return identity_;
  token_ = worker_token(options_.token, options_.head_address);
  const bool here = is_local_address(options_.head_address);
  const bool head_listens = !token_ && here && any_head_answers();
  if (head_listens) token_ = worker_token(options_.token, options_.head_address);  // a head makes it before it listens
  if (!token_ && head_listens) {
    throw ConfigError(fmt::format(
        "no cluster token for the head that listens at {}:{}: it was given one, or runs as another user, for it is not in {}. Type "
        "the head's --token TOKEN, --token-file FILE or set TUTTI_CLUSTER_TOKEN",
        options_.head_address, options_.control_port, token_path()));
  }
  if (!token_ && !here) {
    throw ConfigError(fmt::format(
        "no cluster token for {}: type --token TOKEN, --token-file FILE or set TUTTI_CLUSTER_TOKEN. `tutti token` on "
        "the head prints it",
        options_.head_address));
  }
  if (!token_) return std::nullopt;
  identity_ = issue_identity(*token_);
  return identity_;
}

// A head is there, of whatever token.
bool NodeAgent::any_head_answers() const {
  const Deadline deadline = Deadline::after(kConnectTimeout);
  std::string reason;
  if (!connect_tcp(options_.head_address, options_.control_port, deadline, &reason)) return false;
  const TlsIdentity stranger = issue_identity(ClusterToken::generate());
  return probe_head(options_.head_address, options_.control_port, stranger, deadline).result == ProbeResult::kWrongToken;
}

bool NodeAgent::head_answers(const TlsIdentity& identity) {
  const Probe probe = probe_head(options_.head_address, options_.control_port, identity, Deadline::after(kConnectTimeout));
  switch (probe.result) {
    case ProbeResult::kOk:
      return true;
    case ProbeResult::kWrongToken:
      throw JoinError(fmt::format("refused by {}: wrong token, the cluster token differs. `tutti token` on the head prints "
                                  "the right one",
                                  options_.head_address));
    case ProbeResult::kNotTutti:
      announce_wait("what listens there is not a tutti head: " + probe.detail);
      return false;
    case ProbeResult::kRefused:
      break;
  }
  announce_wait(probe.detail);
  return false;
}

void NodeAgent::run() {
  while (signals_() == 0) {
    const auto identity = find_identity();
    if (!identity) announce_wait("and for its token: there is none on this machine yet");
    if (!identity || !head_answers(*identity)) {
      pause(kRetryInterval);
      continue;
    }
    const Outcome outcome = serve_head(*identity);
    if (outcome == Outcome::kLeft || (options_.once && outcome == Outcome::kHeadEnded)) return;
    if (options_.once && (outcome == Outcome::kLost || outcome == Outcome::kClusterFailed)) {
      throw CommError("the cluster was lost, this node leaves");
    }
    if (outcome == Outcome::kRetry) pause(kRetryInterval);
  }
}

NodeAgent::Outcome NodeAgent::serve_head(const TlsIdentity& identity) {
  const LocalAddress address = local_address_towards(options_.head_address, options_.interface);
  Queue<Event> events;
  try {
    client_ = std::make_unique<ControlClient>(
        options_.head_address, options_.control_port, identity, Deadline::after(kConnectTimeout),
        ControlClient::Callbacks{
            [&](HeadMessage message) {
              // Steps go straight to their rank, on the client's thread.
              if (const auto* frame = std::get_if<RankFrame>(&message)) return forward_to_rank(*frame);
              events.push(std::move(message));
            },
            [&](std::string why) { events.push(Gone{std::move(why)}); }});
  } catch (const CommError& e) {
    announce_wait(e.what());
    return Outcome::kRetry;
  }
  last_heard_ = Clock::now();
  const bool known = own_address_ == address.address;  // it has been said, before an earlier try
  own_address_ = address.address;
  NodeHello hello{.name = summary_.name,
                  .address = address.address,
                  .machine = summary_.machine,
                  .node_rank = options_.node_rank,
                  .first_rank = options_.first_rank,
                  .num_ranks = options_.num_ranks,
                  .cores = summary_.cores,
                  .processor = summary_.processor,
                  .memory_gib = summary_.memory_gib,
                  .facts = comparable_facts(),
                  .flags = options_.flags};
  if (!known) {
    log::fact(summary_.name, "{} ({}, the route to {}), {} cores, {:.1f} GiB", address.address, address.interface,
              options_.head_address, summary_.cores, summary_.memory_gib);
  }
  client_->send(hello);
  struct Cleanup {
    NodeAgent& agent;
    ~Cleanup() {
      agent.joined_ = false;
      agent.stop_ranks("this node leaves");
      agent.replace_ranks(nullptr);  // its last words go through the client
      agent.client_.reset();
    }
  } cleanup{*this};
  return serve_events(events);
}

NodeAgent::Outcome NodeAgent::serve_events(Queue<Event>& events) {
  while (true) {
    if (wants_to_leave()) return Outcome::kLeft;
    auto event = events.pop(Deadline::after(kHeartbeatInterval));
    heartbeat();
    if (!event) {
      if (Clock::now() - last_heard_ > kHeadSilence) {
        log::warning("no heartbeat of the head for {} s", seconds(kHeadSilence).count());
        return Outcome::kLost;
      }
      continue;
    }
    last_heard_ = Clock::now();
    if (const auto* gone = std::get_if<Gone>(&*event)) {
      if (leave_by_) {
        log::fact("ended", "the head has let this node go");
        return Outcome::kLeft;
      }
      log::warning("the head at {}:{} is gone: {}", options_.head_address, options_.control_port, gone->why);
      return Outcome::kLost;
    }
    if (const auto outcome = handle(std::get<HeadMessage>(*event))) return *outcome;
  }
}

// True when the node leaves now. At the first signal the head is told and gets time to finish what runs.
bool NodeAgent::wants_to_leave() {
  const int signals = signals_();
  if (signals == 0) return false;
  if (ranks_ == nullptr || signals > 1) return true;
  if (!leave_by_) {
    const std::chrono::duration<double> drain(shutdown_timeout_s_);
    leave_by_ = Deadline::after(kLeavePatience + std::chrono::duration_cast<milliseconds>(drain));
    log::fact("draining", "the head lets running requests finish, or wait for another node, then this node leaves. Ctrl-C again leaves now");
    client_->send(Leaving{"its worker was asked to end"});
  }
  return leave_by_->passed();
}

std::optional<NodeAgent::Outcome> NodeAgent::handle(HeadMessage& message) {
  if (const auto* m = std::get_if<Welcome>(&message)) {
    welcome(*m);
  } else if (const auto* m = std::get_if<Refusal>(&message)) {
    if (!m->retry) refused(*m);
    announce_wait(m->reason);
    return Outcome::kRetry;
  } else if (const auto* m = std::get_if<StartRanks>(&message)) {
    start_ranks(*m);
  } else if (const auto* m = std::get_if<StopRanks>(&message)) {
    if (m->failed && !m->leave) log::warning("{}. The ranks here end, and start again with the others", m->reason);
    if (m->epoch == epoch_) stop_ranks(m->reason);
    if (m->leave) {
      log::fact("ended", "{}", m->reason);
      if (leave_by_) return Outcome::kLeft;
      return m->failed ? Outcome::kClusterFailed : Outcome::kHeadEnded;
    }
  }
  return std::nullopt;
}

void NodeAgent::refused(const Refusal& refusal) {
  std::string message = fmt::format("refused by {}: {}", options_.head_address, refusal.reason);
  for (const std::string& line : refusal.table) message += "\n" + line;
  throw JoinError(message);
}

void NodeAgent::welcome(const Welcome& welcome) {
  my_ranks_ = welcome.ranks;
  shutdown_timeout_s_ = welcome.shutdown_timeout_s;
  joined_ = true;
  waiting_for_.clear();
  const bool kept = keep_joined_token(options_.head_address, *token_);
  log::fact("joined", "cluster {} as {}; model and flags come from {}{}", welcome.cluster_id.substr(0, 4),
            name_ranks(welcome.ranks), welcome.head_name, kept ? ". Token kept for next time" : "");
  const std::string path = options_.model.empty() ? welcome.model_path : options_.model;
  NodeModelFiles model;
  try {
    model.files = list_model_files(path);
  } catch (const IoError& e) {
    model.error = fmt::format("{} has no model at {} (--model on the worker names another path): {}", summary_.name, path,
                              e.what());
  }
  client_->send(model);
}

void NodeAgent::say_ready() const {
  const std::string health = options_.health_port > 0
                                 ? fmt::format(" Health and metrics: http://{}:{}.", own_address_, options_.health_port)
                                 : "";
  log::fact("ready", "{} {}.{} Ctrl-C drains, then leaves", name_ranks(my_ranks_), my_ranks_.size() == 1 ? "serves" : "serve", health);
  log::use_time_of_day();  // to be found beside the head's lines
}

NodeReport NodeAgent::report() const {
  NodeReport report{.joined = joined_, .serves = serves_};
  const auto ranks = this->ranks();
  if (ranks == nullptr) return report;
  std::lock_guard lock(steps_mutex_);
  for (const auto& [rank, state] : ranks->states()) {
    const auto steps = steps_.find(rank);
    report.ranks.push_back({rank, state, steps == steps_.end() ? 0 : steps->second});
  }
  return report;
}

void NodeAgent::watch_own_frame(int rank, const Frame& frame) {
  if (frame.type == FrameType::kOutput) {
    std::lock_guard lock(steps_mutex_);
    ++steps_[rank];
  }
  if (frame.type != FrameType::kLoaded) return;
  loaded_bytes_ += parse_json(frame.payload, "memory report of a rank").value("weights", int64_t{0});
  if (++loaded_ < static_cast<int>(my_ranks_.size())) return;
  log::fact("weights", "{} in {:.1f} s", format_bytes(static_cast<double>(loaded_bytes_)),
            std::chrono::duration<double>(Clock::now() - load_begin_).count());
}

void NodeAgent::start_ranks(const StartRanks& start) {
  epoch_ = start.epoch;
  loaded_ = 0;
  loaded_bytes_ = 0;
  load_begin_ = Clock::now();
  starting_ = true;
  replace_ranks(std::make_shared<RankProcesses>(RankProcesses::Callbacks{
      [this, epoch = start.epoch](int rank, Frame frame) {
        watch_own_frame(rank, frame);
        client_->send(RankFrame{epoch, rank, std::move(frame)});
      },
      [this, epoch = start.epoch](int rank, pid_t, const std::string& how) {
        client_->send(RankExit{epoch, rank, how});
      }}));
  for (const auto& [rank, text] : start.ranks) {
    std::string config = text;
    if (!options_.model.empty()) {
      Json json = parse_json(config, "configuration from the head");
      json["engine"]["model_path"] = options_.model;
      config = dump_json(json);
    }
    client_->send(RankStarted{epoch_, rank, ranks_->spawn(rank, config)});
  }
}

std::shared_ptr<RankProcesses> NodeAgent::ranks() const {
  std::lock_guard lock(ranks_mutex_);
  return ranks_;
}

// The old ones end on this thread, never on the client's: whoever sends to them holds them for that long only.
void NodeAgent::replace_ranks(std::shared_ptr<RankProcesses> ranks) {
  {
    std::lock_guard lock(ranks_mutex_);
    ranks_.swap(ranks);
  }
  while (ranks.use_count() > 1) std::this_thread::sleep_for(milliseconds(1));
}

void NodeAgent::stop_ranks(const std::string& reason) {
  serves_ = starting_ = false;
  if (ranks_ == nullptr) return;
  log::debug("ranks stop: " + reason);
  ranks_->stop(kStopGrace);
}

void NodeAgent::forward_to_rank(const RankFrame& frame) {
  const auto ranks = this->ranks();
  if (frame.epoch != epoch_ || ranks == nullptr) return;
  if (frame.frame.type == FrameType::kStart && frame.rank == my_ranks_.front()) {
    serves_ = true;
    starting_ = false;
    say_ready();
  }
  try {
    ranks->send(frame.rank, frame.frame.type, frame.frame.payload);
  } catch (const Error& e) {
    log::debug(fmt::format("rank {} takes no message: {}", frame.rank, e.what()));
  }
}

void NodeAgent::heartbeat() {
  NodeHeartbeat beat;
  if (ranks_ != nullptr) {
    for (const auto& [rank, state] : ranks_->states()) beat.states.emplace_back(rank, state);
  }
  client_->send(beat);
  if (starting_) say_starting();
}

void NodeAgent::say_starting() const {
  const auto ranks = my_ranks_.size();
  const double seconds = std::chrono::duration<double>(Clock::now() - load_begin_).count();
  if (seconds < 2) return;
  const auto loaded = static_cast<size_t>(loaded_.load());
  log::progress("start", loaded < ranks ? fmt::format("{} of {} ranks here have loaded, {:.0f} s", loaded, ranks, seconds)
                                        : fmt::format("the ranks here wait for those of other nodes, {:.0f} s", seconds));
}

}  // namespace tutti
