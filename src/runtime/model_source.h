// A model on disk, opened: its configuration, its family and its mapped weight files. Any thread once open.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "config/engine_config.h"
#include "models/family.h"
#include "nn/partition.h"
#include "weights/checkpoint.h"

namespace tutti {

struct ModelSource {
  std::string path;
  const Family* family = nullptr;
  ModelConfig config;
  std::unique_ptr<Checkpoint> checkpoint;  // none for --load-format dummy of a folder with only a config.json
  bool dummy = false;                      // weights are made up, not read
  // What plain weights are converted to, by --dtype; always set for dummy weights. Float32 is not only wider: kernels
  // may round activations to the type of bfloat16 weights.
  std::optional<DType> dtype;
  // On GPUs: the type of activations, in which every matrix is kept that does not become FP8.
  std::optional<DType> gpu_activations;
  bool fp8 = false;  // --quantization fp8

  // The files' name for a parameter.
  std::string file_name(std::string_view parameter) const;
  // Is the parameter FP8 in the files? Its scales are in a tensor of their own (runtime/fp8_weights.h).
  bool stored_as_fp8(const Parameter& parameter) const;
  // As it is kept in memory. Throws IoError naming the tensor when the files do not have it.
  DType weight_dtype(const Parameter& parameter) const;
  // As this rank's kernels keep it: on the CPU the same; on a GPU FP8 or the activations' type.
  DType kept_dtype(const Parameter& parameter) const;
  // Units of the cut that the weights' block types ask for.
  QuantBlocks quant_blocks() const;
  // "BF16, 2 files, 269.1 MB"
  std::string describe() const;
};

// Throws IoError for files, ConfigError for what they say.
ModelSource open_model(const std::string& path, const std::string& load_format = "auto", const std::string& dtype = "auto");
// The same for the device and the quantisation that were asked for. Throws ConfigError where they do not go together.
ModelSource open_model(const EngineConfig& engine);

}  // namespace tutti
