// Which nodes belong to the cluster and which ranks each of them runs. Pure bookkeeping, no sockets, no clock of its
// own; the Head calls it with its lock held.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/deadline.h"
#include "cluster/control_messages.h"

namespace tutti {

enum class NodeState { kChecking, kJoined };

struct MemberNode {
  int id = 0;  // join identity: counts joins, so a node that comes back is another one
  std::string name;
  std::string address;
  std::vector<int> ranks;
  NodeState state = NodeState::kChecking;
  std::string link;  // the head's side of the way to it, "eth0 from 10.0.0.1"
  NodeHello hello;
  Clock::time_point last_heard{};
};

class Membership {
 public:
  // `num_nodes` 0: unknown, a node gets all ranks that are left (or as many as it asks for).
  Membership(int world_size, int num_nodes);

  // Ranks of one node when the world is dealt over num_nodes nodes.
  std::vector<int> share_of(int node_rank) const;

  // Gives the node its ranks, or says why not. The head admits itself first, with node rank 0.
  std::variant<MemberNode, Refusal> admit(const NodeHello& hello, Clock::time_point now);
  void remove(int id);

  MemberNode* find(int id);
  const std::map<int, MemberNode>& nodes() const { return nodes_; }
  int world_size() const { return world_size_; }
  // Ranks that no node has taken yet.
  std::vector<int> free_ranks() const;
  // Every rank has a node, and every node has passed its checks.
  bool complete() const;
  const MemberNode* node_of(int rank) const;

 private:
  std::variant<std::vector<int>, Refusal> choose_ranks(const NodeHello& hello) const;
  std::string free_name(const std::string& wanted) const;
  std::optional<Refusal> judge_address(const NodeHello& hello) const;

  int world_size_;
  int num_nodes_;
  int next_id_ = 0;
  std::map<int, MemberNode> nodes_;
};

// "0-7", "1", "0, 2-3"
std::string describe_ranks(const std::vector<int>& ranks);
// "rank 1", "ranks 8-15"
std::string name_ranks(const std::vector<int>& ranks);

}  // namespace tutti
