#include "nn/rotary.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/error.h"
#include "ops/ops.h"
#include "tensor/device_memory.h"

namespace tutti {
namespace {

std::vector<double> plain_frequencies(double theta, int rotary_dim) {
  std::vector<double> freq(rotary_dim / 2);
  for (size_t i = 0; i < freq.size(); ++i) freq[i] = std::pow(theta, -2.0 * static_cast<double>(i) / rotary_dim);
  return freq;
}

// "Dynamic NTK": the base grows so that the lowest frequency spans the longer context.
double dynamic_theta(const RopeConfig& rope, int64_t max_positions) {
  const auto trained = static_cast<double>(rope.original_max_position);
  const double length = std::max(static_cast<double>(max_positions), trained);
  const double growth = rope.factor * length / trained - (rope.factor - 1.0);
  return rope.theta * std::pow(growth, rope.rotary_dim / (rope.rotary_dim - 2.0));
}

double yarn_magnitude(double factor, double mscale) {
  return factor <= 1.0 ? 1.0 : 0.1 * mscale * std::log(factor) + 1.0;
}

// YaRN (arXiv:2309.00071): high frequencies keep their value, low ones are interpolated, with a ramp between.
void apply_yarn(const RopeConfig& rope, RopeFrequencies& result) {
  const double dim = rope.rotary_dim;
  const auto pair_of_rotations = [&](double rotations) {
    return dim * std::log(static_cast<double>(rope.original_max_position) / (rotations * 2.0 * std::numbers::pi)) /
           (2.0 * std::log(rope.theta));
  };
  double low = pair_of_rotations(rope.beta_fast);
  double high = pair_of_rotations(rope.beta_slow);
  if (rope.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, dim - 1.0);
  if (low == high) high += 0.001;  // the ramp needs a width
  for (size_t i = 0; i < result.inv_freq.size(); ++i) {
    const double interpolated = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    result.inv_freq[i] *= interpolated / rope.factor + (1.0 - interpolated);
  }
  if (rope.attention_factor > 0.0) {
    result.magnitude = rope.attention_factor;
  } else if (rope.mscale > 0.0 && rope.mscale_all_dim > 0.0) {
    result.magnitude = yarn_magnitude(rope.factor, rope.mscale) / yarn_magnitude(rope.factor, rope.mscale_all_dim);
  } else {
    result.magnitude = yarn_magnitude(rope.factor, 1.0);
  }
}

// Llama 3.1: wavelengths beyond the trained context are stretched, short ones kept, the rest blended.
void apply_llama3(const RopeConfig& rope, std::vector<double>& inv_freq) {
  const auto trained = static_cast<double>(rope.original_max_position);
  for (double& freq : inv_freq) {
    const double rotations = trained * freq / (2.0 * std::numbers::pi);
    const double keep = std::clamp((rotations - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor), 0.0, 1.0);
    freq = (1.0 - keep) * freq / rope.factor + keep * freq;
  }
}

// LongRoPE (arXiv:2402.13753): one searched factor for each frequency.
void apply_longrope(const RopeConfig& rope, int64_t max_positions, RopeFrequencies& result) {
  const bool is_long = max_positions > rope.original_max_position;
  const std::vector<double>& factors = is_long ? rope.long_factor : rope.short_factor;
  if (factors.size() != result.inv_freq.size()) {
    throw ConfigError("rope scaling longrope: " + std::string(is_long ? "long_factor" : "short_factor") + " has " +
                      std::to_string(factors.size()) + " numbers, expected " + std::to_string(result.inv_freq.size()));
  }
  for (size_t i = 0; i < factors.size(); ++i) result.inv_freq[i] /= factors[i];
  if (rope.attention_factor > 0.0) {
    result.magnitude = rope.attention_factor;
  } else if (rope.factor > 1.0) {
    result.magnitude = std::sqrt(1.0 + std::log(rope.factor) / std::log(static_cast<double>(rope.original_max_position)));
  }
}

}  // namespace

RopeFrequencies rope_frequencies(const RopeConfig& rope, int64_t max_positions) {
  CHECK(rope.rotary_dim > 0 && rope.rotary_dim % 2 == 0);
  RopeFrequencies result;
  const bool dynamic = rope.scaling == RopeScalingType::kDynamic;
  result.inv_freq = plain_frequencies(dynamic ? dynamic_theta(rope, max_positions) : rope.theta, rope.rotary_dim);
  switch (rope.scaling) {
    case RopeScalingType::kNone:
    case RopeScalingType::kDynamic:
      break;
    case RopeScalingType::kLinear:
      for (double& freq : result.inv_freq) freq /= rope.factor;
      break;
    case RopeScalingType::kYarn:
      apply_yarn(rope, result);
      break;
    case RopeScalingType::kLlama3:
      apply_llama3(rope, result.inv_freq);
      break;
    case RopeScalingType::kLongRope:
      apply_longrope(rope, max_positions, result);
      break;
  }
  if (!rope.freq_factors.empty()) {
    if (rope.freq_factors.size() != result.inv_freq.size()) {
      throw ConfigError("rope_freqs.weight has " + std::to_string(rope.freq_factors.size()) + " numbers, expected " +
                        std::to_string(result.inv_freq.size()) + " (half of the rotated dimensions)");
    }
    for (size_t i = 0; i < result.inv_freq.size(); ++i) result.inv_freq[i] /= rope.freq_factors[i];
  }
  return result;
}

RotaryEmbedding::RotaryEmbedding(const RopeConfig& rope, int64_t max_positions, Device device) : layout_(rope.layout) {
  const RopeFrequencies frequencies = rope_frequencies(rope, max_positions);
  const auto pairs = static_cast<int64_t>(frequencies.inv_freq.size());
  const Tensor table = Tensor::empty({max_positions, 2, pairs}, DType::kF32);
  auto* out = table.data_as<float>();
  for (int64_t position = 0; position < max_positions; ++position) {
    for (int64_t i = 0; i < pairs; ++i) {
      // The reference multiplies in float32; the same rounding keeps long contexts comparable.
      const float angle = static_cast<float>(position) * static_cast<float>(frequencies.inv_freq[i]);
      out[i] = static_cast<float>(std::cos(static_cast<double>(angle)) * frequencies.magnitude);
      out[pairs + i] = static_cast<float>(std::sin(static_cast<double>(angle)) * frequencies.magnitude);
    }
    out += 2 * pairs;
  }
  cos_sin_ = cuda::to_device(table, device);
}

void RotaryEmbedding::forward(const ForwardStep& step, const Tensor& q, const Tensor& k, const Tensor& v,
                              const KVLayer& cache) const {
  ops::rope_write_kv(step.ctx, q, k, v, cos_sin_, layout_, step.meta, cache);
}

void RotaryEmbedding::forward(const ForwardStep& step, const ops::Input& x, const QKVParallelLinear& product, const KVLayer& cache,
                              const Tensor& qkv) const {
  ops::qkv_rope_write_kv(step.ctx, x, product.weight(), product.bias(), cos_sin_, layout_, step.meta, cache, qkv);
}

}  // namespace tutti
