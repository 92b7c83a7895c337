// What the constructor of a layer needs: the model, this rank's part of it, and where to declare parameters. Lives as
// long as the construction.
#pragma once

#include "comm/communicator.h"
#include "config/model_config.h"
#include "nn/parameter.h"
#include "nn/partition.h"

namespace tutti {

struct BuildContext {
  const ModelConfig& config;
  const TensorPartition& cut;
  Communicator& tp;
  ParameterList& parameters;
};

}  // namespace tutti
