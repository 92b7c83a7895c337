#include "golden/gguf_model.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <numbers>
#include <vector>

#include "base/json.h"
#include "models/registry.h"
#include "tensor/quantize.h"
#include "weights/checkpoint.h"
#include "weights/gguf_writer.h"

namespace tutti::testing {
namespace {

std::vector<float> floats(const Tensor& tensor) {
  std::vector<float> values(static_cast<size_t>(tensor.numel()));
  for (size_t i = 0; i < values.size(); ++i) {
    switch (tensor.dtype()) {
      case DType::kF32:
        values[i] = tensor.data_as<float>()[i];
        break;
      case DType::kBF16:
        values[i] = std::bit_cast<float>(static_cast<uint32_t>(tensor.data_as<uint16_t>()[i]) << 16);
        break;
      default:
        CHECK(tensor.dtype() == DType::kF16);
        values[i] = static_cast<float>(tensor.data_as<_Float16>()[i]);
    }
  }
  return values;
}

// Rows of q and k of "llama" models: (i, i + d/2) of a head become neighbours.
std::vector<float> with_neighbouring_pairs(const std::vector<float>& rows, int64_t head_dim, int64_t columns) {
  std::vector<float> out(rows.size());
  const int64_t count = static_cast<int64_t>(rows.size()) / columns;
  for (int64_t r = 0; r < count; ++r) {
    const int64_t head = r / head_dim, i = r % head_dim;
    const int64_t to = head * head_dim + (i < head_dim / 2 ? 2 * i : 2 * (i - head_dim / 2) + 1);
    std::memcpy(&out[static_cast<size_t>(to * columns)], &rows[static_cast<size_t>(r * columns)], static_cast<size_t>(columns) * 4);
  }
  return out;
}

Tensor as_tensor(const std::vector<float>& values, int64_t rows, int64_t columns, DType dtype) {
  Tensor tensor = Tensor::empty({rows, columns}, dtype);
  for (int64_t r = 0; r < rows; ++r) {
    quantize_row(values.data() + r * columns, columns, dtype, tensor.row<std::byte>(r));
  }
  return tensor;
}

// Llama 3's scaling is a tensor in GGUF files: what each frequency is divided by.
Tensor llama3_factors(const RopeConfig& rope) {
  Tensor factors = Tensor::empty({rope.rotary_dim / 2}, DType::kF32);
  for (int i = 0; i < rope.rotary_dim / 2; ++i) {
    const double wavelength = 2 * std::numbers::pi * std::pow(rope.theta, 2.0 * i / rope.rotary_dim);
    const auto trained = static_cast<double>(rope.original_max_position);
    double factor = rope.factor;
    if (wavelength < trained / rope.high_freq_factor) {
      factor = 1.0;
    } else if (wavelength <= trained / rope.low_freq_factor) {
      const double smooth = (trained / wavelength - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor);
      factor = 1.0 / ((1.0 - smooth) / rope.factor + smooth);
    }
    factors.data_as<float>()[i] = static_cast<float>(factor);
  }
  return factors;
}

void add_metadata(GgufWriter& writer, const ModelConfig& config, const std::string& arch) {
  const auto key = [&](const char* name) { return arch + "." + name; };
  writer.add_string("general.architecture", arch);
  writer.add_u32(key("embedding_length"), static_cast<uint32_t>(config.hidden_size));
  writer.add_u32(key("feed_forward_length"), static_cast<uint32_t>(config.intermediate_size));
  writer.add_u32(key("block_count"), static_cast<uint32_t>(config.num_layers));
  writer.add_u32(key("attention.head_count"), static_cast<uint32_t>(config.num_heads));
  writer.add_u32(key("attention.head_count_kv"), static_cast<uint32_t>(config.num_kv_heads));
  writer.add_u32(key("attention.key_length"), static_cast<uint32_t>(config.head_dim));
  writer.add_f32(key("attention.layer_norm_rms_epsilon"), static_cast<float>(config.rms_norm_eps));
  if (config.sliding_window > 0) writer.add_u32(key("attention.sliding_window"), static_cast<uint32_t>(config.sliding_window));
  writer.add_u32(key("context_length"), static_cast<uint32_t>(config.max_position_embeddings));
  writer.add_u32(key("vocab_size"), static_cast<uint32_t>(config.vocab_size));
  writer.add_f32(key("rope.freq_base"), static_cast<float>(config.rope.theta));
  if (config.rope.scaling == RopeScalingType::kLinear || config.rope.scaling == RopeScalingType::kYarn) {
    writer.add_string(key("rope.scaling.type"), config.rope.scaling == RopeScalingType::kLinear ? "linear" : "yarn");
    writer.add_f32(key("rope.scaling.factor"), static_cast<float>(config.rope.factor));
    writer.add_u32(key("rope.scaling.original_context_length"), static_cast<uint32_t>(config.rope.original_max_position));
  }
}

// The project's own name of a Hugging Face tensor, by asking the family about every parameter there can be.
std::vector<std::string> parameter_names(int num_layers) {
  std::vector<std::string> names = {"embed.weight", "norm.weight", "head.weight"};
  for (int layer = 0; layer < num_layers; ++layer) {
    const std::string prefix = "layers." + std::to_string(layer) + ".";
    for (const char* part : {"input_norm.weight", "post_norm.weight", "attention.q.weight", "attention.k.weight", "attention.v.weight",
                             "attention.o.weight", "attention.q.bias", "attention.k.bias", "attention.v.bias", "attention.q_norm.weight",
                             "attention.k_norm.weight", "mlp.gate.weight", "mlp.up.weight", "mlp.down.weight"}) {
      names.push_back(prefix + part);
    }
  }
  return names;
}

}  // namespace

void write_gguf_model(const std::string& folder, DType dtype, const std::string& path) {
  const Json json = read_json_file(folder + "/config.json");
  const Family& family = find_hf_family(json, folder);
  const ModelConfig config = family.read_hf(json, folder);
  const auto checkpoint = Checkpoint::open(folder + "/model.safetensors");
  const std::string arch = family.gguf_architectures.empty() ? "llama" : std::string(family.gguf_architectures.front());
  GgufWriter writer;
  add_metadata(writer, config, arch);
  if (config.rope.scaling == RopeScalingType::kLlama3) writer.add_tensor("rope_freqs.weight", llama3_factors(config.rope));
  for (const std::string& name : parameter_names(config.num_layers)) {
    const Tensor* tensor = checkpoint->find(family.hf_name(name));
    if (tensor == nullptr) continue;
    std::vector<float> values = floats(*tensor);
    if (tensor->rank() == 1) {
      const Tensor vector = as_tensor(values, 1, tensor->size(0), DType::kF32);
      writer.add_tensor(family.gguf_name(name), vector.reshape({tensor->size(0)}));
      continue;
    }
    const bool rotated = name.ends_with("attention.q.weight") || name.ends_with("attention.k.weight");
    if (arch == "llama" && rotated) values = with_neighbouring_pairs(values, config.head_dim, tensor->size(1));
    writer.add_tensor(family.gguf_name(name), as_tensor(values, tensor->size(0), tensor->size(1), dtype));
  }
  writer.write(path);
}

}  // namespace tutti::testing
