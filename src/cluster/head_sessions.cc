// The half of the head that listens: joins, messages of nodes, and the watch over silent ones.
#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "cluster/head.h"

namespace tutti {
namespace {

constexpr auto kWatchInterval = std::chrono::milliseconds(500);
// A node that has been silent for this long may not read either: writing to it could block the watch.
constexpr auto kQuiet = std::chrono::seconds(2);

// The head's side of the way to `peer`, "eth0 from 10.0.0.1": the route decides, not the address that the head goes by.
std::string link_to(const std::string& peer, const std::string& wanted) {
  try {
    const LocalAddress own = local_address_towards(peer, wanted);
    return fmt::format("{} from {}", own.interface, own.address);
  } catch (const Error&) {  // the peer says what it is reached at
    return "unknown, no route";
  }
}

}  // namespace

int Head::node_of_session(const std::shared_ptr<NodeSession>& session) const {
  const auto found = node_ids_.find(session.get());
  return found == node_ids_.end() ? -1 : found->second;
}

std::shared_ptr<RankGroup> Head::group_of(int64_t epoch) const { return epoch == epoch_ ? group_ : nullptr; }

void Head::on_message(const std::shared_ptr<NodeSession>& session, NodeMessage message) {
  if (const auto* introduction = std::get_if<NodeHello>(&message)) return hello(session, *introduction);
  if (const auto* model = std::get_if<NodeModelFiles>(&message)) return model_files(session, *model);
  if (const auto* leaving = std::get_if<Leaving>(&message)) return node_leaves(session, *leaving);
  heard_from_rank(session, message);
}

void Head::node_leaves(const std::shared_ptr<NodeSession>& session, const Leaving& leaving) {
  std::unique_lock lock(mutex_);
  const MemberNode* node = membership_.find(node_of_session(session));
  if (node == nullptr) return;
  const MemberNode copy = *node;
  if (leaving_callback_ && leaving_callback_(copy.name)) return;  // under the lock, so that it is not taken back meanwhile
  lock.unlock();
  lose(copy.id, leaving.reason, /*link=*/false);
}

// Frames, starts, exits and heartbeats. What belongs to an epoch that is over is dropped, and the node is told to stop.
void Head::heard_from_rank(const std::shared_ptr<NodeSession>& session, NodeMessage& message) {
  std::shared_ptr<RankGroup> group;
  int64_t epoch = 0;
  if (const auto* m = std::get_if<RankFrame>(&message)) epoch = m->epoch;
  if (const auto* m = std::get_if<RankStarted>(&message)) epoch = m->epoch;
  if (const auto* m = std::get_if<RankExit>(&message)) epoch = m->epoch;
  {
    std::lock_guard lock(mutex_);
    MemberNode* node = membership_.find(node_of_session(session));
    if (node == nullptr) return;
    node->last_heard = Clock::now();
    group = std::holds_alternative<NodeHeartbeat>(message) ? group_ : group_of(epoch);
  }
  if (group == nullptr) {
    if (std::holds_alternative<RankFrame>(message)) session->send(StopRanks{epoch, "this epoch is over"});
    return;
  }
  if (auto* m = std::get_if<RankFrame>(&message)) group->on_frame(m->rank, std::move(m->frame));
  if (const auto* m = std::get_if<RankStarted>(&message)) group->set_pid(m->rank, m->pid);
  if (const auto* m = std::get_if<RankExit>(&message)) group->on_exit(m->rank, m->how);
  if (const auto* m = std::get_if<NodeHeartbeat>(&message)) {
    for (const auto& [rank, state] : m->states) group->on_state(rank, state);
  }
}

std::optional<Refusal> Head::compare(const NodeHello& hello) const {
  std::vector<Fact> ours = comparable_facts();
  std::vector<Fact> theirs = hello.facts;
  // Only flags that the node gave are compared: a worker usually gives none.
  for (const Fact& flag : hello.flags) {
    const auto same = std::find_if(options_.flags.begin(), options_.flags.end(),
                                   [&](const Fact& own) { return own.name == flag.name; });
    ours.push_back({flag.name, same == options_.flags.end() ? "not given" : same->value});
    theirs.push_back(flag);
  }
  auto table = difference_table(self_.name + " (head)", ours, hello.name + " (joining)", theirs);
  if (table.empty()) return std::nullopt;
  return Refusal{.reason = "the nodes differ", .table = std::move(table)};
}

void Head::refuse(const std::shared_ptr<NodeSession>& session, const NodeHello& hello, const Refusal& refusal) {
  {
    std::lock_guard lock(mutex_);
    last_refusal_ = fmt::format("{} ({}), {}", hello.name, hello.address, refusal.reason);
  }
  if (!refusal.retry) {
    log::warning("{} ({}) wants to join and is refused: {}", hello.name, hello.address, refusal.reason);
    for (const std::string& line : refusal.table) log::continuation(line);
  }
  session->send(refusal);
}

void Head::hello(const std::shared_ptr<NodeSession>& session, const NodeHello& hello) {
  if (const auto difference = compare(hello)) return refuse(session, hello, *difference);
  const std::string link = link_to(hello.address, options_.interface);  // before the lock, it asks the system
  std::unique_lock lock(mutex_);
  auto admitted = membership_.admit(hello, Clock::now());
  if (const auto* refusal = std::get_if<Refusal>(&admitted)) {
    lock.unlock();
    return refuse(session, hello, *refusal);
  }
  const MemberNode node = std::get<MemberNode>(admitted);
  membership_.find(node.id)->link = link;
  sessions_[node.id] = session;
  node_ids_[session.get()] = node.id;
  lock.unlock();
  session->send(Welcome{cluster_id_, self_.name, node.name, node.ranks, options_.engine.model, options_.engine.model_path,
                        options_.shutdown_timeout_s});
}

void Head::model_files(const std::shared_ptr<NodeSession>& session, const NodeModelFiles& model) {
  std::unique_lock lock(mutex_);
  MemberNode* node = membership_.find(node_of_session(session));
  if (node == nullptr) return;
  node->last_heard = Clock::now();
  const MemberNode copy = *node;
  std::optional<Refusal> refusal;
  if (!model.error.empty()) {
    refusal = Refusal{.reason = model.error};
  } else if (const auto difference = compare_model_files(options_.model_files, model.files)) {
    refusal = Refusal{.reason = "the nodes differ",
                      .table = difference_table(self_.name + " (head)", {{"model files", difference->first}},
                                                copy.name + " (joining)", {{"model files", difference->second}})};
  }
  if (refusal) {
    node_ids_.erase(session.get());
    sessions_.erase(copy.id);
    membership_.remove(copy.id);
    lock.unlock();
    return refuse(session, copy.hello, *refusal);
  }
  // First, so that what whoever waits says next comes after it.
  log::fact("joined", "{} {}: {} cores, {:.1f} GiB, {}; same build, processor features and model files", copy.name,
            copy.address, copy.hello.cores, copy.hello.memory_gib, name_ranks(copy.ranks));
  node->state = NodeState::kJoined;
  lock.unlock();
  changed_.notify_all();
}

void Head::on_gone(const std::shared_ptr<NodeSession>& session) {
  std::unique_lock lock(mutex_);
  const int node = node_of_session(session);
  lock.unlock();
  if (node >= 0) lose(node, "the connection to its node has ended");
}

// The node does not belong any more; a node that comes back joins anew.
void Head::lose(int id, const std::string& why, bool link) {
  std::shared_ptr<RankGroup> group;
  std::shared_ptr<NodeSession> session;
  MemberNode node;
  bool expected = false;
  {
    std::lock_guard lock(mutex_);
    MemberNode* found = membership_.find(id);
    if (found == nullptr) return;
    node = *found;
    session = sessions_[id];
    node_ids_.erase(session.get());
    sessions_.erase(id);
    membership_.remove(id);
    group = group_;
    expected = leaving_;
  }
  if (group) {
    const std::string how = link ? fmt::format("{}; link {} to {}", why, node.link, node.address) : why;
    for (const int rank : node.ranks) group->on_lost(rank, how);
  }
  session->end();
  changed_.notify_all();
  if (!expected) log::warning("{} ({}) left the cluster: {}", node.name, node.address, why);
}

void Head::watch() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    changed_.wait_for(lock, kWatchInterval);
    std::vector<std::pair<int, std::string>> silent;
    std::vector<std::shared_ptr<NodeSession>> alive;
    for (const auto& [id, node] : membership_.nodes()) {
      if (id == self_.id) continue;
      const auto silence = Clock::now() - node.last_heard;
      if (silence > options_.heartbeat_timeout) {
        silent.emplace_back(id, fmt::format("no heartbeat for {:.1f} s", std::chrono::duration<double>(silence).count()));
      } else if (silence < kQuiet) {
        alive.push_back(sessions_.at(id));
      }
    }
    const auto group = group_;
    const auto processes = local_ranks_;
    lock.unlock();
    for (const auto& [id, why] : silent) lose(id, why);
    for (const auto& session : alive) session->send_if_idle(HeadHeartbeat{});
    if (group && processes) {
      for (const auto& [rank, state] : processes->states()) group->on_state(rank, state);
    }
    lock.lock();
  }
}

}  // namespace tutti
