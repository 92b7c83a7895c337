#include "config/parallel_config.h"

#include <numeric>

#include "base/check.h"
#include "base/error.h"

namespace tutti {

RankCoordinates ParallelConfig::coordinates(int rank) const {
  CHECK(rank >= 0 && rank < world_size());
  return {rank % tensor_parallel_size, rank / tensor_parallel_size % pipeline_parallel_size, rank / replica_size()};
}

int ParallelConfig::rank(const RankCoordinates& at) const {
  return at.tp + tensor_parallel_size * (at.pp + pipeline_parallel_size * at.dp);
}

std::vector<int> ParallelConfig::tp_group(int rank) const {
  RankCoordinates at = coordinates(rank);
  std::vector<int> group;
  for (at.tp = 0; at.tp < tensor_parallel_size; ++at.tp) group.push_back(this->rank(at));
  return group;
}

std::vector<int> ParallelConfig::pp_group(int rank) const {
  RankCoordinates at = coordinates(rank);
  std::vector<int> group;
  for (at.pp = 0; at.pp < pipeline_parallel_size; ++at.pp) group.push_back(this->rank(at));
  return group;
}

void ParallelConfig::validate() const {
  const auto positive = [](int value, const char* flag) {
    if (value < 1) throw ConfigError(std::string(flag) + " must be at least 1, not " + std::to_string(value));
  };
  positive(tensor_parallel_size, "--tensor-parallel-size");
  positive(pipeline_parallel_size, "--pipeline-parallel-size");
  positive(data_parallel_size, "--data-parallel-size");
  const auto fits = [](const std::vector<int>& list, int size, const char* flag, const char* what) {
    if (list.empty()) return;
    if (static_cast<int>(list.size()) != size) {
      throw ConfigError(std::string(flag) + " has " + std::to_string(list.size()) + " numbers, but there are " +
                        std::to_string(size) + " " + what);
    }
    for (int n : list) {
      if (n < 1) throw ConfigError(std::string(flag) + ": every number must be at least 1");
    }
  };
  fits(tensor_split, tensor_parallel_size, "--tensor-split", "tensor-parallel ranks");
  fits(pipeline_layer_partition, pipeline_parallel_size, "--pipeline-layer-partition", "pipeline stages");
}

std::string ParallelConfig::describe() const {
  std::string text = data_parallel_size > 1 ? std::to_string(data_parallel_size) + " x " : "";
  text += "TP=" + std::to_string(tensor_parallel_size);
  if (pipeline_parallel_size > 1) text += " PP=" + std::to_string(pipeline_parallel_size);
  return text;
}

std::vector<int> deal_units(int total, int parts, const std::vector<int>& shares) {
  CHECK_GE(parts, 1);
  CHECK(shares.empty() || static_cast<int>(shares.size()) == parts);
  const int64_t sum = shares.empty() ? parts : std::accumulate(shares.begin(), shares.end(), int64_t{0});
  std::vector<int> offsets(1, 0);
  int64_t before = 0;
  for (int p = 0; p < parts; ++p) {
    before += shares.empty() ? 1 : shares[p];
    // Rounded up, so that the first ranks get the larger parts.
    offsets.push_back(static_cast<int>((before * total + sum - 1) / sum));
  }
  return offsets;
}

}  // namespace tutti
