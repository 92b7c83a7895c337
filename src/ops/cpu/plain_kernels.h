// Matrix kernels of plain (F32, F16, BF16) weights, for any vector type V. Every output is one chain of fused
// multiply-adds in k order, carried through memory between chunks of k, so its bits do not depend on the tile.
#pragma once

#include <cstdint>

#include "ops/cpu/formats/plain.h"
#include "ops/cpu/layout.h"
#include "ops/cpu/unroll.h"

namespace tutti::cpu {

// Where a tile's element (row, k) is: interleaved as layout.h says, or rows of 32 (attention's probabilities).
template <int kRows>
struct InterleavedRows {
  static constexpr int kRowStride = 1, kStep = kRows;
};
struct RowsOf32 {
  static constexpr int kRowStride = kPanelRows, kStep = 1;
};

// c[r][column .. column + 2 vectors) (+)= sum over k of a(r, k) * panel(k, column ...).  `k` is even.
template <class V, class W, class Layout, int kRows>
inline void plain_tile(const float* a, const uint8_t* panel, int column, int64_t k, float* c, int64_t ldc, bool first) {
  using F = typename V::F;
  constexpr int kPairBytes = 2 * kPanelRows * W::kElementBytes;
  F acc[kRows][2];
  for (int r = 0; r < kRows; ++r) {
    acc[r][0] = first ? V::zero() : V::load(c + r * ldc);
    acc[r][1] = first ? V::zero() : V::load(c + r * ldc + V::kLanes);
  }
  for (int64_t i = 0; i < k; i += 2) {
    if constexpr (kRows <= 4) {
      if (column == 0) V::template prefetch<kPairBytes>(panel + V::kPrefetchBytes);
    }
    const F w0 = W::template load_first<V>(panel, column), w1 = W::template load_first<V>(panel, column + V::kLanes);
    for (int r = 0; r < kRows; ++r) {
      const F x = V::set1(a[r * Layout::kRowStride]);
      acc[r][0] = V::fma(w0, x, acc[r][0]);
      acc[r][1] = V::fma(w1, x, acc[r][1]);
    }
    const F w2 = W::template load_second<V>(panel, column), w3 = W::template load_second<V>(panel, column + V::kLanes);
    for (int r = 0; r < kRows; ++r) {
      const F x = V::set1(a[r * Layout::kRowStride + Layout::kStep]);
      acc[r][0] = V::fma(w2, x, acc[r][0]);
      acc[r][1] = V::fma(w3, x, acc[r][1]);
    }
    a += 2 * Layout::kStep;
    panel += kPairBytes;
  }
  for (int r = 0; r < kRows; ++r) {
    V::store(c + r * ldc, acc[r][0]);
    V::store(c + r * ldc + V::kLanes, acc[r][1]);
  }
}

// LevelKernels::panel for plain weights.
template <class V, class W>
void plain_panel(const uint8_t* panel, int64_t k, const uint8_t* tiles, int64_t rows, float* c, int64_t ldc) {
  const int64_t padded_k = k + k % 2;
  for (int64_t k0 = 0; k0 < padded_k; k0 += kPlainChunk) {
    const int64_t count = padded_k - k0 < kPlainChunk ? padded_k - k0 : kPlainChunk;
    const uint8_t* chunk = panel + k0 * kPanelRows * W::kElementBytes;
    for (int64_t r0 = 0; r0 < rows;) {
      const int tile_rows = next_tile_rows<V>(rows - r0, V::kFloatTileRows);
      const float* a = reinterpret_cast<const float*>(tiles) + r0 * padded_k + k0 * tile_rows;
      with_tile_rows<V::kFloatTileRows>(tile_rows, [&]<int kRows>() TUTTI_INLINE {
        for (int column = 0; column < kPanelRows; column += 2 * V::kLanes) {
          plain_tile<V, W, InterleavedRows<kRows>, kRows>(a, chunk, column, count, c + r0 * ldc + column, ldc, k0 == 0);
        }
      });
      r0 += tile_rows;
    }
  }
}

// LevelKernels::float_tile
template <class V>
void interleave_tile(const float* x, int64_t stride, int rows, int64_t k, uint8_t* tile) {
  float* out = reinterpret_cast<float*>(tile);
  for (int64_t i = 0; i < k; ++i) {
    for (int r = 0; r < rows; ++r) out[i * rows + r] = x[r * stride + i];
  }
  if (k % 2 != 0) {
    for (int r = 0; r < rows; ++r) out[k * rows + r] = 0.0f;
  }
}

}  // namespace tutti::cpu
