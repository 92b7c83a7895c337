#include "cluster/membership.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "config/parallel_config.h"

namespace tutti {
namespace {

constexpr int kHead = 0;  // join identity

bool contains(const std::vector<int>& ranks, int rank) {
  return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
}

std::vector<int> range(int begin, int end) {
  std::vector<int> ranks(static_cast<size_t>(std::max(0, end - begin)));
  std::iota(ranks.begin(), ranks.end(), begin);
  return ranks;
}

}  // namespace

Membership::Membership(int world_size, int num_nodes) : world_size_(world_size), num_nodes_(num_nodes) {}

std::vector<int> Membership::share_of(int node_rank) const {
  if (num_nodes_ <= 0) return range(0, world_size_);
  const std::vector<int> offsets = deal_units(world_size_, num_nodes_);
  return range(offsets[static_cast<size_t>(node_rank)], offsets[static_cast<size_t>(node_rank) + 1]);
}

std::vector<int> Membership::free_ranks() const {
  std::vector<int> free;
  for (int rank = 0; rank < world_size_; ++rank) {
    if (node_of(rank) == nullptr) free.push_back(rank);
  }
  return free;
}

const MemberNode* Membership::node_of(int rank) const {
  for (const auto& [id, node] : nodes_) {
    if (contains(node.ranks, rank)) return &node;
  }
  return nullptr;
}

// The ranks that the node asks for, or those that come next.
std::variant<std::vector<int>, Refusal> Membership::choose_ranks(const NodeHello& hello) const {
  const std::vector<int> free = free_ranks();
  std::vector<int> ranks;
  if (hello.first_rank >= 0) {
    const int64_t end = int64_t{hello.first_rank} + std::max(1, hello.num_ranks);
    if (end > world_size_) {
      const std::string asked = hello.num_ranks > 1 ? fmt::format("ranks {}-{}", hello.first_rank, end - 1)
                                                    : fmt::format("rank {}", hello.first_rank);
      return Refusal{.reason = fmt::format("this node asks for {}, the cluster has {} ranks", asked, world_size_)};
    }
    ranks = range(hello.first_rank, static_cast<int>(end));
  } else if (hello.node_rank >= 0) {
    if (hello.node_rank >= num_nodes_) {
      return Refusal{.reason = fmt::format("--node-rank {}, but the head was started with --nnodes {}", hello.node_rank,
                                           num_nodes_)};
    }
    ranks = share_of(hello.node_rank);
  } else if (!free.empty()) {
    // The share of the first node place that is free as a whole; without --nnodes all that is left.
    for (int place = 0; place < num_nodes_ && ranks.empty(); ++place) {
      const std::vector<int> share = share_of(place);
      const bool all_free = std::all_of(share.begin(), share.end(), [&](int rank) { return contains(free, rank); });
      if (all_free && !share.empty()) ranks = share;
    }
    if (ranks.empty()) ranks = free;
    if (hello.num_ranks > 0 && hello.num_ranks < static_cast<int>(ranks.size())) {
      ranks.resize(static_cast<size_t>(hello.num_ranks));
    }
  }
  if (ranks.empty()) {
    std::string reason = world_size_ == 1 ? "the only rank has a node already" : fmt::format("all {} ranks have a node already", world_size_);
    if (num_nodes_ == 1) {
      reason += fmt::format("; the head was started for one node: {}--nnodes 2 there leaves ranks for this one", world_size_ == 1 ? "-tp 2 " : "");
    }
    return Refusal{.reason = std::move(reason), .retry = true};
  }
  for (const int rank : ranks) {
    if (const MemberNode* owner = node_of(rank)) {
      return Refusal{.reason = fmt::format("rank {} belongs to {} ({}) already", rank, owner->name, owner->address),
                     .retry = true};
    }
  }
  return ranks;
}

std::string Membership::free_name(const std::string& wanted) const {
  const auto taken = [this](const std::string& name) {
    return std::any_of(nodes_.begin(), nodes_.end(), [&](const auto& entry) { return entry.second.name == name; });
  };
  const std::string base = wanted.empty() ? "node" : wanted;
  std::string name = base;
  for (int number = 2; taken(name); ++number) name = fmt::format("{}-{}", base, number);
  return name;
}

// An address that leads somewhere else would be noticed only when ranks try to connect.
std::optional<Refusal> Membership::judge_address(const NodeHello& hello) const {
  constexpr const char* kForce = "--network-interface names the network between the nodes";
  for (const auto& [id, node] : nodes_) {
    if (node.hello.machine == hello.machine) continue;
    if (node.address == hello.address) {
      // The head stays; another node may have gone without a word, and this is its successor.
      return Refusal{.reason = fmt::format("its address {} is that of {} as well. {}", hello.address, node.name, kForce),
                     .retry = id != kHead};
    }
    if (hello.address.starts_with("127.") || hello.address == "::1") {
      return Refusal{.reason = fmt::format("its address {} leads from {} to {} itself. {}", hello.address, node.name, node.name,
                                           kForce)};
    }
  }
  return std::nullopt;
}

std::variant<MemberNode, Refusal> Membership::admit(const NodeHello& hello, Clock::time_point now) {
  if (const auto refusal = judge_address(hello)) return *refusal;
  auto choice = choose_ranks(hello);
  if (auto* refusal = std::get_if<Refusal>(&choice)) return *refusal;
  MemberNode node;
  node.id = next_id_++;
  node.name = free_name(hello.name);
  node.address = hello.address;
  node.ranks = std::get<std::vector<int>>(choice);
  node.hello = hello;
  node.last_heard = now;
  nodes_[node.id] = node;
  return node;
}

void Membership::remove(int id) { nodes_.erase(id); }

MemberNode* Membership::find(int id) {
  const auto found = nodes_.find(id);
  return found == nodes_.end() ? nullptr : &found->second;
}

bool Membership::complete() const {
  const bool checked = std::all_of(nodes_.begin(), nodes_.end(),
                                   [](const auto& entry) { return entry.second.state == NodeState::kJoined; });
  return checked && free_ranks().empty();
}

std::string describe_ranks(const std::vector<int>& ranks) {
  std::string text;
  for (size_t i = 0; i < ranks.size();) {
    size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    text += text.empty() ? "" : ", ";
    text += last == i ? fmt::format("{}", ranks[i]) : fmt::format("{}-{}", ranks[i], ranks[last]);
    i = last + 1;
  }
  return text;
}

std::string name_ranks(const std::vector<int>& ranks) {
  return (ranks.size() == 1 ? "rank " : "ranks ") + describe_ranks(ranks);
}

}  // namespace tutti
