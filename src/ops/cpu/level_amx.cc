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
    const TileShapes made = shapes(rows);
    _tile_loadconfig(&made);
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
// A product is ready long after it was begun, and later still for loads that find it in memory. So the products are made
// in turns of kTogether, and the vectors work on those of one turn while the next are made.
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
    alignas(64) int32_t dots[2][kTogether][kTileRows][kHalfRows];
    __m512 sum[kTileRows];
    Turn turn{.tile_rows = next_tile_rows<V>(rows, kTileRows)};
    make_products(turn, config, dots[0]);
    for (int parity = 0;; parity ^= 1) {
      const Turn following = after(turn);
      if (following.row < rows) make_products(following, config, dots[parity ^ 1]);
      float* out = c + turn.row * ldc + turn.half * kHalfRows;
      const bool full = turn.tile_rows == kTileRows;
      if (turn.product == 0) {
        const bool first = first_block == 0 && !accumulate;
        for_constants<kTileRows>([&]<int kRow>() TUTTI_INLINE {
          sum[kRow] = first || (!full && kRow >= turn.tile_rows) ? V::zero() : V::load(out + kRow * ldc);
        });
      }
      const int64_t last = turn.product + kTogether < products() ? turn.product + kTogether : products();
      for (int64_t p = turn.product; p < last; ++p) {
        if (full) {
          add<true>(turn, p, dots[parity][p - turn.product], sum);
        } else {
          add<false>(turn, p, dots[parity][p - turn.product], sum);
        }
      }
      if (last == products()) {
        for_constants<kTileRows>([&]<int kRow>() TUTTI_INLINE {
          if (full || kRow < turn.tile_rows) V::store(out + kRow * ldc, sum[kRow]);
        });
      }
      if (following.row >= rows) return;
      turn = following;
    }
  }

 private:
  static constexpr int kTogether = 4;
  static constexpr int kGroupQuads = kQuads / E::kGroups;

  // Products [product, product + kTogether) of one half of the panel with one tile of activations.
  struct Turn {
    int64_t row = 0;
    int tile_rows = 0, half = 0;
    int64_t product = 0;
  };

  int64_t products() const { return blocks * E::kGroups; }
  int64_t record_bytes(const Turn& turn) const { return turn.tile_rows * kQuantBytesPerRow; }
  const uint8_t* record(const Turn& turn) const { return tiles + (turn.row * all_blocks + first_block * turn.tile_rows) * kQuantBytesPerRow; }

  Turn after(Turn turn) const {
    turn.product += kTogether;
    if (turn.product < products()) return turn;
    turn.product = 0;
    turn.half ^= 1;
    if (turn.half != 0) return turn;
    turn.row += turn.tile_rows;
    if (turn.row < rows) turn.tile_rows = next_tile_rows<V>(rows - turn.row, kTileRows);
    return turn;
  }

  void make_products(const Turn& turn, TileConfig& config, int32_t (*dots)[kTileRows][kHalfRows]) const {
    config.use(turn.tile_rows, [](int r) { return quant_shapes(r, kGroupQuads); });
    const uint8_t* a = record(turn);
    const auto activations = [&](int64_t p) { return a + p / E::kGroups * record_bytes(turn) + p % E::kGroups * kGroupQuads * 4; };
    const auto weights = [&](int64_t p) {
      return unit + p / E::kGroups * E::kUnitBytes + (turn.half * kQuads + p % E::kGroups * kGroupQuads) * kQuadBytes;
    };
    const int64_t p = turn.product, left = products() - p;
    _tile_zero(0);
    _tile_loadd(4, activations(p), kBlock);
    _tile_loadd(5, weights(p), kQuadBytes);
    _tile_dpbssd(0, 4, 5);
    if (left > 1) {
      _tile_zero(1);
      _tile_loadd(6, activations(p + 1), kBlock);
      _tile_loadd(7, weights(p + 1), kQuadBytes);
      _tile_dpbssd(1, 6, 7);
    }
    if (left > 2) {
      _tile_zero(2);
      _tile_loadd(4, activations(p + 2), kBlock);
      _tile_loadd(5, weights(p + 2), kQuadBytes);
      _tile_dpbssd(2, 4, 5);
    }
    if (left > 3) {
      _tile_zero(3);
      _tile_loadd(6, activations(p + 3), kBlock);
      _tile_loadd(7, weights(p + 3), kQuadBytes);
      _tile_dpbssd(3, 6, 7);
    }
    if (turn.row == 0) {  // a share of what comes next
      const int64_t share = next_bytes / (2 * products());
      const uint8_t* from = next + (turn.half * products() + p) * share;
      for (int64_t i = 0; i < share * kTogether; i += 64) V::template prefetch<64>(from + i);
    }
    _tile_stored(0, dots[0], kQuadBytes);
    if (left > 1) _tile_stored(1, dots[1], kQuadBytes);
    if (left > 2) _tile_stored(2, dots[2], kQuadBytes);
    if (left > 3) _tile_stored(3, dots[3], kQuadBytes);
  }

  template <bool kFull>
  TUTTI_INLINE void add(const Turn& turn, int64_t p, const int32_t (*dots)[kHalfRows], __m512* sum) const {
    const int64_t block = p / E::kGroups;
    const int group = static_cast<int>(p % E::kGroups), which = E::kGroups == 1 ? 0 : 1 + group;
    const int rows_here = kFull ? kTileRows : turn.tile_rows;
    const uint8_t* b = unit + block * E::kUnitBytes;
    const float* scale = reinterpret_cast<const float*>(record(turn) + block * record_bytes(turn) + rows_here * kBlock);
    const float* code_sum = scale + 4 * rows_here + which * rows_here;
    const __m512 d = E::Scales::template load_scale<V>(b, turn.half * kHalfRows, group);
    __m512 m = V::zero();
    if constexpr (E::kHasMin) m = E::Scales::template load_min<V>(b, turn.half * kHalfRows, group);
    for_constants<kTileRows>([&]<int kRow>() TUTTI_INLINE {
      if (!kFull && kRow >= rows_here) return;
      const __m512i dot = _mm512_load_si512(dots[kRow]);
      sum[kRow] = V::fma(V::to_float(dot), V::mul(d, V::set1(scale[kRow])), sum[kRow]);
      if constexpr (E::kHasMin) sum[kRow] = V::fma(m, V::set1(code_sum[kRow]), sum[kRow]);
    });
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
  for (int64_t p0 = 0; p0 < all_pairs; p0 += kChunkPairs) {
    const int64_t end = all_pairs - p0 < kChunkPairs ? all_pairs : p0 + kChunkPairs;
    for (int64_t r0 = 0; r0 < rows;) {
      const int tile_rows = next_tile_rows<V>(rows - r0, kTileRows);
      config.use(tile_rows, [&](int r) { return pair_shapes(r, kPairs, last); });
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
