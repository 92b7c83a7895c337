// Collectives of a group that has several ranks on some of its nodes: shared memory inside a node,
// TCP between the first ranks of the nodes (the leaders). Sums go rank by rank inside a node and
// then node by node, in float32 for half types, so they have the same bits on every rank, though
// not those of a flat group. Messages between two ranks and all-to-all, which have nothing to
// share, go directly.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "comm/transport.h"

namespace tutti {

// Which ranks share a node, nodes in the order of their first rank.
struct NodeLayout {
  std::vector<std::vector<int>> members;  // ranks of each node, ascending; the first is the leader
  std::vector<int> node_of;               // by rank
  std::vector<int> local_rank_of;         // by rank

  // `nodes` holds the identity of each rank's node.
  explicit NodeLayout(const std::vector<std::string>& nodes);
  size_t most_members() const;
};

class HierarchicalTransport final : public Transport {
 public:
  struct Parts {
    std::unique_ptr<Transport> local;    // the ranks of this node
    std::unique_ptr<Transport> leaders;  // on the leader of each node, else null
    std::unique_ptr<Transport> direct;   // all ranks
  };
  HierarchicalTransport(CommGroup group, NodeLayout layout, Parts parts);

  std::string_view name() const override { return "hierarchical"; }
  void all_reduce(const Call& call, void* data, int64_t count, DType dtype) override;
  void all_gather(const Call& call, const void* send, void* recv, size_t bytes) override;
  void reduce_scatter(const Call& call, const void* send, void* recv, int64_t count,
                      DType dtype) override;
  void broadcast(const Call& call, void* data, size_t bytes, int root) override;
  void all_to_all(const Call& call, const void* send, void* recv, size_t bytes) override;
  void send(const Call& call, const void* data, size_t bytes, int to) override;
  void recv(const Call& call, void* data, size_t bytes, int from) override;
  void barrier(const Call& call) override;
  void finish(const Call&) override {}
  void watch(const Call&) override {}
  void abort(const std::string& reason, int peer) override;

 private:
  // Sums what is F32, I32 or I64 already.
  void sum_in_place(const Call& call, void* data, int64_t count, DType dtype);
  // The only ways to the parts for collectives: errors leave with this group's numbers.
  template <typename Body>
  void in_node(const Body& body);
  template <typename Body>
  void between_leaders(const Body& body);
  const std::vector<int>& my_node() const { return layout_.members[static_cast<size_t>(node_)]; }
  int local_rank(int rank) const { return layout_.local_rank_of[static_cast<size_t>(rank)]; }
  int node_of(int rank) const { return layout_.node_of[static_cast<size_t>(rank)]; }

  const CommGroup group_;
  const NodeLayout layout_;
  const int node_;  // this rank's
  Parts parts_;
  std::vector<float> floats_;        // a sum of halves on its way
  std::vector<std::byte> gathered_;  // of all nodes, padded to the largest
};

}  // namespace tutti
