// Attention of a block of query rows over one split of the keys (level.h), for any vector type V and cache type. Keys
// are taken kKeyStep at a time. For many rows they and their values are first made floats in scratch, and scores and
// weighted values are the plain matrix kernel with them as a panel; few rows (decode) read the cache itself, with the
// same additions in the same order. What a row computes depends on its position and the key positions alone: rows
// beside it only share the loads.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "ops/cpu/plain_kernels.h"
#include "ops/cpu/vector_kernels.h"

namespace tutti::cpu {

// Where the elements of one token (or, for keys, of consecutive tokens) of a block and head begin. The scales are those of
// CacheQ8; other caches have none.
struct CachePlace {
  const uint8_t* elements;
  const uint8_t* scales;
};

// How elements lie inside one block and head: keys [head_dim][block_size], values [block_size][head_dim].
template <class Element>
struct PlainCache {
  static constexpr int kBytes = Element::kBytes;
  static int64_t head_bytes(int64_t block_size, int64_t head_dim) { return block_size * head_dim * kBytes; }
  static CachePlace keys_at(const uint8_t* head, int64_t token, int64_t, int64_t) { return {head + token * kBytes, nullptr}; }
  static CachePlace values_at(const uint8_t* head, int64_t token, int64_t, int64_t head_dim) {
    return {head + token * head_dim * kBytes, nullptr};
  }
  // Dimension d of the keys of V::kLanes tokens, of one token.
  template <class V>
  static typename V::F keys(const CachePlace& at, int64_t d, int64_t block_size) {
    return Element::template load<V>(at.elements + d * block_size * kBytes);
  }
  template <class V>
  static float key(const CachePlace& at, int64_t d, int64_t block_size) {
    return Element::template scalar<V>(at.elements + d * block_size * kBytes);
  }
  // V::kLanes dimensions of one token's value from d on, one dimension.
  template <class V>
  static typename V::F values(const CachePlace& at, int64_t d) {
    return Element::template load<V>(at.elements + d * kBytes);
  }
  template <class V>
  static float value(const CachePlace& at, int64_t d) {
    return Element::template scalar<V>(at.elements + d * kBytes);
  }
};

struct ElementF32 {
  static constexpr int kBytes = 4;
  template <class V>
  static typename V::F load(const uint8_t* p) {
    return V::load(reinterpret_cast<const float*>(p));
  }
  template <class V>
  static float scalar(const uint8_t* p) {
    float f;
    std::memcpy(&f, p, 4);
    return f;
  }
};

struct ElementBF16 {
  static constexpr int kBytes = 2;
  template <class V>
  static typename V::F load(const uint8_t* p) {
    return V::load_bf16(reinterpret_cast<const uint16_t*>(p));
  }
  template <class V>
  static float scalar(const uint8_t* p) {
    uint16_t b;
    std::memcpy(&b, p, 2);
    return bf16_to_float<V>(b);
  }
};

using CacheF32 = PlainCache<ElementF32>;
using CacheBF16 = PlainCache<ElementBF16>;

// int8 codes, then a half-precision scale for each token and 32 dimensions: keys [head_dim / 32][block_size], values
// [block_size][head_dim / 32]. The product of the two is exact in float.
struct CacheQ8 {
  static int64_t head_bytes(int64_t block_size, int64_t head_dim) { return block_size * (head_dim + head_dim / kBlock * 2); }
  static CachePlace keys_at(const uint8_t* head, int64_t token, int64_t block_size, int64_t head_dim) {
    return {head + token, head + block_size * head_dim + token * 2};
  }
  static CachePlace values_at(const uint8_t* head, int64_t token, int64_t block_size, int64_t head_dim) {
    return {head + token * head_dim, head + block_size * head_dim + token * (head_dim / kBlock) * 2};
  }
  template <class V>
  static typename V::F keys(const CachePlace& at, int64_t d, int64_t block_size) {
    return V::mul(V::load_i8(reinterpret_cast<const int8_t*>(at.elements) + d * block_size),
                  V::load_half(reinterpret_cast<const uint16_t*>(at.scales) + d / kBlock * block_size));
  }
  template <class V>
  static float key(const CachePlace& at, int64_t d, int64_t block_size) {
    return static_cast<float>(static_cast<int8_t>(at.elements[d * block_size])) * scale<V>(at.scales + d / kBlock * block_size * 2);
  }
  template <class V>
  static typename V::F values(const CachePlace& at, int64_t d) {
    return V::mul(V::load_i8(reinterpret_cast<const int8_t*>(at.elements) + d), V::set1(scale<V>(at.scales + d / kBlock * 2)));
  }
  template <class V>
  static float value(const CachePlace& at, int64_t d) {
    return static_cast<float>(static_cast<int8_t>(at.elements[d])) * scale<V>(at.scales + d / kBlock * 2);
  }

