#include "models/stage_partition.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "base/error.h"

namespace tutti {
namespace {

std::vector<LayerRange> as_ranges(const std::vector<int>& counts) {
  std::vector<LayerRange> ranges;
  int begin = 0;
  for (int count : counts) {
    ranges.push_back({begin, begin + count});
    begin += count;
  }
  return ranges;
}

constexpr double kWorthIt = 0.99;  // prompts have to gain as much for steps of one row a request to become slower

// Layer counts when no stage may cost more than `limit`, filled from the last stage to the first: stages before the
// one with the head take the larger parts. Empty when the layers do not fit.
std::vector<int> fill(int layers, int stages, const StageCosts& costs, double limit) {
  std::vector<int> counts(static_cast<size_t>(stages), 0);
  int left = layers;
  for (int stage = stages - 1; stage >= 0; --stage) {
    const double fixed = (stage == 0 ? costs.embedding : 0.0) + (stage == stages - 1 ? costs.head : 0.0);
    const int most = static_cast<int>((limit - fixed) / costs.layer + 1e-9);
    const int count = std::min(std::max(most, 1), left - stage);  // every stage before keeps one
    counts[static_cast<size_t>(stage)] = count;
    left -= count;
  }
  return left == 0 ? counts : std::vector<int>();
}

}  // namespace

StageCosts stage_costs(const ModelConfig& model) {
  StageCosts costs;
  const double hidden = static_cast<double>(model.hidden_size);
  costs.layer = hidden * (2.0 * model.num_heads + 2.0 * model.num_kv_heads) * model.head_dim +
                3.0 * hidden * static_cast<double>(model.intermediate_size);
  costs.embedding = hidden;  // one row a token is looked up
  costs.head = hidden * static_cast<double>(model.vocab_size);
  return costs;
}

std::vector<LayerRange> partition_layers(const ModelConfig& model, const ParallelConfig& parallel) {
  const int stages = parallel.pipeline_parallel_size;
  if (!parallel.pipeline_layer_partition.empty()) {
    const auto& counts = parallel.pipeline_layer_partition;
    const int sum = std::accumulate(counts.begin(), counts.end(), 0);
    if (sum != model.num_layers) {
      throw ConfigError("--pipeline-layer-partition adds up to " + std::to_string(sum) + " layers, but the model has " +
                        std::to_string(model.num_layers));
    }
    return as_ranges(counts);
  }
  if (model.num_layers < stages) {
    throw ConfigError("--pipeline-parallel-size " + std::to_string(stages) + " is too large: the model has " +
                      std::to_string(model.num_layers) + " layers. Use that or less");
  }
  const StageCosts costs = stage_costs(model);
  // The smallest limit that works is the cost of some stage: n layers, alone or with the embedding or the head.
  std::vector<double> limits;
  for (int n = 1; n <= model.num_layers; ++n) {
    for (double fixed : {0.0, costs.embedding, costs.head, costs.embedding + costs.head}) limits.push_back(n * costs.layer + fixed);
  }
  std::sort(limits.begin(), limits.end());
  std::vector<int> best;
  double least = std::numeric_limits<double>::infinity();
  for (double limit : limits) {
    const auto counts = fill(model.num_layers, stages, costs, limit);
    if (counts.empty()) continue;
    const double prompt = *std::max_element(counts.begin(), counts.end()) * costs.layer;  // one of its rows meets the head
    if (limit + prompt >= least * kWorthIt) continue;
    least = limit + prompt;
    best = counts;
  }
  CHECK(!best.empty());
  return as_ranges(best);
}

}  // namespace tutti
