// Reads what decoder-only families share, from config.json and from GGUF metadata.
#include <cmath>
#include <limits>

#include "base/error.h"
#include "models/config_reader.h"
#include "models/family.h"
#include "models/rope_config.h"

namespace tutti {
namespace {

constexpr int64_t kMaxSize = int64_t{1} << 24;  // no model comes near; keeps products of two sizes in 64 bits

void check_heads(const ModelConfig& config, const std::string& source) {
  if (config.num_heads % config.num_kv_heads != 0) {
    throw ConfigError(source + ": " + std::to_string(config.num_heads) + " attention heads cannot share " +
                      std::to_string(config.num_kv_heads) + " KV heads evenly");
  }
  if (config.rope.rotary_dim <= 0 || config.rope.rotary_dim % 2 != 0 || config.rope.rotary_dim > config.head_dim) {
    throw ConfigError(source + ": " + std::to_string(config.rope.rotary_dim) + " rotated dimensions in heads of " +
                      std::to_string(config.head_dim));
  }
  if (!(config.rms_norm_eps >= 0.0) || config.rms_norm_eps > 1.0) {
    throw ConfigError(source + ": the RMS norm's epsilon is " + std::to_string(config.rms_norm_eps) + ", expected 0 to 1");
  }
}

// Positions are 32-bit numbers everywhere.
int64_t positions(const ConfigReader& reader, const std::string& key) {
  return reader.has(key) ? reader.integer_between(key, 1, std::numeric_limits<int32_t>::max()) : 2048;
}

}  // namespace

ModelConfig read_common_hf(const Json& json, const std::string& source) {
  const ConfigReader reader(json, source);
  ModelConfig config;
  config.vocab_size = reader.integer_between("vocab_size", 1, kMaxSize);
  config.hidden_size = reader.integer_between("hidden_size", 1, kMaxSize);
  config.intermediate_size = reader.integer_between("intermediate_size", 1, kMaxSize);
  config.num_layers = static_cast<int>(reader.integer_between("num_hidden_layers", 1, 10000));
  config.num_heads = static_cast<int>(reader.integer_between("num_attention_heads", 1, 65536));
  config.num_kv_heads = reader.has("num_key_value_heads")
                            ? static_cast<int>(reader.integer_between("num_key_value_heads", 1, config.num_heads))
                            : config.num_heads;
  config.head_dim = reader.has("head_dim") ? static_cast<int>(reader.integer_between("head_dim", 1, 65536))
                                           : static_cast<int>(config.hidden_size / config.num_heads);
  config.rms_norm_eps = reader.number("rms_norm_eps", 1e-6);
  config.max_position_embeddings = positions(reader, "max_position_embeddings");
  config.tie_word_embeddings = reader.boolean("tie_word_embeddings", false);
  config.hidden_act = reader.text("hidden_act", "silu");
  if (config.hidden_act != "silu" && config.hidden_act != "swish") {
    throw ConfigError(source + ": hidden_act not supported: " + config.hidden_act + "; nearest: silu");
  }
  if (reader.boolean("mlp_bias", false)) throw ConfigError(source + ": not supported: mlp_bias = true");
  config.dtype = reader.text("dtype", reader.text("torch_dtype", "float32"));
  config.eos_token_ids = reader.token_ids("eos_token_id");
  const auto bos = reader.token_ids("bos_token_id");
  if (!bos.empty()) config.bos_token_id = bos.front();
  read_rope_hf(reader, config);
  check_heads(config, source);
  return config;
}

ModelConfig read_common_gguf(const Json& metadata, const std::string& source) {
  const ConfigReader reader(metadata, source);
  const std::string arch = reader.text("general.architecture") + ".";
  ModelConfig config;
  config.hidden_size = reader.integer_between(arch + "embedding_length", 1, kMaxSize);
  config.intermediate_size = reader.integer_between(arch + "feed_forward_length", 1, kMaxSize);
  config.num_layers = static_cast<int>(reader.integer_between(arch + "block_count", 1, 10000));
  config.num_heads = static_cast<int>(reader.integer_between(arch + "attention.head_count", 1, 65536));
  config.num_kv_heads = reader.has(arch + "attention.head_count_kv")
                            ? static_cast<int>(reader.integer_between(arch + "attention.head_count_kv", 1, config.num_heads))
                            : config.num_heads;
  config.head_dim = reader.has(arch + "attention.key_length")
                        ? static_cast<int>(reader.integer_between(arch + "attention.key_length", 1, 65536))
                        : static_cast<int>(config.hidden_size / config.num_heads);
  config.rms_norm_eps = reader.number(arch + "attention.layer_norm_rms_epsilon");
  config.max_position_embeddings = positions(reader, arch + "context_length");
  config.sliding_window = reader.integer(arch + "attention.sliding_window", 0);
  config.dtype = "gguf";
  if (reader.integer(arch + "expert_count", 0) > 0) {
    throw ConfigError(source + ": not supported: a mixture of " +
                      std::to_string(reader.integer(arch + "expert_count")) + " experts; nearest: the dense models of this architecture");
  }
  // The vocabulary's size is that of its token list; older files say it nowhere else.
  if (const auto tokens = metadata.find("tokenizer.ggml.tokens"); tokens != metadata.end() && tokens->is_array()) {
    config.vocab_size = static_cast<int64_t>(tokens->size());
  } else {
    config.vocab_size = reader.integer_between(arch + "vocab_size", 1, kMaxSize);
  }
  config.eos_token_ids = reader.token_ids("tokenizer.ggml.eos_token_id");
  for (const char* key : {"tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"}) {
    for (int32_t id : reader.token_ids(key)) config.eos_token_ids.push_back(id);
  }
  const auto bos = reader.token_ids("tokenizer.ggml.bos_token_id");
  if (!bos.empty()) config.bos_token_id = bos.front();
  read_rope_gguf(reader, arch, config);
  check_heads(config, source);
  return config;
}

}  // namespace tutti
