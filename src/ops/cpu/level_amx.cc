// The `amx` level: as `vnni`, but products of many rows are made by the tile registers. Quantised weights give the bits of
// `vnni`: dot products of a group are exact, and groups are added alike. BF16 weights meet activations rounded to
// bfloat16, 32 k in one tile product at any number of rows, so their bits are this level's own.
//
// A block of 32 k of a panel's half is a tile as it lies in memory: 8 quads (BF16: 16 pairs) of 16 output features.
#include <immintrin.h>

#include "ops/cpu/make_level.h"
#include "ops/cpu/simd_avx512.h"

namespace tutti::cpu {
namespace {

// Tiles of 16 rows. Fewer rows are left to the vectors, which are as fast up to 8 (measured), in tiles of at most 8.
struct AmxVectors : Avx512<true> {
  static constexpr int kQuantTileRows = 8;
};
using V = AmxVectors;
constexpr int kTileRows = 16;
constexpr int64_t kQuantChunk = 256;  // elements of k (layout.h)

// What LDTILECFG reads. `sums` hold products of `rows` rows; every other register from there on takes activations, those
// between them weights, of `steps` quads or pairs of k.
struct alignas(64) TileShapes {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};

  void set(int tile, int r, int bytes) {
    rows[tile] = static_cast<uint8_t>(r);
    row_bytes[tile] = static_cast<uint16_t>(bytes);
  }
};

// For quantised weights. Registers: 0 to 3 sums, 4 and 6 activations, 5 and 7 weights.
TileShapes quant_shapes(int tile_rows, int quads) {
  TileShapes shapes;
  for (int sum = 0; sum < 4; ++sum) shapes.set(sum, tile_rows, 64);
  for (int a = 4; a < 8; a += 2) {
    shapes.set(a, tile_rows, 4 * quads);
    shapes.set(a + 1, quads, 64);
  }
  return shapes;
}

// For BF16. Registers: 0, 1 sums; 2 activations, 3, 4 weights; 5 activations, 6, 7 weights of the last k.
TileShapes pair_shapes(int tile_rows, int pairs, int last_pairs) {
  TileShapes shapes;
  for (int sum = 0; sum < 2; ++sum) shapes.set(sum, tile_rows, 64);
  shapes.set(2, tile_rows, 4 * pairs);
  for (int w = 3; w < 5; ++w) shapes.set(w, pairs, 64);
  if (last_pairs == 0) return shapes;
  shapes.set(5, tile_rows, 4 * last_pairs);
  for (int w = 6; w < 8; ++w) shapes.set(w, last_pairs, 64);
  return shapes;
}

// The compiler knows nothing of the memory that tile registers are loaded from (nor, in GCC 12, of all that the intrinsic
// for their shapes reads): these keep what was stored there from being dropped or coming later.
void load_shapes(const TileShapes& shapes) { asm volatile("ldtilecfg %0" : : "m"(shapes)); }
void finish_stores() { asm volatile("" : : : "memory"); }

// Tile shapes of this thread, for the length of a kernel. They are given up at the end: a thread without them costs the
// system less to switch.
class TileConfig {
 public:
  ~TileConfig() {
    if (rows_ != 0) _tile_release();
  }
  // `shapes` makes those for tiles of so many rows.
  template <class Shapes>
  void use(int rows, Shapes&& shapes) {
    if (rows == rows_) return;
    load_shapes(shapes(rows));
    rows_ = rows;
  }

 private:
  int rows_ = 0;
};

// Codes as signed numbers and scales as floats, for a chunk of a panel: Expanded (quant_kernels.h) with other codes.
template <class Format>
void expand_signed(const uint8_t* unit, uint8_t* out) {
  using E = ExpandedOf<V, Format>;
  expand_unit<V, Format>(unit, out);
  if constexpr (!Format::kOffset) return;
  const __m512i offset = _mm512_set1_epi8(static_cast<char>(1 << (Format::kOffset ? Format::kOffsetBits : 0)));
  for (int block = 0; block < Format::kBlocks; ++block, out += E::kUnitBytes) {
    for (int i = 0; i < Bits8::kBytes; i += 64) V::store_u(out + i, _mm512_sub_epi8(V::load_u(out + i), offset));
  }
}

// An expanded chunk of a panel and all tiles of activations that meet it: c [rows][32] (+)= their products.
//
// One group of k of a tile of activations is multiplied with both halves of the panel. Such a pair of products is ready
// long after it was begun, and later still for loads that find it in memory; a register that is asked for too early holds
// up all that follow. So a pair lies in its registers until two more have been begun, and in memory until kBatch pairs
// do; then these meet their scales. Vectors and tiles compute by turns: side by side, each slows the other by more than
// that gains.
template <class E>
class SignedChunk {
 public:
  const uint8_t* unit;
  const uint8_t* next;  // the chunk after it, packed: fetched on the way
  int64_t next_bytes;
  const uint8_t* tiles;
  int64_t rows, first_block, blocks, all_blocks;
  float* c;
  int64_t ldc;
  bool accumulate = false;  // from the first block on

