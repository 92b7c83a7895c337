// What a model is: shapes and constants, read from a Hugging Face config.json or from GGUF metadata by the family that
// the architecture name selects (models/registry). A number or an optional tensor is a field here; a new equation is a
// new block type.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tutti {

// Rotary position embedding. `kHalf` rotates (i, i + d/2) pairs, as Hugging Face checkpoints are laid out;
// `kInterleaved` rotates (2i, 2i + 1), as Meta's and the GGUF files of llama-architecture models are.
enum class RopeLayout : uint8_t { kHalf, kInterleaved };
enum class RopeScalingType : uint8_t { kNone, kLinear, kDynamic, kYarn, kLlama3, kLongRope };

struct RopeConfig {
  double theta = 10000.0;
  int rotary_dim = 0;  // <= head_dim
  RopeLayout layout = RopeLayout::kHalf;
  RopeScalingType scaling = RopeScalingType::kNone;
  double factor = 1.0;
  double low_freq_factor = 1.0;            // llama3
  double high_freq_factor = 4.0;           // llama3
  int64_t original_max_position = 0;       // llama3, yarn, longrope, dynamic
  double attention_factor = 0.0;           // yarn, longrope: 0 = by the paper's formula
  double beta_fast = 32.0;                 // yarn
  double beta_slow = 1.0;                  // yarn
  double mscale = 0.0;                     // yarn, DeepSeek
  double mscale_all_dim = 0.0;             // yarn, DeepSeek
  bool truncate = true;                    // yarn: round the correction range to whole dimensions
  std::vector<double> short_factor;        // longrope
  std::vector<double> long_factor;         // longrope
  std::vector<double> freq_factors;        // GGUF rope_freqs.weight: divides each frequency
};

struct ModelConfig {
  std::string architecture;  // "LlamaForCausalLM", or GGUF's "llama"
  std::string family;        // the registry's name: "llama", "qwen2", ...
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int num_layers = 0;
  int num_heads = 0;
  int num_kv_heads = 0;
  int head_dim = 0;
  double rms_norm_eps = 1e-6;
  RopeConfig rope;
  int64_t max_position_embeddings = 0;
  int64_t sliding_window = 0;        // 0 = none
  int first_sliding_layer = 0;       // layers before it see everything (Qwen's max_window_layers)
  bool tie_word_embeddings = false;
  bool qkv_bias = false;             // Qwen2
  bool output_bias = false;          // attention output projection
  bool mlp_bias = false;
  bool qk_norm = false;              // Qwen3: RMS norm of each head of q and k before the rotation
  double attention_scale = 0.0;      // 0 = 1 / sqrt(head_dim)
  std::string hidden_act = "silu";
  std::string dtype = "bfloat16";    // of the checkpoint: float32, float16, bfloat16 or a GGUF type name
  std::vector<int32_t> eos_token_ids;
  std::optional<int32_t> bos_token_id;

  double softmax_scale() const;
  // KV bytes of one token in all layers at `bytes_per_element`.
  int64_t kv_bytes_per_token(int bytes_per_element) const;
  // Parameters by the shapes above.
  int64_t num_parameters() const;
};

}  // namespace tutti
