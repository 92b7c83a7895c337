// Which layers each pipeline stage holds. Pure arithmetic: the planner and the check of what fits use it too.
#pragma once

#include <vector>

#include "config/model_config.h"
#include "config/parallel_config.h"
#include "models/decoder.h"

namespace tutti {

// Relative time of the model's parts in one step: the weights that each reads.
struct StageCosts {
  double layer = 0.0;
  double embedding = 0.0;
  double head = 0.0;
};
StageCosts stage_costs(const ModelConfig& model);

// One range a stage: those of --pipeline-layer-partition, or those whose slowest stage is fastest, in a step of one row for each
// request and in a step of prompts added up. Throws ConfigError
// when the numbers given do not add up to the model's layers, or there are fewer layers than stages.
std::vector<LayerRange> partition_layers(const ModelConfig& model, const ParallelConfig& parallel);

}  // namespace tutti