  void multiply(TileConfig& config) const {
    finish_stores();
    const int64_t full_rows = rows / kTileRows * kTileRows;
    if (full_rows > 0) multiply_tiles<true>(config, 0, full_rows, kTileRows);
    for (int64_t row = full_rows; row < rows;) {
      const int tile_rows = next_tile_rows<V>(rows - row, kTileRows);
      multiply_tiles<false>(config, row, row + tile_rows, tile_rows);
      row += tile_rows;
    }
  }

 private:
  static constexpr int kGroupQuads = kQuads / E::kGroups;
  static constexpr int kBatch = 8;
  using Dots = int32_t[kTileRows][kHalfRows];

  // Of products: the first row of the tile of activations, and the group of k.
  struct Pair {
    int64_t row, group = 0;
  };

  int64_t groups() const { return blocks * E::kGroups; }
  const uint8_t* record(const Pair& pair, int tile_rows) const {
    const int64_t block = first_block + pair.group / E::kGroups;
    return tiles + (pair.row * all_blocks + block * tile_rows) * kQuantBytesPerRow;
  }

  // Rows [row, end), tiles of one height.
  template <bool kFull>
  void multiply_tiles(TileConfig& config, int64_t row, int64_t end, int tile_rows) const {
    config.use(tile_rows, [](int r) { return quant_shapes(r, kGroupQuads); });
    alignas(64) Dots dots[kBatch][2];
    const int64_t count = (end - row) / tile_rows * groups();
    Pair begun{.row = row}, kept{.row = row};
    for (int64_t first = 0; first < count + 2; first += 2) {
      for_constants<2>([&]<int kSet>() TUTTI_INLINE {
        const int64_t i = first + kSet;
        const bool keeps = i >= 2 && i < count + 2;
        if (keeps) keep<kSet>(dots[kept.group % kBatch]);
        if (i < count) {
          begin<kSet>(begun, tile_rows);
          if (++begun.group == groups()) begun = {.row = begun.row + tile_rows};
        }
        if (!keeps) return;
        if (++kept.group % kBatch == 0 || kept.group == groups()) add<kFull>(kept, tile_rows, dots);
        if (kept.group == groups()) kept = {.row = kept.row + tile_rows};
      });
    }
  }

  // Registers have numbers in the instructions' names only: 0, 1, 4 are of one set, 2, 3, 6 of the other.
  template <int kSet>
  static void keep(Dots (&dots)[2]) {
    if constexpr (kSet == 0) {
      _tile_stored(0, dots[0], kQuadBytes);
      _tile_stored(1, dots[1], kQuadBytes);
    } else {
      _tile_stored(2, dots[0], kQuadBytes);
      _tile_stored(3, dots[1], kQuadBytes);
    }
  }
  template <int kSet>
  TUTTI_INLINE void begin(const Pair& pair, int tile_rows) const {
    const int64_t quad = pair.group % E::kGroups * kGroupQuads;
    const uint8_t* a = record(pair, tile_rows) + quad * 4;
    const uint8_t* w = unit + pair.group / E::kGroups * E::kUnitBytes + quad * kQuadBytes;
    if constexpr (kSet == 0) {
      _tile_zero(0);
      _tile_loadd(4, a, kBlock);
      _tile_loadd(5, w, kQuadBytes);
      _tile_dpbssd(0, 4, 5);
      _tile_zero(1);
      _tile_loadd(7, w + kQuads * kQuadBytes, kQuadBytes);
      _tile_dpbssd(1, 4, 7);
    } else {
      _tile_zero(2);
      _tile_loadd(6, a, kBlock);
      _tile_loadd(5, w, kQuadBytes);
      _tile_dpbssd(2, 6, 5);
      _tile_zero(3);
      _tile_loadd(7, w + kQuads * kQuadBytes, kQuadBytes);
      _tile_dpbssd(3, 6, 7);
    }
    // A share of what comes next.
    const int64_t tile = pair.row / kTileRows, sharing = tiles_that_fetch<V>(rows, kTileRows);
    if (tile >= sharing) return;
    const int64_t share = next_bytes / (groups() * sharing);
    const uint8_t* from = next + (tile * groups() + pair.group) * share;
    for (int64_t i = 0; i < share; i += 64) V::template prefetch<64>(from + i);
  }

