// How a model is cut over ranks, and which coordinates a rank has. World order: tensor parallel fastest, then pipeline,
// then data, so that neighbours in rank order (usually one node) share a tensor-parallel group.
#pragma once

#include <string>
#include <vector>

namespace tutti {

struct RankCoordinates {
  int tp = 0;
  int pp = 0;
  int dp = 0;
  bool operator==(const RankCoordinates&) const = default;
};

struct ParallelConfig {
  int tensor_parallel_size = 1;
  int pipeline_parallel_size = 1;
  int data_parallel_size = 1;
  bool enable_expert_parallel = false;
  std::vector<int> tensor_split;               // --tensor-split: shares of the TP ranks; empty = equal
  std::vector<int> pipeline_layer_partition;   // --pipeline-layer-partition: layers of each stage; empty = by cost

  // Ranks of one replica, the unit that runs a step together.
  int replica_size() const { return tensor_parallel_size * pipeline_parallel_size; }
  int world_size() const { return replica_size() * data_parallel_size; }

  RankCoordinates coordinates(int rank) const;
  int rank(const RankCoordinates& at) const;
  // World ranks of the groups that `rank` belongs to, in group order.
  std::vector<int> tp_group(int rank) const;
  std::vector<int> pp_group(int rank) const;

  // Throws ConfigError naming the flag.
  void validate() const;
  std::string describe() const;  // "TP=2", "TP=8 PP=2", "2 x TP=8"
};

// Units of `total` (heads, FFN blocks, vocabulary rows) that each of `parts` ranks gets: whole units, in order, by
// `shares` (equal when empty), sizes differ by at most one unit for equal shares. Returns parts + 1 offsets.
std::vector<int> deal_units(int total, int parts, const std::vector<int>& shares = {});

}  // namespace tutti
