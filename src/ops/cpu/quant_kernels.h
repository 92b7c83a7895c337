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
// Same names as BlockFormat, so that one kernel serves both. Formats share these kernels: the offset of the codes is a
// run-time number here.
template <int kGroupSize, bool kMin, bool kSignedCodes, int kNarrow>
struct Expanded {
  static constexpr int kUnit = kBlock;
  static constexpr int kBlocks = 1;
  static constexpr int kGroup = kGroupSize;
  static constexpr int kGroups = kBlock / kGroupSize;
  static constexpr bool kHasMin = kMin;
  static constexpr int kScaleFloats = kGroups * (kMin ? 2 : 1) * kPanelRows;
  static constexpr int kUnitBytes = Bits8::kBytes + kScaleFloats * 4;
  template <class V>
  static constexpr bool kSigned = kSignedCodes;
  static constexpr bool kOffset = !kMin;
  static constexpr bool kPacked = false;
  static constexpr bool kByteCodes = true;
  static constexpr int kNarrowQuads = kNarrow;

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

// Quads whose sums of products a level keeps in 16 bits: all that fit of a group; 0: each is widened at once.
template <class V, class Format>
inline constexpr int kNarrowQuads = V::kNarrowSums && Format::kNarrowQuads >= 2
                                        ? (Format::kNarrowQuads < Format::kGroup / 4 ? Format::kNarrowQuads : Format::kGroup / 4)
                                        : 0;

template <class V, class Format>
using ExpandedOf = Expanded<Format::kGroup, Format::kHasMin, Format::template kSigned<V>, kNarrowQuads<V, Format>>;

// The most rows for which a kernel takes a whole panel at a time, so that weights stream through once.
inline constexpr int kStreamRows = 4;

// What a call of the tile kernel computes of a record of kRecordRows rows: rows x vectors sums, `together` vectors at a
// time. Vectors that are together share each broadcast of activations, as far as accumulators stay in registers.
template <class V, class Format, int kRecordRows, int kPanels = 1>
struct TileShape {
  static constexpr bool kNarrow = kNarrowQuads<V, Format> > 0;
  static constexpr bool kStream = kRecordRows <= kStreamRows;
  // With 32 registers six rows x two vectors: a load for each two products, where twelve rows would need one for each.
  static constexpr bool kWide = V::kManyRegisters && kRecordRows == 12;
  static constexpr bool kHalves = kWide || (kNarrow && kRecordRows == 2 * kStreamRows);
  static constexpr int kRows = kHalves ? kRecordRows / 2 : kRecordRows;
  static constexpr int kVectors = kStream ? kPanelRows / V::kLanes : kRecordRows / kRows;
  // What was fastest with 16 registers: sums of 16 bits leave room for twice as many, but one row has codes to unpack.
  static constexpr int kPlainShared = kStreamRows / kRows / (kPanels > 1 ? 2 : 1);
  static constexpr int kNarrowShared = kRows == 1 ? 2 : 2 * kStreamRows / kRows;
  static constexpr int kShared = kWide ? 2 : !V::kNarrowSums ? 1 : kNarrow ? kNarrowShared : kPlainShared;
  static constexpr int kTogether = kShared < 1 ? 1 : kShared < kVectors ? kShared : kVectors;
};

// The i-th quad that is taken of a group. Quads q and q + 4 lie in the same bytes of packed codes (formats/planes.h), so
// they follow each other: each line of memory is met once.
template <class Format>
constexpr int quad_at(int group, int i) {
  constexpr int kGroupQuads = Format::kGroup / 4;
  if (!Format::kPacked || Format::kByteCodes || kGroupQuads != kQuads) return group * kGroupQuads + i;
  return i % 2 * (kQuads / 2) + i / 2;
}

// What a call of the tile kernel works on.
struct QuantTile {
  const uint8_t* record;  // of activations
  int record_row;         // the first of its rows
  const uint8_t* unit;    // of weights
  const uint8_t* more_units[kPanelsInTurn - 1];  // of the other panels, where several are taken in turn
  int64_t blocks;         // of 32 k
  int first_row;          // of the panel
  int offset_bits;
  const uint8_t* ahead;   // packed weights to fetch on the way, nullptr for none
  int64_t ahead_step;     // bytes for each block
  float* c;               // [rows][kVectors * lanes]
  float* more_c[kPanelsInTurn - 1];  // the same of the other panels
  int64_t ldc;
  bool first;             // c is not read
};

// c (+)= the products of activation rows of a record of kRecordRows with vectors of weight rows, of one panel or of several.
template <class V, class Format, int kRecordRows, int kPanels = 1>
void quant_tile_product(const QuantTile& t) {
  using F = typename V::F;
  using I = typename V::I;
  using Shape = TileShape<V, Format, kRecordRows, kPanels>;
  constexpr int kRows = Shape::kRows, kVectors = Shape::kVectors, kTogether = Shape::kTogether;
  constexpr int kGroups = kBlock / Format::kGroup;
  constexpr int kGroupQuads = kQuads / kGroups;
  constexpr int kRun = Shape::kNarrow ? kNarrowQuads<V, Format> : kGroupQuads;  // quads between two widenings
  static_assert(kGroupQuads % kRun == 0);
  constexpr bool kSigned = Format::template kSigned<V>;  // dot() itself takes the 128 off
  const uint8_t *record = t.record, *ahead = t.ahead;
  const uint8_t* units[kPanels] = {t.unit};
  float* c[kPanels] = {t.c};
  for (int p = 1; p < kPanels; ++p) units[p] = t.more_units[p - 1], c[p] = t.more_c[p - 1];
  // Copies, as what lies in memory is read again after every barrier(); constants where they are.
  const int panel_row = Shape::kStream ? 0 : t.first_row, record_row = Shape::kRows == kRecordRows ? 0 : t.record_row;
  const int offset_bits = t.offset_bits;
  F sum[kPanels][kVectors][kRows];
  for (int p = 0; p < kPanels; ++p) {
    for (int v = 0; v < kVectors; ++v) {
      for (int r = 0; r < kRows; ++r) sum[p][v][r] = t.first ? V::zero() : V::load(c[p] + r * t.ldc + v * V::kLanes);
    }
  }

  int block = 0;  // inside the unit
  for (int64_t b = 0; b < t.blocks; ++b) {
    const int8_t* codes = reinterpret_cast<const int8_t*>(record) + record_row * kBlock;
    const float* scale = reinterpret_cast<const float*>(record + kRecordRows * kBlock) + record_row;
    const int32_t* neg_sum = reinterpret_cast<const int32_t*>(scale + kRecordRows);
    const float* code_sum = reinterpret_cast<const float*>(neg_sum + 3 * kRecordRows);
    constexpr bool kStream = Format::kPacked && Shape::kStream;
    // Several rows with codes to unpack: twice as far ahead is 15% faster on Zen 5 (Q4_0, 4 rows), where one row gains nothing.
    constexpr int kAhead = kRecordRows == 1 || Format::kByteCodes ? V::kPrefetchBytes : 2 * V::kPrefetchBytes;
    constexpr int kPrefetchBytes = kPanels > 1 ? V::kTurnsPrefetchBytes : kAhead;
    if (kStream && Format::kBlocks > 1) {
      for (int p = 0; kPrefetchBytes > 0 && block == 0 && p < kPanels; ++p) {
        V::template prefetch<Format::kUnitBytes>(units[p] + kPrefetchBytes);
      }
    } else if (!kStream && ahead != nullptr) {
      for (int64_t i = 0; i < t.ahead_step; i += 64) V::template prefetch<64>(ahead + i);
      ahead += t.ahead_step;
    }

    // Constants where sums are to stay in registers.
    const auto some_vectors = [&](auto panel, auto first) TUTTI_INLINE {
      const uint8_t* const unit = units[panel];
      V::barrier();
      // A share, so that requests to memory are spread evenly.
      if constexpr (kStream && Format::kBlocks == 1 && kPrefetchBytes > 0) {
        constexpr int kShare = Format::kUnitBytes / (kVectors / kTogether);
        V::template prefetch<kShare>(unit + kPrefetchBytes + first / kTogether * kShare);
      }
      const int row = panel_row + first * V::kLanes;
      const auto half = [&](int v) TUTTI_INLINE { return (row + v * V::kLanes) / kHalfRows; };
      const auto byte = [&](int v) TUTTI_INLINE { return (row + v * V::kLanes) % kHalfRows * 4; };
      for_constants<kGroups>([&]<int kGroupIndex>() TUTTI_INLINE {
        constexpr int kSum = kGroups == 1 ? 0 : 1 + kGroupIndex;  // which of the three sums
        I dot[kTogether][kRows];
        for (int r = 0; r < kRows; ++r) {
          I start = V::set1_i(0);
          if constexpr (Format::kOffset && !kSigned) {
            start = V::shift_left(V::set1_i(neg_sum[kSum * kRecordRows + r]), offset_bits);
          }
          for (int v = 0; v < kTogether; ++v) dot[v][r] = start;
        }
        for_constants<kGroupQuads / kRun>([&]<int kRunIndex>() TUTTI_INLINE {
          I narrow[kTogether][kRows];
          for (int v = 0; Shape::kNarrow && v < kTogether; ++v) {
            for (int r = 0; r < kRows; ++r) narrow[v][r] = V::set1_i(0);
          }
          for_constants<kRun>([&]<int kIndex>() TUTTI_INLINE {
            constexpr int kQuad = quad_at<Format>(kGroupIndex, kRunIndex * kRun + kIndex);
            typename V::U w[kTogether];
            for (int v = 0; v < kTogether; ++v) w[v] = Format::template load_codes<V, kQuad>(unit, block, half(v), byte(v));
            for (int r = 0; r < kRows; ++r) {
              const int8_t* x = codes + r * kBlock + kQuad * 4;
              for (int v = 0; v < kTogether; ++v) {
                if constexpr (Shape::kNarrow) {
                  narrow[v][r] = V::dot_narrow(narrow[v][r], w[v], x);
                } else {
                  dot[v][r] = V::template dot<kSigned>(dot[v][r], w[v], x);
                }
              }
            }
          });
          if constexpr (Shape::kNarrow) {
            for (int v = 0; v < kTogether; ++v) {
              for (int r = 0; r < kRows; ++r) dot[v][r] = V::add_i(dot[v][r], V::widen(narrow[v][r]));
            }
          }
        });
        for (int v = 0; v < kTogether; ++v) {
          const int first_row = row + v * V::kLanes, group = block * kGroups + kGroupIndex;
          const F d = Format::Scales::template load_scale<V>(unit, first_row, group);
          F* const sums = sum[panel][first + v];
          for (int r = 0; r < kRows; ++r) sums[r] = V::fma(V::to_float(dot[v][r]), V::mul(d, V::set1(scale[r])), sums[r]);
          if constexpr (Format::kHasMin) {
            const F m = Format::Scales::template load_min<V>(unit, first_row, group);
            for (int r = 0; r < kRows; ++r) sums[r] = V::fma(m, V::set1(code_sum[kSum * kRecordRows + r]), sums[r]);
          }
        }
      });
    };
    constexpr int kSteps = kVectors / kTogether;
    for_constants<kPanels>([&]<int kPanel>() TUTTI_INLINE {
      if constexpr (kSteps <= 2) {
        for_constants<kSteps>([&]<int kStep>() TUTTI_INLINE { some_vectors(Constant<kPanel>(), Constant<kStep * kTogether>()); });
      } else {
        for (int v = 0; v < kVectors; v += kTogether) some_vectors(Constant<kPanel>(), v);
      }
    });

    record += kRecordRows * kQuantBytesPerRow;
    if (++block == Format::kBlocks) {
      block = 0;
      for (auto& unit : units) unit += Format::kUnitBytes;
    }
  }
  for (int p = 0; p < kPanels; ++p) {
    for (int v = 0; v < kVectors; ++v) {
      for (int r = 0; r < kRows; ++r) V::store(c[p] + r * t.ldc + v * V::kLanes, sum[p][v][r]);
    }
  }
}

// A chunk of a panel and the activations that meet it.
struct QuantChunk {
  const uint8_t* unit;     // packed, or expanded
  const uint8_t* more_units[kPanelsInTurn - 1] = {};  // of the other panels, where several are taken in turn
  const uint8_t* next;     // the chunk after it, packed: fetched on the way
  int64_t block_bytes;     // of a packed block of 32 k
  int64_t first_block, blocks, all_blocks;
  int offset_bits;
  const uint8_t* tiles;
  int64_t rows;
  float* c;
  float* more_c[kPanelsInTurn - 1] = {};
  int64_t ldc;
  bool add = false;  // to c, from the first block on
};

// All tiles of a chunk.
template <class V, class Format, int kMaxRows, int kPanels = 1>
void quant_chunk(const QuantChunk& chunk) {
  const int64_t sharing = tiles_that_fetch<V>(chunk.rows, kMaxRows);
  const uint8_t* ahead = chunk.next;
  for (int64_t r0 = 0, tile_index = 0; r0 < chunk.rows; ++tile_index) {
    const int tile_rows = next_tile_rows<V>(chunk.rows - r0, kMaxRows);
    with_tile_rows<kMaxRows>(tile_rows, [&]<int kRecordRows>() TUTTI_INLINE {
      using Shape = TileShape<V, Format, kRecordRows, kPanels>;
      constexpr int kColumns = Shape::kVectors * V::kLanes, kCalls = kPanelRows / kColumns * (kRecordRows / Shape::kRows);
      QuantTile tile{.record = chunk.tiles + (r0 * chunk.all_blocks + chunk.first_block * kRecordRows) * kQuantBytesPerRow,
                     .unit = chunk.unit,
                     .blocks = chunk.blocks,
                     .offset_bits = chunk.offset_bits,
                     .ahead_step = chunk.block_bytes / (kCalls * sharing),
                     .ldc = chunk.ldc,
                     .first = chunk.first_block == 0 && !chunk.add};
      for (int p = 1; p < kPanels; ++p) tile.more_units[p - 1] = chunk.more_units[p - 1];
      for (tile.first_row = 0; tile.first_row < kPanelRows; tile.first_row += kColumns) {
        for (tile.record_row = 0; tile.record_row < kRecordRows; tile.record_row += Shape::kRows) {
          const int64_t offset = (r0 + tile.record_row) * chunk.ldc + tile.first_row;
          tile.c = chunk.c + offset;
          for (int p = 1; p < kPanels; ++p) tile.more_c[p - 1] = chunk.more_c[p - 1] + offset;
          tile.ahead = tile_index < sharing ? ahead : nullptr;
          quant_tile_product<V, Format, kRecordRows, kPanels>(tile);
          if (tile.ahead != nullptr) ahead += tile.ahead_step * chunk.blocks;
        }
      }
    });
    r0 += tile_rows;
  }
}

// LevelKernels::q8_blocks
template <class V, class Format, int kMaxRows>
void quant_blocks(const uint8_t* panel, const int32_t* blocks, int64_t count, const uint8_t* tiles, int rows, float* c,
                  int64_t ldc) {
  static_assert(Format::kBlocks == 1);
  for (int64_t i = 0; i < count; ++i, tiles += rows * kQuantBytesPerRow) {
    QuantChunk chunk{.unit = panel + blocks[i] * Format::kUnitBytes,
                     .next = nullptr,
                     .block_bytes = Format::kUnitBytes,
                     .first_block = 0,
                     .blocks = 1,
                     .all_blocks = 1,
                     .offset_bits = Format::kOffsetBits,
                     .tiles = tiles,
                     .rows = rows,
                     .c = c,
                     .ldc = ldc,
                     .add = true};
    quant_chunk<V, Format, kMaxRows>(chunk);
  }
}

template <class V, class Format>
void expand_unit(const uint8_t* unit, uint8_t* out) {
  using E = ExpandedOf<V, Format>;
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

// LevelKernels::panel for block formats. Few rows read the packed form; more rows share one expansion,
// unless the packed codes are bytes already.
// Scales of 256 elements take long to compute: there, more than one row share them.
template <class V, class Format>
inline constexpr int kFewRows = Format::kUnit > kBlock ? 1 : kStreamRows < V::kQuantTileRows ? kStreamRows : V::kQuantTileRows;

template <class V, class Format>
void quant_panel(const uint8_t* panel, int64_t k, const uint8_t* tiles, int64_t rows, float* c, int64_t ldc) {
  using E = ExpandedOf<V, Format>;
  constexpr int64_t kChunkBlocks = V::kQuantChunk / kBlock;
  alignas(64) uint8_t expanded[Format::kByteCodes ? 1 : kChunkBlocks * E::kUnitBytes];
  const int64_t all_blocks = k / kBlock;
  QuantChunk chunk{.block_bytes = Format::kUnitBytes / Format::kBlocks, .all_blocks = all_blocks,
                   .offset_bits = Format::kOffsetBits, .tiles = tiles, .rows = rows, .c = c, .ldc = ldc};
  for (int64_t b0 = 0; b0 < all_blocks; b0 += kChunkBlocks) {
    chunk.first_block = b0;
    chunk.blocks = all_blocks - b0 < kChunkBlocks ? all_blocks - b0 : kChunkBlocks;
    const int64_t units = chunk.blocks / Format::kBlocks;
    chunk.unit = panel + b0 / Format::kBlocks * Format::kUnitBytes;
    chunk.next = chunk.unit + units * Format::kUnitBytes;
    if constexpr (Format::kByteCodes) {
      quant_chunk<V, Format, V::kQuantTileRows>(chunk);
    } else if (rows <= kFewRows<V, Format>) {
      quant_chunk<V, Format, kFewRows<V, Format>>(chunk);
    } else {
      for (int64_t u = 0; u < units; ++u) {
        expand_unit<V, Format>(chunk.unit + u * Format::kUnitBytes, expanded + u * Format::kBlocks * E::kUnitBytes);
      }
      chunk.unit = expanded;
      quant_chunk<V, E, V::kQuantTileRows>(chunk);
    }
  }
}

// LevelKernels::panels_in_turn for block formats: few rows take a unit of each panel in turn.
template <class V, class Format>
void quant_panels_in_turn(const uint8_t* const* panels, int64_t k, const uint8_t* tiles, int64_t rows, float* const* c,
                          int64_t ldc) {
  if (rows > kFewRows<V, Format>) {
    for (int p = 0; p < kPanelsInTurn; ++p) quant_panel<V, Format>(panels[p], k, tiles, rows, c[p], ldc);
    return;
  }
  QuantChunk chunk{.unit = panels[0],
                   .next = nullptr,
                   .block_bytes = Format::kUnitBytes / Format::kBlocks,
                   .first_block = 0,
                   .blocks = k / kBlock,
                   .all_blocks = k / kBlock,
                   .offset_bits = Format::kOffsetBits,
                   .tiles = tiles,
                   .rows = rows,
                   .c = c[0],
                   .ldc = ldc};
  for (int p = 1; p < kPanelsInTurn; ++p) chunk.more_units[p - 1] = panels[p], chunk.more_c[p - 1] = c[p];
  quant_chunk<V, Format, kFewRows<V, Format>, kPanelsInTurn>(chunk);
}

// max|x| of a block. Found among integers, so that a NaN is the largest of all.
template <class V>
inline float largest_of_block(const float* x) {
  typename V::I largest = V::set1_i(0);
  for (int i = 0; i < kBlock; i += V::kLanes) largest = V::max_i(V::as_int(V::abs(V::load(x + i))), largest);
  return __builtin_bit_cast(float, V::reduce_max_i(largest));
}

inline constexpr float kSmallestMax = 1e-35f;  // 127 / max stays finite above it

// The codes of a block whose largest number is `max`, and the sums of its first and of its last 16.
template <class V>
inline void encode_block(const float* x, float max, int8_t* codes, int32_t* sums) {
  using I = typename V::I;
  const auto magic = V::set1(12582912.0f);  // 1.5 * 2^23: adding it rounds to the nearest even integer
  const auto inverse = V::set1(max > kSmallestMax ? 127.0f / max : 0.0f);
  for (int half = 0; half < 2; ++half) {
    I total = V::set1_i(0);
    for (int i = half * 16; i < half * 16 + 16; i += V::kLanes) {
      const I value = V::sub_i(V::as_int(V::add(V::mul(V::load(x + i), inverse), magic)), V::as_int(magic));
      V::store_i8(codes + i, value);
      total = V::add_i(total, value);
    }
    sums[half] = V::reduce_add_i(total);
  }
}

// LevelKernels::encode_codes
template <class V>
void encode_codes(const float* x, int64_t k, uint8_t* out) {
  for (int64_t i = 0; i < k; i += kBlock, out += kCodeBlockBytes) {
    const float max = largest_of_block<V>(x + i);
    int32_t sums[2];
    __builtin_memcpy(out, &max, sizeof max);
    encode_block<V>(x + i, max, reinterpret_cast<int8_t*>(out + sizeof max), sums);
  }
}

// LevelKernels::decode_codes
template <class V>
void decode_codes(const uint8_t* in, int64_t k, float* x) {
  constexpr float kOutermost = 126.5f;  // codes beyond it stand for max itself
  for (int64_t b = 0; b < k; b += kBlock, in += kCodeBlockBytes) {
    float max;
    __builtin_memcpy(&max, in, sizeof max);
    const auto scale = V::set1(max / 127.0f), one = V::set1(1.0f);
    for (int i = 0; i < kBlock; i += V::kLanes) {
      const auto code = V::load_i8(reinterpret_cast<const int8_t*>(in + sizeof max) + i);
      const auto size = V::abs(code), sign = V::max(V::sub(V::zero(), one), V::min(code, one));
      const auto inner = V::zero_below(V::sub(V::zero(), size), -kOutermost, V::mul(code, scale));
      const auto outer = V::zero_below(size, kOutermost, V::mul(sign, V::set1(max)));
      V::store(x + b + i, V::add(inner, outer));
    }
  }
}

// LevelKernels::quant_tile
template <class V>
void quantize_tile(const float* x, int64_t stride, int rows, int64_t k, uint8_t* tile) {
  for (int64_t block = 0; block < k / kBlock; ++block, tile += rows * kQuantBytesPerRow) {
    int8_t* codes = reinterpret_cast<int8_t*>(tile);
    float* scale = reinterpret_cast<float*>(tile + rows * kBlock);
    int32_t* neg_sum = reinterpret_cast<int32_t*>(scale + rows);
    float* code_sum = reinterpret_cast<float*>(neg_sum + 3 * rows);
    for (int r = 0; r < rows; ++r) {
      const float* p = x + r * stride + block * kBlock;
      const float max = largest_of_block<V>(p);
      const float s = max > kSmallestMax ? max / 127.0f : max * 0.0f;  // 0, but NaN for NaN
      int32_t halves[2];
      encode_block<V>(p, max, codes + r * kBlock, halves);
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
