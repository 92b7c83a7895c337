// The `bf16` level: as `vnni`, but BF16 weights meet activations rounded to bfloat16 in VDPBF16PS, two products an
// instruction. On some processors that is twice as fast as widening to float, on others half: see isa.cc.
#include "ops/cpu/formats/plain.h"
#include "ops/cpu/level.h"
#include "ops/cpu/plain_kernels.h"
#include "ops/cpu/simd_avx512.h"

namespace tutti::cpu {
namespace {

using V = Avx512<true>;

__m512 dot_pairs(__m512 acc, __m512i w, __m512i x) {
#if defined(__clang__) && __clang_major__ < 17
  asm("vdpbf16ps %2, %1, %0" : "+v"(acc) : "v"(w), "v"(x));  // clang 16 crashes on the intrinsic's vector type
  return acc;
#else
  return _mm512_dpbf16_ps(acc, __builtin_bit_cast(__m512bh, w), __builtin_bit_cast(__m512bh, x));
#endif
}

// c[r][0 .. 32) (+)= the products of kRows rows of pairs with `pairs` pairs of a panel.
template <int kRows>
void pair_tile_product(const int32_t* a, const uint8_t* panel, int64_t pairs, float* c, int64_t ldc, bool first) {
  __m512 acc[kRows][2];
  for (int r = 0; r < kRows; ++r) {
    acc[r][0] = first ? V::zero() : V::load(c + r * ldc);
    acc[r][1] = first ? V::zero() : V::load(c + r * ldc + V::kLanes);
  }
  for (int64_t i = 0; i < pairs; ++i) {
    if constexpr (kRows <= 4) V::prefetch<128>(panel + V::kPrefetchBytes);
    const __m512i w0 = V::load_u(panel), w1 = V::load_u(panel + 64);
    for (int r = 0; r < kRows; ++r) {
      const __m512i x = _mm512_set1_epi32(a[r]);
      acc[r][0] = dot_pairs(acc[r][0], w0, x);
      acc[r][1] = dot_pairs(acc[r][1], w1, x);
    }
    a += kRows;
    panel += 128;
  }
  for (int r = 0; r < kRows; ++r) {
    V::store(c + r * ldc, acc[r][0]);
    V::store(c + r * ldc + V::kLanes, acc[r][1]);
  }
}

void pair_panel(const uint8_t* panel, int64_t k, const uint8_t* tiles, int64_t rows, float* c, int64_t ldc) {
  const int64_t all_pairs = (k + 1) / 2, chunk_pairs = kPlainChunk / 2;
  for (int64_t p0 = 0; p0 < all_pairs; p0 += chunk_pairs) {
    const int64_t pairs = all_pairs - p0 < chunk_pairs ? all_pairs - p0 : chunk_pairs;
    for (int64_t r0 = 0; r0 < rows;) {
      const int tile_rows = next_tile_rows<V>(rows - r0, V::kFloatTileRows);
      const int32_t* a = reinterpret_cast<const int32_t*>(tiles) + r0 * all_pairs + p0 * tile_rows;
      with_tile_rows<V::kFloatTileRows>(tile_rows, [&]<int kRows>() TUTTI_INLINE {
        pair_tile_product<kRows>(a, panel + p0 * 128, pairs, c + r0 * ldc, ldc, p0 == 0);
      });
      r0 += tile_rows;
    }
  }
}

// One row takes some pairs of each panel in turn.
void pair_panels_in_turn(const uint8_t* const* panels, int64_t k, const uint8_t* tiles, int64_t rows, float* const* c, int64_t ldc) {
  constexpr int64_t kStep = 4;  // pairs of a panel before the next one's
  if (rows > 1) {
    for (int p = 0; p < kPanelsInTurn; ++p) pair_panel(panels[p], k, tiles, rows, c[p], ldc);
    return;
  }
  const int32_t* a = reinterpret_cast<const int32_t*>(tiles);
  const int64_t pairs = (k + 1) / 2;
  __m512 acc[kPanelsInTurn][2] = {};
  for (int64_t i0 = 0; i0 < pairs; i0 += kStep) {
    const int64_t end = pairs - i0 < kStep ? pairs : i0 + kStep;
    for_constants<kPanelsInTurn>([&]<int kPanel>() TUTTI_INLINE {
      const uint8_t* w = panels[kPanel] + i0 * 128;
      for (int64_t i = i0; i < end; ++i, w += 128) {
        const __m512i x = _mm512_set1_epi32(a[i]);
        acc[kPanel][0] = dot_pairs(acc[kPanel][0], V::load_u(w), x);
        acc[kPanel][1] = dot_pairs(acc[kPanel][1], V::load_u(w + 64), x);
      }
    });
  }
  for (int p = 0; p < kPanelsInTurn; ++p) {
    V::store(c[p], acc[p][0]);
    V::store(c[p] + V::kLanes, acc[p][1]);
  }
}

void pair_tile(const float* x, int64_t stride, int rows, int64_t k, uint8_t* tile) {
  auto* out = reinterpret_cast<int32_t*>(tile);
  for (int r = 0; r < rows; ++r) {
    const float* row = x + r * stride;
    int64_t i = 0;
    for (; i + V::kLanes <= k; i += V::kLanes) {
      int32_t pairs[V::kLanes / 2];
      V::store_bf16(reinterpret_cast<uint16_t*>(pairs), V::load(row + i));
      for (int j = 0; j < V::kLanes / 2; ++j) out[(i / 2 + j) * rows + r] = pairs[j];
    }
    for (; i < k; i += 2) {
      const uint32_t low = float_to_bf16<V>(row[i]), high = i + 1 < k ? float_to_bf16<V>(row[i + 1]) : 0;
      out[i / 2 * rows + r] = static_cast<int32_t>(low | high << 16);
    }
  }
}

}  // namespace

const LevelKernels& bf16_kernels() {
  static const LevelKernels kernels = [] {
    LevelKernels k = vnni_kernels();
    k.isa = Isa::kBf16;
    k.name = "bf16";
    k.panel[static_cast<size_t>(DType::kBF16)] = pair_panel;
    k.panels_in_turn[static_cast<size_t>(DType::kBF16)] = pair_panels_in_turn;
    k.pair_tile_rows = k.float_tile_rows;
    k.pair_tile = pair_tile;
    return k;
  }();
  return kernels;
}

}  // namespace tutti::cpu
