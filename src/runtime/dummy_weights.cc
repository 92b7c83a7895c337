#include "runtime/dummy_weights.h"

#include <cmath>

namespace tutti {
namespace {

uint64_t mix(uint64_t x) {  // the finaliser of SplitMix64
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

uint64_t name_hash(const std::string& name) {  // FNV-1a
  uint64_t hash = 0xcbf29ce484222325ULL;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  return hash;
}

// Uniform in [-1, 1).
float symmetric(uint64_t key, int64_t index) {
  const uint64_t bits = mix(key + static_cast<uint64_t>(index) * 0x9e3779b97f4a7c15ULL);
  return static_cast<float>(static_cast<int64_t>(bits >> 40) - (int64_t{1} << 23)) * 0x1p-23f;
}

}  // namespace

Tensor dummy_values(const Parameter& parameter, ThreadPool& pool) {
  const uint64_t key = mix(name_hash(parameter.name));
  const bool by_rows = parameter.shard.dim == ShardRule::Dim::kRows;
  const int64_t first_row = by_rows ? parameter.shard.range.begin : 0;
  const int64_t rows = parameter.local_rows();
  if (parameter.is_vector()) {
    const bool is_bias = parameter.name.ends_with(".bias");
    Tensor values = Tensor::empty({rows}, DType::kF32);
    for (int64_t i = 0; i < rows; ++i) {
      values.data_as<float>()[i] = (is_bias ? 0.0f : 1.0f) + 0.1f * symmetric(key, first_row + i);
    }
    return values;
  }
  const int64_t first_column = parameter.shard.dim == ShardRule::Dim::kColumns ? parameter.shard.range.begin : 0;
  const int64_t columns = parameter.local_columns();
  const float scale = std::sqrt(3.0f / static_cast<float>(parameter.columns));
  Tensor values = Tensor::empty({rows, columns}, DType::kF32);
  pool.parallel_for(rows, 16, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      float* out = values.row<float>(r);
      const int64_t base = (first_row + r) * parameter.columns + first_column;
      for (int64_t c = 0; c < columns; ++c) out[c] = scale * symmetric(key, base + c);
    }
  });
  return values;
}

}  // namespace tutti
