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

// Bytes to fetch while a tile is made: those of a pair of k of the panel, every so many pairs.
struct Ahead {
  const uint8_t* from = nullptr;  // nullptr: nothing
  int64_t every = 1;
};

// c[r][column .. column + kVectors vectors) (+)= sum over k of a(r, k) * panel(k, column ...).  `k` is even.
template <class V, class W, class Layout, int kRows, int kVectors = 2>
inline void plain_tile(const float* a, const uint8_t* panel, int column, int64_t k, float* c, int64_t ldc, bool first,
                       Ahead ahead = {}) {
  using F = typename V::F;
  constexpr int kPairBytes = 2 * kPanelRows * W::kElementBytes;
  F acc[kRows][kVectors];
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) acc[r][v] = first ? V::zero() : V::load(c + r * ldc + v * V::kLanes);
  }
  const auto add_products = [&](const F* w, const float* x) TUTTI_INLINE {
    for (int r = 0; r < kRows; ++r) {
      const F xr = V::set1(x[r * Layout::kRowStride]);
      for (int v = 0; v < kVectors; ++v) acc[r][v] = V::fma(w[v], xr, acc[r][v]);
    }
  };
  int64_t until_next = 1;
  for (int64_t i = 0; i < k; i += 2) {
    if (ahead.from != nullptr && --until_next == 0) {
      V::template prefetch<kPairBytes>(ahead.from);
      ahead.from += kPairBytes;
      until_next = ahead.every;
    }
    F w[kVectors];
    for (int v = 0; v < kVectors; ++v) w[v] = W::template load_first<V>(panel, column + v * V::kLanes);
    add_products(w, a);
    const uint8_t* again = V::another(panel);  // loaded twice: accumulators need the registers
    for (int v = 0; v < kVectors; ++v) w[v] = W::template load_second<V>(again, column + v * V::kLanes);
    add_products(w, a + Layout::kStep);
    a += 2 * Layout::kStep;
    panel += kPairBytes;
  }
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) V::store(c + r * ldc + v * V::kLanes, acc[r][v]);
  }
}

// Vectors of a tile: a chain of additions has to wait for itself, so that few rows want more vectors.
template <class V, int kRows>
inline constexpr int kPlainVectors = kRows <= 2 && kPanelRows / V::kLanes >= 4 ? 4 : 2;

// LevelKernels::panel for plain weights.
template <class V, class W>
void plain_panel(const uint8_t* panel, int64_t k, const uint8_t* tiles, int64_t rows, float* c, int64_t ldc) {
  const int64_t padded_k = k + k % 2;
  for (int64_t k0 = 0; k0 < padded_k; k0 += kPlainChunk) {
    const int64_t count = padded_k - k0 < kPlainChunk ? padded_k - k0 : kPlainChunk;
    const uint8_t* chunk = panel + k0 * kPanelRows * W::kElementBytes;
    // One tile reads the chunk as it comes; where several do, each fetches a share of the next chunk.
    const bool stream = rows <= V::kFloatTileRows;
    const int64_t sharing = tiles_that_fetch<V>(rows, V::kFloatTileRows);
    const uint8_t* next = chunk + (stream ? V::kPrefetchBytes : count * kPanelRows * W::kElementBytes);
    const int64_t share = (count / 2 + sharing - 1) / sharing * 2 * kPanelRows * W::kElementBytes;
    int64_t tile = 0;
    for (int64_t r0 = 0; r0 < rows; ++tile) {
      const int tile_rows = next_tile_rows<V>(rows - r0, V::kFloatTileRows);
      const bool fetches = tile < sharing && (!stream || V::kPrefetchBytes > 0);
      const float* a = reinterpret_cast<const float*>(tiles) + r0 * padded_k + k0 * tile_rows;
      with_tile_rows<V::kFloatTileRows>(tile_rows, [&]<int kRows>() TUTTI_INLINE {
        constexpr int kVectors = kPlainVectors<V, kRows>;
        for (int column = 0; column < kPanelRows; column += kVectors * V::kLanes) {
          plain_tile<V, W, InterleavedRows<kRows>, kRows, kVectors>(a, chunk, column, count, c + r0 * ldc + column, ldc, k0 == 0,
                                                                  Ahead{fetches && column == 0 ? next + tile * share : nullptr, sharing});
        }
      });
      r0 += tile_rows;
    }
  }
}

// LevelKernels::panels_in_turn for plain weights: one row takes some elements of each panel in turn.
template <class V, class W>
void plain_panels_in_turn(const uint8_t* const* panels, int64_t k, const uint8_t* tiles, int64_t rows, float* const* c,
                          int64_t ldc) {
  using F = typename V::F;
  constexpr int kPairBytes = 2 * kPanelRows * W::kElementBytes, kVectors = kPanelRows / V::kLanes;
  constexpr int64_t kStep = 8;  // elements of a panel before the next one's
  if (rows > 1) {
    for (int p = 0; p < kPanelsInTurn; ++p) plain_panel<V, W>(panels[p], k, tiles, rows, c[p], ldc);
    return;
  }
  const float* a = reinterpret_cast<const float*>(tiles);
  for (int64_t k0 = 0; k0 < k; k0 += kStep) {
    const int64_t end = k - k0 < kStep ? k : k0 + kStep;
    for (int p = 0; p < kPanelsInTurn; ++p) {
      const uint8_t* pair = panels[p] + k0 / 2 * kPairBytes;
      F acc[kVectors];
      for (int v = 0; v < kVectors; ++v) acc[v] = k0 == 0 ? V::zero() : V::load(c[p] + v * V::kLanes);
      for (int64_t i = k0; i < end; i += 2, pair += kPairBytes) {
        const F x = V::set1(a[i]), y = V::set1(a[i + 1]);
        for (int v = 0; v < kVectors; ++v) acc[v] = V::fma(W::template load_first<V>(pair, v * V::kLanes), x, acc[v]);
        for (int v = 0; v < kVectors; ++v) acc[v] = V::fma(W::template load_second<V>(pair, v * V::kLanes), y, acc[v]);
      }
      for (int v = 0; v < kVectors; ++v) V::store(c[p] + v * V::kLanes, acc[v]);
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