 private:
  template <class V>
  static float scale(const uint8_t* p) {
    uint16_t h;
    std::memcpy(&h, p, 2);
    return half_to_float<V>(h);
  }
};

// Keys in the cache: a vector of keys is at[vector].
template <class V, class Cache>
struct CachedKeys {
  CachePlace at[kKeyStep / V::kLanes];
  int64_t block_size;
  typename V::F load(int64_t d, int64_t column) const { return Cache::template keys<V>(at[column / V::kLanes], d, block_size); }
};

// Values in the cache: those of key j are at[j].
template <class V, class Cache>
struct CachedValues {
  CachePlace at[kKeyStep];
  typename V::F load(int64_t j, int64_t column) const { return Cache::template values<V>(at[j], column); }
};

// As plain_tile(), from the cache itself.
template <class V, class Source, class Layout, int kRows>
inline void cached_tile(const float* a, const Source& source, int64_t column, int64_t k, float* c, int64_t ldc, bool first) {
  typename V::F acc[kRows][2];
  for (int r = 0; r < kRows; ++r) {
    acc[r][0] = first ? V::zero() : V::load(c + r * ldc);
    acc[r][1] = first ? V::zero() : V::load(c + r * ldc + V::kLanes);
  }
  for (int64_t i = 0; i < k; ++i) {
    const auto w0 = source.load(i, column), w1 = source.load(i, column + V::kLanes);
    for (int r = 0; r < kRows; ++r) {
      const auto x = V::set1(a[r * Layout::kRowStride + i * Layout::kStep]);
      acc[r][0] = V::fma(w0, x, acc[r][0]);
      acc[r][1] = V::fma(w1, x, acc[r][1]);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    V::store(c + r * ldc, acc[r][0]);
    V::store(c + r * ldc + V::kLanes, acc[r][1]);
  }
}

template <class V, class Cache>
class SplitKernel {
 public:
  explicit SplitKernel(const AttentionSplit& split) : s_(split), padded_((split.head_dim + 31) / 32 * 32) {
    keys_ = s_.scratch;
    values_ = keys_ + padded_ * kKeyStep;
    scores_ = values_ + padded_ * kKeyStep;
    lanes_ = scores_ + kAttentionRows * kKeyStep;
    for (int64_t r = 0; r < s_.rows; ++r) positions_[r] = s_.first_position + (s_.first_row + r) / s_.group;
  }

  void run() {
    for (int64_t r = 0; r < s_.rows; ++r) {
      s_.max[r] = -INFINITY;
      for (int i = 0; i < kKeyStep; ++i) lanes_[r * kKeyStep + i] = 0.0f;
      for (int64_t d = 0; d < padded_; ++d) s_.out[r * padded_ + d] = 0.0f;
    }
    for (int64_t begin = s_.begin; begin < s_.end; begin += kKeyStep) step(begin);
    for (int64_t r = 0; r < s_.rows; ++r) s_.sum[r] = tree_sum<V>(lanes_ + r * kKeyStep);
  }

 private:
  static constexpr int kFewRows = 4;

  int64_t position(int64_t row) const { return positions_[row]; }
  int64_t first_visible(int64_t row) const {
    const int64_t first = s_.sliding_window > 0 ? position(row) - s_.sliding_window + 1 : 0;
    return first > 0 ? first : 0;
  }

  void step(int64_t begin) {
    // Positions grow with the row, so the rows that see a key of this step are consecutive.
    int64_t row_begin = 0, row_end = s_.rows;
    while (row_begin < s_.rows && position(row_begin) < begin) ++row_begin;
    while (row_end > row_begin && first_visible(row_end - 1) >= begin + kKeyStep) --row_end;
    if (row_begin >= row_end) return;
    fetch_ahead(begin + kKeyStep);
    direct_ = s_.rows <= kFewRows && s_.block_size % V::kLanes == 0 && s_.head_dim % kPanelRows == 0;
    if (direct_) {
      point_at_cache(begin);
    } else {
      load_keys(begin);
      load_values(begin);
    }
    for (int64_t r0 = 0; r0 < row_end;) {  // the tiles of q that have one of these rows
      const int rows = next_tile_rows<V>(s_.rows - r0, V::kFloatTileRows);
      if (r0 + rows > row_begin) {
        with_tile_rows<V::kFloatTileRows>(rows, [&]<int kRows>() { multiply_keys<kRows>(r0); });
      }
      r0 += rows;
    }
    for (int64_t r = row_begin; r < row_end; ++r) soften(r, begin);
    for (int64_t r0 = row_begin; r0 < row_end;) {
      const int rows = next_tile_rows<V>(row_end - r0, V::kFloatTileRows);
      with_tile_rows<V::kFloatTileRows>(rows, [&]<int kRows>() { add_values<kRows>(r0); });
      r0 += rows;
    }
  }

  const uint8_t* block_of(const uint8_t* base, int64_t position) const {
    return base + static_cast<int64_t>(s_.block_table[position / s_.block_size]) * s_.block_stride;
  }

  // Asks for the keys and values of the next step.
  void fetch_ahead(int64_t begin) const {
    const int64_t end = begin + kKeyStep < s_.seq_len ? begin + kKeyStep : s_.seq_len;
    const int64_t bytes = Cache::head_bytes(s_.block_size, s_.head_dim);
    for (int64_t p = begin; p < end; p += s_.block_size) {
      const uint8_t *keys = block_of(s_.keys, p), *values = block_of(s_.values, p);
      for (int64_t i = 0; i < bytes; i += 64) {
        V::template prefetch<64>(keys + i);
        V::template prefetch<64>(values + i);
      }
    }
  }

  CachePlace keys_at(int64_t position) const {
    return Cache::keys_at(block_of(s_.keys, position), position % s_.block_size, s_.block_size, s_.head_dim);
  }
  CachePlace values_at(int64_t position) const {
    return Cache::values_at(block_of(s_.values, position), position % s_.block_size, s_.block_size, s_.head_dim);
  }

  void point_at_cache(int64_t begin) {
    cached_keys_.block_size = s_.block_size;
    for (int64_t v = 0; v < kKeyStep / V::kLanes; ++v) {
      const int64_t p = begin + v * V::kLanes;
      // Keys past the end are masked later: any readable memory will do.
      cached_keys_.at[v] = p < s_.end ? keys_at(p) : cached_keys_.at[0];
    }
    const auto* zeros = reinterpret_cast<const uint8_t*>(zeros_);
    for (int64_t j = 0; j < kKeyStep; ++j) {
      cached_values_.at[j] = begin + j < s_.end ? values_at(begin + j) : CachePlace{zeros, zeros};
    }
  }

  // keys_[d][key]; keys past the split's end keep what was there and are masked later.
  void load_keys(int64_t begin) {
    for (int64_t j = 0; j < kKeyStep && begin + j < s_.end;) {
      const CachePlace at = keys_at(begin + j);
      const bool whole = (s_.block_size - (begin + j) % s_.block_size) % V::kLanes == 0 && kKeyStep - j >= V::kLanes;
      if (whole) {
        for (int64_t d = 0; d < s_.head_dim; ++d) V::store(keys_ + d * kKeyStep + j, Cache::template keys<V>(at, d, s_.block_size));
        j += V::kLanes;
      } else {
        for (int64_t d = 0; d < s_.head_dim; ++d) keys_[d * kKeyStep + j] = Cache::template key<V>(at, d, s_.block_size);
        ++j;
      }
    }
  }

  // values_[d / 32][key][d % 32], zeros past the split's end and past head_dim.
  void load_values(int64_t begin) {
    for (int64_t j = 0; j < kKeyStep; ++j) {
      int64_t d = 0;
      if (begin + j < s_.end) {
        const CachePlace at = values_at(begin + j);
        for (; d + V::kLanes <= s_.head_dim; d += V::kLanes) V::store(value_at(d, j), Cache::template values<V>(at, d));
        for (; d < s_.head_dim; ++d) *value_at(d, j) = Cache::template value<V>(at, d);
      }
      for (; d < padded_; ++d) *value_at(d, j) = 0.0f;
    }
  }
  float* value_at(int64_t d, int64_t key) { return values_ + (d / kPanelRows * kKeyStep + key) * kPanelRows + d % kPanelRows; }

  template <int kRows>
  void multiply_keys(int64_t r0) {
    for (int column = 0; column < kKeyStep; column += 2 * V::kLanes) {
      if constexpr (kRows <= kFewRows) {
        if (direct_) {
          cached_tile<V, CachedKeys<V, Cache>, InterleavedRows<kRows>, kRows>(
              s_.q + r0 * s_.head_dim, cached_keys_, column, s_.head_dim, scores_ + r0 * kKeyStep + column, kKeyStep, true);
          continue;
        }
      }
      plain_tile<V, PlainF32, InterleavedRows<kRows>, kRows>(s_.q + r0 * s_.head_dim, reinterpret_cast<const uint8_t*>(keys_),
                                                             column, s_.head_dim, scores_ + r0 * kKeyStep + column,
                                                             kKeyStep, true);
    }
  }

  // Scores of one row become exp(score - max); what the row had so far is rescaled when the maximum grows.
  void soften(int64_t row, int64_t begin) {
    using F = typename V::F;
    float* scores = scores_ + row * kKeyStep;
    if (s_.soft_cap > 0) cap(scores);
    const int64_t low = first_visible(row) - begin, high = position(row) + 1 - begin;
    for (int64_t j = 0; j < low && j < kKeyStep; ++j) scores[j] = -INFINITY;
    for (int64_t j = high; j < kKeyStep; ++j) scores[j] = -INFINITY;
    F largest = V::load(scores);
    for (int j = V::kLanes; j < kKeyStep; j += V::kLanes) largest = V::max(largest, V::load(scores + j));
    const float step_max = V::reduce_max(largest);
    float* lanes = lanes_ + row * kKeyStep;
    if (step_max > s_.max[row]) {
      const F factor = vector_exp<V>(V::set1(s_.max[row] - step_max));
      s_.max[row] = step_max;
      for (int j = 0; j < kKeyStep; j += V::kLanes) V::store(lanes + j, V::mul(V::load(lanes + j), factor));
      float* out = s_.out + row * padded_;
      for (int64_t d = 0; d < padded_; d += V::kLanes) V::store(out + d, V::mul(V::load(out + d), factor));
    }
    const F max = V::set1(s_.max[row]);
    for (int j = 0; j < kKeyStep; j += V::kLanes) {
      const F p = vector_exp<V>(V::sub(V::load(scores + j), max));
      V::store(scores + j, p);
      V::store(lanes + j, V::add(V::load(lanes + j), p));
    }
  }

  // cap * tanh(score / cap), with tanh(x) = 1 - 2 / (exp(2x) + 1)
  void cap(float* scores) const {
    const auto one = V::set1(1.0f), two = V::set1(2.0f);
    for (int j = 0; j < kKeyStep; j += V::kLanes) {
      const auto e = vector_exp<V>(V::mul(V::load(scores + j), V::set1(2.0f / s_.soft_cap)));
      const auto tanh = V::sub(one, V::div(two, V::add(e, one)));
      V::store(scores + j, V::mul(V::set1(s_.soft_cap), tanh));
    }
  }

  template <int kRows>
  void add_values(int64_t r0) {
    for (int64_t d = 0; d < padded_; d += kPanelRows) {
      for (int column = 0; column < kPanelRows; column += 2 * V::kLanes) {
        if constexpr (kRows <= kFewRows) {
          if (direct_) {
            cached_tile<V, CachedValues<V, Cache>, RowsOf32, kRows>(scores_ + r0 * kKeyStep, cached_values_, d + column,
                                                                    kKeyStep, s_.out + r0 * padded_ + d + column, padded_,
                                                                    false);
            continue;
          }
        }
        plain_tile<V, PlainF32, RowsOf32, kRows>(scores_ + r0 * kKeyStep, reinterpret_cast<const uint8_t*>(values_ + d * kKeyStep),
                                                 column, kKeyStep, s_.out + r0 * padded_ + d + column, padded_, false);
      }
    }
  }

  const AttentionSplit& s_;
  const int64_t padded_;
  float *keys_, *values_, *scores_, *lanes_;
  int64_t positions_[kAttentionRows];
  bool direct_ = false;
  CachedKeys<V, Cache> cached_keys_;
  CachedValues<V, Cache> cached_values_;
  alignas(64) static constexpr float zeros_[kMaxHeadDim] = {};
};

template <class V, class Cache>
void attend_split(const AttentionSplit& split) {
  SplitKernel<V, Cache>(split).run();
}

// LevelKernels::merge_split
template <class V>
void merge_split(int64_t n, float split_max, float split_sum, const float* split_out, float* max, float* sum, float* out) {
  if (split_max == -INFINITY) return;
  const float new_max = *max > split_max ? *max : split_max;
  float factors[2][V::kLanes];
  V::store(factors[0], vector_exp<V>(V::set1(*max - new_max)));
  V::store(factors[1], vector_exp<V>(V::set1(split_max - new_max)));
  const float old_factor = factors[0][0], new_factor = factors[1][0];
  *max = new_max;
  *sum = *sum * old_factor + split_sum * new_factor;
  for (int64_t d = 0; d < n; d += V::kLanes) {
    V::store(out + d, V::add(V::mul(V::load(out + d), V::set1(old_factor)), V::mul(V::load(split_out + d), V::set1(new_factor))));
  }
}

}  // namespace tutti::cpu
