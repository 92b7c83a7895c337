// Matrix kernels of block-quantised weights, for any vector type V and format of formats/. Activations are int8 with a
// float scale for each 32 elements (layout.h). The dot product of a group is exact in int32; groups are then added in
// k order, one fused multiply-add each (two with minima), so an output's bits depend neither on the tile nor on the
// level, where the level has a fused multiply-add.
#pragma once

#include <cstdint>

#include "ops/cpu/formats/planes.h"
#include "ops/cpu/layout.h"
#include "ops/cpu/unroll.h"

namespace tutti::cpu {

// Codes taken out of their planes and scales made floats, for a chunk of a panel: what the many-row kernel reads.
// Same names as BlockFormat, so that one kernel serves both.
template <int kGroupSize, bool kMin, int kOffset>
struct Expanded {
  static constexpr int kUnit = kBlock;
  static constexpr int kBlocks = 1;
  static constexpr int kGroup = kGroupSize;
  static constexpr int kGroups = kBlock / kGroupSize;
  static constexpr bool kHasMin = kMin;
  static constexpr int kOffsetBits = kOffset;
  static constexpr int kScaleFloats = kGroups * (kMin ? 2 : 1) * kPanelRows;
  static constexpr int kUnitBytes = Bits8::kBytes + kScaleFloats * 4;

