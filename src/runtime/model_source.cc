#include "runtime/model_source.h"

#include <fmt/format.h>

#include <filesystem>
#include <map>
#include <numeric>

#include "base/error.h"
#include "base/file.h"
#include "models/registry.h"

namespace tutti {
namespace {

LoadFormat parse_load_format(const std::string& name) {
  if (name == "auto") return LoadFormat::kAuto;
  if (name == "safetensors") return LoadFormat::kSafetensors;
  if (name == "gguf") return LoadFormat::kGguf;
  if (name == "dummy") return LoadFormat::kDummy;
  throw ConfigError("--load-format " + name + " is not one of auto, safetensors, gguf, dummy");
}

// Nothing for "auto".
std::optional<DType> parse_dtype(const std::string& name, bool dummy) {
  static const std::map<std::string, DType> kNames = {
      {"half", DType::kF16},      {"float16", DType::kF16}, {"bfloat16", DType::kBF16},
      {"float", DType::kF32},     {"float32", DType::kF32},
  };
  if (name == "auto") return std::nullopt;
  if (const auto it = kNames.find(name); it != kNames.end()) return it->second;
  // A made-up model can be of any type that has a quantiser.
  const auto type = dtype_from_name(name);
  if (dummy && type && (is_quantized(*type) || *type == DType::kBF16 || *type == DType::kF16 || *type == DType::kF32)) return type;
  throw ConfigError("--dtype " + name + " is not one of auto, half, float16, bfloat16, float, float32");
}

bool is_plain(DType dtype) { return dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16; }

// The type that holds most of the bytes.
DType main_dtype(const Checkpoint& checkpoint) {
  std::map<DType, size_t> bytes;
  for (const auto& [name, tensor] : checkpoint.tensors()) bytes[tensor.dtype()] += tensor.bytes();
  DType best = DType::kF32;
  size_t most = 0;
  for (const auto& [dtype, sum] : bytes) {
    if (sum > most) std::tie(best, most) = std::pair(dtype, sum);
  }
  return best;
}

std::vector<double> factors(const Tensor& tensor, const std::string& name) {
  if (tensor.dtype() != DType::kF32) {
    throw IoError("tensor " + name + " is " + tensor.describe() + ", expected F32");
  }
  return {tensor.data_as<float>(), tensor.data_as<float>() + tensor.numel()};
}

// What GGUF says by the presence of tensors.
void complete_gguf_config(const Checkpoint& checkpoint, ModelConfig& config) {
  const auto has = [&](const char* name) { return checkpoint.find(name) != nullptr; };
  config.tie_word_embeddings = !has("output.weight");
  config.qkv_bias = has("blk.0.attn_q.bias");
  config.output_bias = has("blk.0.attn_output.bias");
  config.dtype = dtype_name(main_dtype(checkpoint));
  if (const Tensor* table = checkpoint.find("token_embd.weight"); table != nullptr && table->rank() == 2) {
    config.vocab_size = table->size(0);
  }
  if (const Tensor* freqs = checkpoint.find("rope_freqs.weight")) {
    config.rope.freq_factors = factors(*freqs, "rope_freqs.weight");
  }
  const Tensor* long_factors = checkpoint.find("rope_factors_long.weight");
  const Tensor* short_factors = checkpoint.find("rope_factors_short.weight");
  if (long_factors != nullptr && short_factors != nullptr) {
    config.rope.scaling = RopeScalingType::kLongRope;
    config.rope.long_factor = factors(*long_factors, "rope_factors_long.weight");
    config.rope.short_factor = factors(*short_factors, "rope_factors_short.weight");
  }
}

// How a folder's weights are quantised: FP8, or not at all.
void check_quantization(const Json& json, const std::string& file) {
  if (!json.contains("quantization_config") || !json["quantization_config"].is_object()) return;
  const std::string method = json["quantization_config"].value("quant_method", std::string());
  if (method == "fp8" || method == "compressed-tensors") return;
  throw ConfigError(file + ": quantization_config.quant_method " + method +
                    " has no kernels: expected fp8 or compressed-tensors (FP8), or take a GGUF file");
}

bool looks_like_gguf(const std::string& path) {
  return std::filesystem::path(path).extension() == ".gguf";
}

}  // namespace

std::string ModelSource::file_name(std::string_view parameter) const {
  const bool gguf = checkpoint != nullptr && checkpoint->is_gguf();
  return gguf ? family->gguf_name(parameter) : family->hf_name(parameter);
}

DType ModelSource::weight_dtype(const Parameter& parameter) const {
  if (parameter.is_vector()) return DType::kF32;
  if (dummy) {
    return parameter.columns % dtype_info(*dtype).block_size == 0 ? *dtype : DType::kBF16;
  }
  const std::string name = file_name(parameter.name);
  const Tensor* tensor = checkpoint->find(name);
  if (tensor == nullptr) {
    throw IoError(path + ": tensor " + name + " is missing (" + std::to_string(checkpoint->tensors().size()) +
                  " tensors in " + std::to_string(checkpoint->files().size()) + " files): is the download complete?");
  }
  if (tensor->dtype() == DType::kF8E4M3) return dtype.value_or(DType::kBF16);  // with its scales in
  return dtype && is_plain(tensor->dtype()) ? *dtype : tensor->dtype();
}

bool ModelSource::stored_as_fp8(const Parameter& parameter) const {
  if (dummy) return false;
  const Tensor* tensor = checkpoint->find(file_name(parameter.name));
  return tensor != nullptr && tensor->dtype() == DType::kF8E4M3;
}

DType ModelSource::kept_dtype(const Parameter& parameter) const {
  if (!gpu_activations || parameter.is_vector()) return weight_dtype(parameter);
  // Embeddings are read row by row and stay as they are; so do matrices that the FP8 units cannot take.
  const bool can = parameter.name != "embed.weight" && parameter.local_rows() % 16 == 0 && parameter.local_columns() % 16 == 0;
  return can && (fp8 || stored_as_fp8(parameter)) ? DType::kF8E4M3 : *gpu_activations;
}

QuantBlocks ModelSource::quant_blocks() const {
  const auto widest = [&](const char* part, int64_t columns) {
    int block = 1;
    for (int layer = 0; layer < config.num_layers; ++layer) {
      const Parameter parameter{"layers." + std::to_string(layer) + part, config.hidden_size, columns, {}};
      block = std::lcm(block, dtype_info(weight_dtype(parameter)).block_size);
    }
    return block;
  };
  return {widest(".attention.o.weight", int64_t{config.num_heads} * config.head_dim),
          widest(".mlp.down.weight", config.intermediate_size)};
}

std::string ModelSource::describe() const {
  if (dummy) return fmt::format("{}, random weights", dtype_name(*dtype));
  const size_t files = checkpoint->files().size();
  return fmt::format("{}, {} file{}, {:.1f} MB", dtype_name(main_dtype(*checkpoint)), files, files == 1 ? "" : "s",
                     static_cast<double>(checkpoint->total_bytes()) / 1e6);
}

namespace {

// What GPU kernels compute in: --dtype, or as the checkpoint's 16-bit type, else bfloat16.
DType gpu_activation_dtype(const ModelSource& source, const std::string& dtype) {
  const auto asked = parse_dtype(dtype, source.dummy);
  if (asked == DType::kBF16 || asked == DType::kF16) return *asked;
  if (asked && is_plain(*asked)) {
    throw ConfigError("--dtype " + dtype + " --device cuda: GPU kernels compute in bfloat16 or float16");
  }
  return source.config.dtype == "float16" || source.config.dtype == "F16" ? DType::kF16 : DType::kBF16;
}

}  // namespace

ModelSource open_model(const EngineConfig& engine) {
  ModelSource source = open_model(engine.model_path, engine.load_format, engine.dtype);
  source.fp8 = engine.quantization == "fp8";
  if (engine.device == "cpu") {
    if (source.fp8) throw ConfigError("--quantization fp8 --device cpu: FP8 matrices are for GPUs; leave it out");
    return source;
  }
  source.gpu_activations = gpu_activation_dtype(source, engine.dtype);
  return source;
}

ModelSource open_model(const std::string& path, const std::string& load_format, const std::string& dtype) {
  ModelSource source;
  source.path = path;
  const LoadFormat format = parse_load_format(load_format);
  source.dummy = format == LoadFormat::kDummy;
  source.dtype = parse_dtype(dtype, source.dummy);
  if (!source.dummy || looks_like_gguf(path)) {
    source.checkpoint = Checkpoint::open(path, source.dummy ? LoadFormat::kGguf : format);
  }
  if (source.checkpoint != nullptr && source.checkpoint->is_gguf()) {
    const std::string name = std::filesystem::path(source.checkpoint->files().front()).filename().string();
    source.family = &find_gguf_family(source.checkpoint->metadata(), name);
    source.config = source.family->read_gguf(source.checkpoint->metadata(), name);
    source.config.architecture = source.checkpoint->metadata().at("general.architecture").get<std::string>();
    complete_gguf_config(*source.checkpoint, source.config);
  } else {
    const std::string file = (std::filesystem::path(path) / "config.json").string();
    if (!file_exists(file)) {
      throw IoError(file + " is missing: a model is a folder with config.json and *.safetensors, or a .gguf file");
    }
    const Json json = read_json_file(file);
    check_quantization(json, file);
    source.family = &find_hf_family(json, file);
    source.config = source.family->read_hf(json, file);
    source.config.architecture = json.at("architectures").front().get<std::string>();
  }
  source.config.family = source.family->name;
  if (source.dummy && !source.dtype) {
    source.dtype = parse_dtype(source.config.dtype, true).value_or(DType::kBF16);
  }
  return source;
}

}  // namespace tutti