  // The pairs that end before `end`, as many as there are in a batch.
  template <bool kFull>
  TUTTI_INLINE void add(const Pair& end, int tile_rows, const Dots (*dots)[2]) const {
    const int rows_here = kFull ? kTileRows : tile_rows;
    const auto is_row = [&](int r) TUTTI_INLINE { return kFull || r < rows_here; };
    const int64_t begin = (end.group - 1) / kBatch * kBatch;
    const bool fresh = begin == 0 && first_block == 0 && !accumulate;
    for (int half = 0; half < 2; ++half) {
      float* out = c + end.row * ldc + half * kHalfRows;
      __m512 sum[kTileRows];
      for_constants<kTileRows>([&]<int kRow>() TUTTI_INLINE {
        sum[kRow] = fresh || !is_row(kRow) ? V::zero() : V::load(out + kRow * ldc);
      });
      for (Pair pair{end.row, begin}; pair.group < end.group; ++pair.group) {
        const int group = static_cast<int>(pair.group % E::kGroups), which = E::kGroups == 1 ? 0 : 1 + group;
        const uint8_t* b = unit + pair.group / E::kGroups * E::kUnitBytes;
        const float* scale = reinterpret_cast<const float*>(record(pair, rows_here) + rows_here * kBlock);
        const float* code_sum = scale + 4 * rows_here + which * rows_here;
        const __m512 d = E::Scales::template load_scale<V>(b, half * kHalfRows, group);
        __m512 m = V::zero();
        if constexpr (E::kHasMin) m = E::Scales::template load_min<V>(b, half * kHalfRows, group);
        const Dots& products = dots[pair.group % kBatch][half];
        for_constants<kTileRows>([&]<int kRow>() TUTTI_INLINE {
          if (!is_row(kRow)) return;
          const __m512i dot = _mm512_load_si512(products[kRow]);
          sum[kRow] = V::fma(V::to_float(dot), V::mul(d, V::set1(scale[kRow])), sum[kRow]);
          if constexpr (E::kHasMin) sum[kRow] = V::fma(m, V::set1(code_sum[kRow]), sum[kRow]);
        });
      }
      for_constants<kTileRows>([&]<int kRow>() TUTTI_INLINE {
        if (is_row(kRow)) V::store(out + kRow * ldc, sum[kRow]);
      });
    }
  }
};

// LevelKernels::panel for block formats.
template <class Format>
void signed_panel(const uint8_t* panel, int64_t k, const uint8_t* tiles, int64_t rows, float* c, int64_t ldc) {
  if (rows < kTileRows) return quant_panel<V, Format>(panel, k, tiles, rows, c, ldc);
  using E = ExpandedOf<V, Format>;
  constexpr int64_t kChunkBlocks = kQuantChunk / kBlock;
  alignas(64) uint8_t expanded[kChunkBlocks * E::kUnitBytes];
  const int64_t all_blocks = k / kBlock;
  TileConfig config;
  for (int64_t b0 = 0; b0 < all_blocks; b0 += kChunkBlocks) {
    const int64_t blocks = all_blocks - b0 < kChunkBlocks ? all_blocks - b0 : kChunkBlocks;
    const int64_t units = blocks / Format::kBlocks;
    const uint8_t* unit = panel + b0 / Format::kBlocks * Format::kUnitBytes;
    for (int64_t u = 0; u < units; ++u) {
      expand_signed<Format>(unit + u * Format::kUnitBytes, expanded + u * Format::kBlocks * E::kUnitBytes);
    }
    SignedChunk<E>{.unit = expanded, .next = unit + units * Format::kUnitBytes, .next_bytes = units * Format::kUnitBytes, .tiles = tiles,
                   .rows = rows, .first_block = b0, .blocks = blocks, .all_blocks = all_blocks, .c = c, .ldc = ldc}
        .multiply(config);
  }
}

// LevelKernels::q8_blocks
void signed_blocks(const uint8_t* panel, const int32_t* blocks, int64_t count, const uint8_t* tiles, int rows, float* c,
                   int64_t ldc) {
  if (rows < kTileRows) return quant_blocks<V, Q8_0, V::kQuantTileRows>(panel, blocks, count, tiles, rows, c, ldc);
  using E = ExpandedOf<V, Q8_0>;
  constexpr int64_t kMost = kQuantChunk / kBlock;
  alignas(64) uint8_t expanded[kMost * E::kUnitBytes];
  TileConfig config;
  for (int64_t first = 0; first < count; first += kMost) {
    const int64_t now = count - first < kMost ? count - first : kMost;
    for (int64_t i = 0; i < now; ++i) expand_signed<Q8_0>(panel + blocks[first + i] * Q8_0::kUnitBytes, expanded + i * E::kUnitBytes);
    const SignedChunk<E> chunk{.unit = expanded,
                               .next = panel,
                               .next_bytes = 0,
                               .tiles = tiles + first * rows * kQuantBytesPerRow,
                               .rows = rows,
                               .first_block = 0,
                               .blocks = now,
                               .all_blocks = now,
                               .c = c,
                               .ldc = ldc,
                               .accumulate = true};
    chunk.multiply(config);
  }
}

// A tile of BF16 activations: int32 [rows][k / 2], each two bfloat16.
void pair_rows(const float* x, int64_t stride, int rows, int64_t k, uint8_t* tile) {
  auto* out = reinterpret_cast<uint16_t*>(tile);
  for (int r = 0; r < rows; ++r, out += round_up(k, 2)) {
    to_bf16<V>(x + r * stride, k, out);
    if (k % 2 != 0) out[k] = 0;
  }
}

// LevelKernels::panel for BF16. A product takes kPairs pairs of k, the last one what is left.
void pair_panel(const uint8_t* panel, int64_t k, const uint8_t* tiles, int64_t rows, float* c, int64_t ldc) {
  constexpr int64_t kPairs = 16, kPairBytes = 2 * kPanelRows * 2, kChunkPairs = kPlainChunk / 2;
  const int64_t all_pairs = (k + 1) / 2, row_bytes = 4 * all_pairs;
  const auto last = static_cast<int>(all_pairs % kPairs);
  TileConfig config;
  // One tile reads the chunk as it comes; where several do, each fetches a share of the next chunk.
  const int64_t sharing = tiles_that_fetch<V>(rows, kTileRows);
  for (int64_t p0 = 0; p0 < all_pairs; p0 += kChunkPairs) {
    const int64_t end = all_pairs - p0 < kChunkPairs ? all_pairs : p0 + kChunkPairs;
    const uint8_t* ahead = panel + (sharing == 1 ? p0 * kPairBytes + V::kPrefetchBytes : end * kPairBytes);
    const int64_t ahead_step = kPairs * kPairBytes / sharing;
    for (int64_t r0 = 0; r0 < rows;) {
      const int tile_rows = next_tile_rows<V>(rows - r0, kTileRows);
      config.use(tile_rows, [&](int r) { return pair_shapes(r, kPairs, last); });
      const uint8_t* a = tiles + r0 * row_bytes;
      float* out = c + r0 * ldc;
      const int64_t out_bytes = ldc * 4;
      finish_stores();
      if (p0 == 0) {
        _tile_zero(0);
        _tile_zero(1);
      } else {
        _tile_loadd(0, out, out_bytes);
        _tile_loadd(1, out + kHalfRows, out_bytes);
      }
      int64_t p = p0;
      for (; p + kPairs <= end; p += kPairs) {
        const uint8_t* w = panel + p * kPairBytes;
        if (r0 < sharing * kTileRows) {
          for (int64_t i = 0; i < ahead_step; i += 64) V::prefetch<64>(ahead + i);
          ahead += ahead_step;
        }
        _tile_loadd(2, a + p * 4, row_bytes);
        _tile_loadd(3, w, kPairBytes);
        _tile_loadd(4, w + kQuadBytes, kPairBytes);
        _tile_dpbf16ps(0, 2, 3);
        _tile_dpbf16ps(1, 2, 4);
      }
      if (p < end) {
        const uint8_t* w = panel + p * kPairBytes;
        _tile_loadd(5, a + p * 4, row_bytes);
        _tile_loadd(6, w, kPairBytes);
        _tile_loadd(7, w + kQuadBytes, kPairBytes);
        _tile_dpbf16ps(0, 5, 6);
        _tile_dpbf16ps(1, 5, 7);
      }
      _tile_stored(0, out, out_bytes);
      _tile_stored(1, out + kHalfRows, out_bytes);
      r0 += tile_rows;
    }
  }
}

}  // namespace

const LevelKernels& amx_kernels() {
  static const LevelKernels kernels = [] {
    LevelKernels k = vnni_kernels();
    k.isa = Isa::kAmx;
    k.name = "amx";
    k.quant_tile_rows = kTileRows;
    k.pair_tile_rows = kTileRows;
    k.q8_blocks = signed_blocks;
    k.pair_tile = pair_rows;
    k.panel[static_cast<size_t>(DType::kBF16)] = pair_panel;
    BlockFormats::for_each([&]<class Format>() { k.panel[static_cast<size_t>(Format::kType)] = signed_panel<Format>; });
    return k;
  }();
  return kernels;
}

}  // namespace tutti::cpu
