#include "models/rope_config.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace tutti {
namespace {

RopeScalingType scaling_type(const std::string& name, const std::string& source) {
  if (name == "default" || name == "none" || name == "mrope") return RopeScalingType::kNone;
  if (name == "linear") return RopeScalingType::kLinear;
  if (name == "dynamic") return RopeScalingType::kDynamic;
  if (name == "yarn") return RopeScalingType::kYarn;
  if (name == "llama3") return RopeScalingType::kLlama3;
  if (name == "longrope" || name == "su") return RopeScalingType::kLongRope;
  throw ConfigError(source + ": rope scaling not supported: " + name +
                    " (supported: default, linear, dynamic, yarn, llama3, longrope)");
}

// The context that the scaled model is made for.
void extend_context(ModelConfig& config) {
  const RopeConfig& rope = config.rope;
  const auto scaled = [&](int64_t positions) { return static_cast<int64_t>(std::llround(static_cast<double>(positions) * rope.factor)); };
  if (rope.scaling == RopeScalingType::kLinear || rope.scaling == RopeScalingType::kDynamic) {
    config.max_position_embeddings = scaled(config.max_position_embeddings);
  } else if (rope.scaling == RopeScalingType::kYarn) {
    config.max_position_embeddings = std::max(config.max_position_embeddings, scaled(rope.original_max_position));
  }
}

void check_scaling(const RopeConfig& rope, const std::string& source) {
  if (!(rope.theta > 0.0)) throw ConfigError(source + ": rope_theta must be positive, found " + std::to_string(rope.theta));
  if (rope.scaling == RopeScalingType::kNone) return;
  if (!(rope.factor > 0.0)) throw ConfigError(source + ": the rope scaling's factor must be positive");
  if (rope.scaling != RopeScalingType::kLinear && rope.original_max_position < 1) {
    throw ConfigError(source + ": the rope scaling needs the original context length");
  }
  if (rope.scaling == RopeScalingType::kLlama3 && rope.high_freq_factor <= rope.low_freq_factor) {
    throw ConfigError(source + ": the rope scaling's high_freq_factor must be above its low_freq_factor");
  }
}

void read_scaling(const ConfigReader& scaling, const ConfigReader& reader, ModelConfig& config) {
  RopeConfig& rope = config.rope;
  rope.scaling = scaling_type(scaling.text("rope_type", scaling.text("type", "default")), scaling.source());
  rope.original_max_position =
      scaling.integer("original_max_position_embeddings",
                      reader.integer("original_max_position_embeddings", config.max_position_embeddings));
  // LongRoPE files state the two lengths in place of their quotient.
  rope.factor = scaling.number("factor", rope.original_max_position > 0
                                             ? static_cast<double>(config.max_position_embeddings) /
                                                   static_cast<double>(rope.original_max_position)
                                             : 1.0);
  rope.low_freq_factor = scaling.number("low_freq_factor", rope.low_freq_factor);
  rope.high_freq_factor = scaling.number("high_freq_factor", rope.high_freq_factor);
  rope.attention_factor = scaling.number("attention_factor", 0.0);
  rope.beta_fast = scaling.number("beta_fast", rope.beta_fast);
  rope.beta_slow = scaling.number("beta_slow", rope.beta_slow);
  rope.mscale = scaling.number("mscale", 0.0);
  rope.mscale_all_dim = scaling.number("mscale_all_dim", 0.0);
  rope.truncate = scaling.boolean("truncate", true);
  rope.short_factor = scaling.numbers("short_factor");
  rope.long_factor = scaling.numbers("long_factor");
}

}  // namespace

void read_rope_hf(const ConfigReader& reader, ModelConfig& config) {
  RopeConfig& rope = config.rope;
  rope.theta = reader.number("rope_theta", 10000.0);
  double partial = reader.number("partial_rotary_factor", 1.0);
  const auto parameters = reader.object("rope_parameters");
  const auto scaling = reader.object("rope_scaling");
  if (parameters) {
    rope.theta = parameters->number("rope_theta", rope.theta);
    partial = parameters->number("partial_rotary_factor", partial);
  }
  if (scaling) {
    read_scaling(*scaling, reader, config);
  } else if (parameters) {
    read_scaling(*parameters, reader, config);
  }
  rope.rotary_dim = static_cast<int>(config.head_dim * partial);
  check_scaling(rope, reader.source());
  extend_context(config);
}

void read_rope_gguf(const ConfigReader& reader, const std::string& arch, ModelConfig& config) {
  RopeConfig& rope = config.rope;
  rope.theta = reader.number(arch + "rope.freq_base", 10000.0);
  rope.rotary_dim = static_cast<int>(reader.integer(arch + "rope.dimension_count", config.head_dim));
  rope.scaling = scaling_type(reader.text(arch + "rope.scaling.type", "none"), reader.source());
  rope.factor = reader.number(arch + "rope.scaling.factor", 1.0);
  rope.original_max_position = reader.integer(arch + "rope.scaling.original_context_length", config.max_position_embeddings);
  // This format's factor multiplies the paper's.
  const double attention = reader.number(arch + "rope.scaling.attn_factor", 1.0);
  if (rope.scaling == RopeScalingType::kYarn) {
    rope.attention_factor = attention * (rope.factor > 1.0 ? 0.1 * std::log(rope.factor) + 1.0 : 1.0);
    rope.beta_fast = reader.number(arch + "rope.scaling.yarn_beta_fast", rope.beta_fast);
    rope.beta_slow = reader.number(arch + "rope.scaling.yarn_beta_slow", rope.beta_slow);
  }
  // "context_length" is already the scaled one in GGUF files.
  check_scaling(rope, reader.source());
}

}  // namespace tutti
