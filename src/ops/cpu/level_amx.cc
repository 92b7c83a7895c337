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

// What LDTILECFG reads. Registers: 0, 1 sums; 2 activations, 3, 4 weights; 5 activations, 6, 7 weights of the last k.
struct alignas(64) TileShapes {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};

  // `rows` rows of activations, and `steps` (then `last_steps`) quads or pairs of k in a product.
  TileShapes(int tile_rows, int steps, int last_steps) {
    const auto set = [this](int tile, int r, int bytes) {
      rows[tile] = static_cast<uint8_t>(r);
      row_bytes[tile] = static_cast<uint16_t>(bytes);
    };
    for (int sum = 0; sum < 2; ++sum) set(sum, tile_rows, 64);
    set(2, tile_rows, 4 * steps);
    for (int w = 3; w < 5; ++w) set(w, steps, 64);
    if (last_steps == 0) return;
    set(5, tile_rows, 4 * last_steps);
    for (int w = 6; w < 8; ++w) set(w, last_steps, 64);
  }
};

// Tile shapes of this thread, for the length of a kernel. They are given up at the end: a thread without them costs the
// system less to switch.
class TileConfig {
 public:
  ~TileConfig() {
    if (rows_ != 0) _tile_release();
  }
  void use(int rows, int steps, int last_steps) {
    if (rows == rows_) return;
    const TileShapes shapes(rows, steps, last_steps);
    _tile_loadconfig(&shapes);
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

// c[row][half * 16 ...) (+)= a tile of `rows` rows times the blocks of a chunk.
template <class E>
void signed_tile_product(const uint8_t* record, const uint8_t* unit, int64_t blocks, int rows, int half, float* c, int64_t ldc,
                         bool first) {
  constexpr int kGroupQuads = kQuads / E::kGroups;
  alignas(64) int32_t dots[2][kTileRows][kHalfRows];
  __m512 sum[kTileRows];
  for (int r = 0; r < kTileRows; ++r) sum[r] = first || r >= rows ? V::zero() : V::load(c + r * ldc);

  const int64_t record_bytes = rows * kQuantBytesPerRow, products = blocks * E::kGroups;
  const auto multiply = [&](int64_t i) {
    const int64_t block = i / E::kGroups, group = i % E::kGroups;
    _tile_zero(0);
    _tile_loadd(2, record + block * record_bytes + group * kGroupQuads * 4, kBlock);
    _tile_loadd(3, unit + block * E::kUnitBytes + (half * kQuads + group * kGroupQuads) * kQuadBytes, kQuadBytes);
    _tile_dpbssd(0, 2, 3);
    _tile_stored(0, dots[i % 2], kQuadBytes);
  };
  multiply(0);
  for (int64_t i = 0; i < products; ++i) {
    if (i + 1 < products) multiply(i + 1);  // while the vectors work on this one
    const int64_t block = i / E::kGroups;
    const int group = static_cast<int>(i % E::kGroups), which = E::kGroups == 1 ? 0 : 1 + group;
    const uint8_t* b = unit + block * E::kUnitBytes;
    const float* scale = reinterpret_cast<const float*>(record + block * record_bytes + rows * kBlock);
    const float* code_sum = scale + 4 * rows;
    const __m512 d = E::Scales::template load_scale<V>(b, half * kHalfRows, group);
    __m512 m = V::zero();
    if constexpr (E::kHasMin) m = E::Scales::template load_min<V>(b, half * kHalfRows, group);
    const auto add = [&](int r) TUTTI_INLINE {
      const __m512i dot = _mm512_load_si512(dots[i % 2][r]);
      sum[r] = V::fma(V::to_float(dot), V::mul(d, V::set1(scale[r])), sum[r]);
      if constexpr (E::kHasMin) sum[r] = V::fma(m, V::set1(code_sum[which * rows + r]), sum[r]);
    };
    if (rows == kTileRows) {
      for_constants<kTileRows>([&]<int kRow>() TUTTI_INLINE { add(kRow); });
    } else {
      for_constants<kTileRows>([&]<int kRow>() TUTTI_INLINE {
        if (kRow < rows) add(kRow);
      });
    }
  }
  for_constants<kTileRows>([&]<int kRow>() TUTTI_INLINE {
    if (kRow < rows) V::store(c + kRow * ldc, sum[kRow]);
  });
}

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
    const uint8_t* unit = panel + b0 / Format::kBlocks * Format::kUnitBytes;
    for (int64_t u = 0; u < blocks / Format::kBlocks; ++u) {
      V::template prefetch<Format::kUnitBytes>(unit + u * Format::kUnitBytes + V::kPrefetchBytes);
      expand_signed<Format>(unit + u * Format::kUnitBytes, expanded + u * Format::kBlocks * E::kUnitBytes);
    }
    for (int64_t r0 = 0; r0 < rows;) {
      const int tile_rows = next_tile_rows<V>(rows - r0, kTileRows);
      config.use(tile_rows, kQuads / E::kGroups, 0);
      const uint8_t* record = tiles + (r0 * all_blocks + b0 * tile_rows) * kQuantBytesPerRow;
      for (int half = 0; half < 2; ++half) {
        signed_tile_product<E>(record, expanded, blocks, tile_rows, half, c + r0 * ldc + half * kHalfRows, ldc, b0 == 0);
      }
      r0 += tile_rows;
    }
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
  config.use(rows, kQuads / E::kGroups, 0);
  for (int64_t first = 0; first < count; first += kMost) {
    const int64_t now = count - first < kMost ? count - first : kMost;
    for (int64_t i = 0; i < now; ++i) expand_signed<Q8_0>(panel + blocks[first + i] * Q8_0::kUnitBytes, expanded + i * E::kUnitBytes);
    for (int half = 0; half < 2; ++half) {
      signed_tile_product<E>(tiles + first * rows * kQuantBytesPerRow, expanded, now, rows, half, c + half * kHalfRows, ldc, false);
    }
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
  for (int64_t p0 = 0; p0 < all_pairs; p0 += kChunkPairs) {
    const int64_t end = all_pairs - p0 < kChunkPairs ? all_pairs : p0 + kChunkPairs;
    for (int64_t r0 = 0; r0 < rows;) {
      const int tile_rows = next_tile_rows<V>(rows - r0, kTileRows);
      config.use(tile_rows, kPairs, last);
      const uint8_t* a = tiles + r0 * row_bytes;
      float* out = c + r0 * ldc;
      const int64_t out_bytes = ldc * 4;
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
        if (r0 == 0) V::prefetch<kPairs * kPairBytes>(w + V::kPrefetchBytes);
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

bool amx_is_faster() {
  // A panel and tiles of zeros: neither kernel looks at the values.
  constexpr int64_t kRows = 48, kFeatures = 1024, kRuns = 20;
  alignas(64) static uint8_t panel[kFeatures / Q8_0::kUnit * Q8_0::kUnitBytes + V::kPrefetchBytes];
  alignas(64) static uint8_t tiles[kRows * kFeatures / kBlock * kQuantBytesPerRow];
  alignas(64) static float out[kRows * kPanelRows];
  const auto fastest = [&](LevelKernels::PanelKernel kernel) {
    uint64_t best = UINT64_MAX;
    for (int run = 0; run < kRuns; ++run) {
      const uint64_t begin = __rdtsc();
      kernel(panel, kFeatures, tiles, kRows, out, kPanelRows);
      const uint64_t cycles = __rdtsc() - begin;
      if (cycles < best) best = cycles;
    }
    return best;
  };
  const auto type = static_cast<size_t>(DType::kQ8_0);
  return fastest(amx_kernels().panel[type]) < fastest(vnni_kernels().panel[type]);
}

}  // namespace tutti::cpu