  struct Scales {
    template <class V>
    static typename V::F load_scale(const uint8_t* unit, int first_row, int group) {
      return V::load(reinterpret_cast<const float*>(unit + Bits8::kBytes) + group * kPanelRows + first_row);
    }
    template <class V>
    static typename V::F load_min(const uint8_t* unit, int first_row, int group) {
      return V::load(reinterpret_cast<const float*>(unit + Bits8::kBytes) + (kGroups + group) * kPanelRows + first_row);
    }
  };
  template <class V, int kQuad>
  static typename V::U load_codes(const uint8_t* unit, int, int half, int byte) {
    return Bits8::load<V, kQuad>(unit, half, byte);
  }
};

template <class Format>
using ExpandedOf = Expanded<Format::kGroup, Format::kHasMin, Format::kOffsetBits>;

// The most rows for which a kernel takes a whole panel at a time, so that weights stream through once.
template <class V>
inline constexpr int kStreamRows = V::kLanes >= 16 ? 4 : 2;

// Where the next chunk of weights will be read, and how much of it to fetch with each block of this one.
struct Ahead {
  const uint8_t* next;  // nullptr: nothing
  int64_t step;         // bytes a block
};

// c[r][0 .. kVectors * lanes) (+)= the products with `blocks` blocks of 32 k, from the panel's row `first_row` on.
template <class V, class Format, int kRows, int kVectors>
void quant_tile_product(const uint8_t* record, const uint8_t* unit, int first_row, int64_t blocks, Ahead ahead, float* c,
                        int64_t ldc, bool first) {
  using F = typename V::F;
  using I = typename V::I;
  constexpr int kGroups = kBlock / Format::kGroup;
  constexpr int kGroupQuads = kQuads / kGroups;
  constexpr bool kSigned = V::kSignedDot && Format::kOffsetBits == 7;  // dot() itself takes the 128 off
  F sum[kVectors][kRows];
  for (int v = 0; v < kVectors; ++v) {
    for (int r = 0; r < kRows; ++r) sum[v][r] = first ? V::zero() : V::load(c + r * ldc + v * V::kLanes);
  }

  int block = 0;  // inside the unit
  for (int64_t b = 0; b < blocks; ++b) {
    const int8_t* codes = reinterpret_cast<const int8_t*>(record);
    const float* scale = reinterpret_cast<const float*>(record + kRows * kBlock);
    const int32_t* neg_sum = reinterpret_cast<const int32_t*>(scale + kRows);
    const float* code_sum = reinterpret_cast<const float*>(neg_sum + 3 * kRows);
    if constexpr (kVectors * V::kLanes == kPanelRows) {
      if (block == 0) V::template prefetch<Format::kUnitBytes>(unit + V::kPrefetchBytes);
    } else if (ahead.next != nullptr) {
      for (int64_t i = 0; i < ahead.step; i += 64) V::template prefetch<64>(ahead.next + i);
      ahead.next += ahead.step;
    }

    for_constants<kVectors>([&]<int kVector>() TUTTI_INLINE {
      V::barrier();
      const int row = first_row + kVector * V::kLanes;
      const int half = row / kHalfRows, byte = row % kHalfRows * 4;
      for_constants<kGroups>([&]<int kGroupIndex>() TUTTI_INLINE {
        constexpr int kSum = kGroups == 1 ? 0 : 1 + kGroupIndex;  // which of the three sums
        I dot[kRows];
        for (int r = 0; r < kRows; ++r) {
          if constexpr (Format::kOffsetBits >= 0 && !kSigned) {
            dot[r] = V::shift_left(V::set1_i(neg_sum[kSum * kRows + r]), Format::kOffsetBits);
          } else {
            dot[r] = V::set1_i(0);
          }
        }
        for_constants<kGroupQuads>([&]<int kIndex>() TUTTI_INLINE {
          constexpr int kQuad = kGroupIndex * kGroupQuads + kIndex;
          const auto w = Format::template load_codes<V, kQuad>(unit, block, half, byte);
          for (int r = 0; r < kRows; ++r) dot[r] = V::template dot<kSigned>(dot[r], w, codes + r * kBlock + kQuad * 4);
        });
        const F d = Format::Scales::template load_scale<V>(unit, row, block * kGroups + kGroupIndex);
        for (int r = 0; r < kRows; ++r) {
          sum[kVector][r] = V::fma(V::to_float(dot[r]), V::mul(d, V::set1(scale[r])), sum[kVector][r]);
        }
        if constexpr (Format::kHasMin) {
          const F m = Format::Scales::template load_min<V>(unit, row, block * kGroups + kGroupIndex);
          for (int r = 0; r < kRows; ++r) {
            sum[kVector][r] = V::fma(m, V::set1(code_sum[kSum * kRows + r]), sum[kVector][r]);
          }
        }
      });
    });

    record += kRows * kQuantBytesPerRow;
    if (++block == Format::kBlocks) {
      block = 0;
      unit += Format::kUnitBytes;
    }
  }
  for (int v = 0; v < kVectors; ++v) {
    for (int r = 0; r < kRows; ++r) V::store(c + r * ldc + v * V::kLanes, sum[v][r]);
  }
}

// All tiles of `rows` activation rows with a chunk of `blocks` blocks that starts at block `first_block`.
// `next_chunk` of the packed panel, with `block_bytes` for each block, is fetched on the way.
template <class V, class Format, int kMaxRows>
void quant_chunk(const uint8_t* unit, int64_t first_block, int64_t blocks, int64_t all_blocks, const uint8_t* tiles,
                 int64_t rows, const uint8_t* next_chunk, int64_t block_bytes, float* c, int64_t ldc) {
  for (int64_t r0 = 0; r0 < rows; r0 += kMaxRows) {
    const int tile_rows = rows - r0 < kMaxRows ? static_cast<int>(rows - r0) : kMaxRows;
    const uint8_t* record = tiles + (r0 * all_blocks + first_block * tile_rows) * kQuantBytesPerRow;
    with_constant<kMaxRows>(tile_rows, [&]<int kRows>() {
      constexpr int kVectors = kRows <= kStreamRows<V> ? kPanelRows / V::kLanes : 1;
      constexpr int kPasses = kPanelRows / (kVectors * V::kLanes);
      const int64_t step = block_bytes / kPasses;
      for (int pass = 0; pass < kPasses; ++pass) {
        const int first_row = pass * kVectors * V::kLanes;
        const Ahead ahead{r0 == 0 ? next_chunk + pass * step * blocks : nullptr, step};
        quant_tile_product<V, Format, kRows, kVectors>(record, unit, first_row, blocks, ahead, c + r0 * ldc + first_row,
                                                       ldc, first_block == 0);
      }
    });
  }
}

template <class V, class Format>
void expand_unit(const uint8_t* unit, uint8_t* out) {
  using E = ExpandedOf<Format>;
  for (int block = 0; block < Format::kBlocks; ++block, out += E::kUnitBytes) {
    float* scales = reinterpret_cast<float*>(out + Bits8::kBytes);
    for (int first_row = 0; first_row < kPanelRows; first_row += V::kLanes) {
      const int half = first_row / kHalfRows, byte = first_row % kHalfRows * 4;
      for_constants<kQuads>([&]<int kQuad>() TUTTI_INLINE {
        V::store_u(out + (half * kQuads + kQuad) * kQuadBytes + byte,
                   Format::template load_codes<V, kQuad>(unit, block, half, byte));
      });
      for (int g = 0; g < E::kGroups; ++g) {
        const int group = block * E::kGroups + g;
        V::store(scales + g * kPanelRows + first_row, Format::Scales::template load_scale<V>(unit, first_row, group));
        if constexpr (E::kHasMin) {
          V::store(scales + (E::kGroups + g) * kPanelRows + first_row,
                   Format::Scales::template load_min<V>(unit, first_row, group));
        }
      }
    }
  }
}

// LevelKernels::panel for block formats. Up to kStreamRows rows read the packed form; more rows share one expansion.
template <class V, class Format>
void quant_panel(const uint8_t* panel, int64_t k, const uint8_t* tiles, int64_t rows, float* c, int64_t ldc) {
  constexpr bool kBytes = Bits8::kBytes == Format::Codes::kBytes && Format::kOffsetBits == 7;
  using E = ExpandedOf<Format>;
  constexpr int64_t kChunkBlocks = kQuantChunk / kBlock;
  alignas(64) uint8_t expanded[kBytes ? 1 : kChunkBlocks * E::kUnitBytes];
  const int64_t all_blocks = k / kBlock;
  for (int64_t b0 = 0; b0 < all_blocks; b0 += kChunkBlocks) {
    const int64_t blocks = all_blocks - b0 < kChunkBlocks ? all_blocks - b0 : kChunkBlocks;
    constexpr int64_t kBlockBytes = Format::kUnitBytes / Format::kBlocks;
    const uint8_t* chunk = panel + b0 / Format::kBlocks * Format::kUnitBytes;
    const uint8_t* next = chunk + blocks / Format::kBlocks * Format::kUnitBytes;
    if constexpr (kBytes) {
      quant_chunk<V, Format, V::kQuantTileRows>(chunk, b0, blocks, all_blocks, tiles, rows, next, kBlockBytes, c, ldc);
    } else if (rows <= kStreamRows<V>) {
      quant_chunk<V, Format, kStreamRows<V>>(chunk, b0, blocks, all_blocks, tiles, rows, next, kBlockBytes, c, ldc);
    } else {
      for (int64_t u = 0; u < blocks / Format::kBlocks; ++u) {
        expand_unit<V, Format>(chunk + u * Format::kUnitBytes, expanded + u * Format::kBlocks * E::kUnitBytes);
      }
      quant_chunk<V, E, V::kQuantTileRows>(expanded, b0, blocks, all_blocks, tiles, rows, next, kBlockBytes, c, ldc);
    }
  }
}

// LevelKernels::quant_tile
template <class V>
void quantize_tile(const float* x, int64_t stride, int rows, int64_t k, uint8_t* tile) {
  using F = typename V::F;
  using I = typename V::I;
  constexpr int kVectors = kBlock / V::kLanes;
  constexpr float kSmallest = 1e-35f;  // 127 / max stays finite above it
  const F magic = V::set1(12582912.0f);  // 1.5 * 2^23: adding it rounds to the nearest even integer
  for (int64_t block = 0; block < k / kBlock; ++block, tile += rows * kQuantBytesPerRow) {
    int8_t* codes = reinterpret_cast<int8_t*>(tile);
    float* scale = reinterpret_cast<float*>(tile + rows * kBlock);
    int32_t* neg_sum = reinterpret_cast<int32_t*>(scale + rows);
    float* code_sum = reinterpret_cast<float*>(neg_sum + 3 * rows);
    for (int r = 0; r < rows; ++r) {
      const float* p = x + r * stride + block * kBlock;
      F largest = V::zero();
      for (int i = 0; i < kVectors; ++i) largest = V::max(V::abs(V::load(p + i * V::kLanes)), largest);
      const float max = V::reduce_max(largest);
      const float s = max > kSmallest ? max / 127.0f : max * 0.0f;  // 0, but NaN for NaN
      const F inverse = V::set1(max > kSmallest ? 127.0f / max : 0.0f);
      alignas(64) int32_t rounded[kBlock];
      for (int i = 0; i < kVectors; ++i) {
        const F shifted = V::add(V::mul(V::load(p + i * V::kLanes), inverse), magic);
        const I value = V::sub_i(V::as_int(shifted), V::as_int(magic));
        V::store(reinterpret_cast<float*>(rounded) + i * V::kLanes, V::as_float(value));
      }
      int32_t halves[2] = {0, 0};
      for (int i = 0; i < kBlock; ++i) {
        codes[r * kBlock + i] = static_cast<int8_t>(rounded[i]);
        halves[i / 16] += static_cast<int8_t>(rounded[i]);
      }
      scale[r] = s;
      const int32_t sums[3] = {halves[0] + halves[1], halves[0], halves[1]};
      for (int j = 0; j < 3; ++j) {
        neg_sum[j * rows + r] = -sums[j];
        code_sum[j * rows + r] = s * static_cast<float>(sums[j]);
      }
    }
  }
}

}  // namespace tutti::cpu
