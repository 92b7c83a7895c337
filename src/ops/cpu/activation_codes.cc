// Activations as int8 codes, the form in which they cross between ranks. A block of 32 elements is
//
//   float  max     max|x| of the block
//   int8   codes[32]
//
// with the codes that the quantised matrix kernels would make of x. decode() gives max back for codes of +-127 and
// code * (max / 127) otherwise, so that quantising the decoded values again finds the same max and the same codes:
// linear(decode(encode(x))) has the bits of linear(x).
#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "ops/cpu/drivers.h"
#include "ops/cpu/layout.h"
#include "ops/ops.h"

namespace tutti::cpu {
namespace {

constexpr int64_t kCodeBlockBytes = sizeof(float) + kBlock;

float largest(const float* x) {
  float max = 0.0f;
  bool nan = false;
  for (int i = 0; i < kBlock; ++i) {
    nan |= std::isnan(x[i]);
    max = std::max(max, std::fabs(x[i]));
  }
  return nan ? NAN : max;
}

void encode_row(const LevelKernels& level, const float* x, int64_t k, uint8_t* tile, uint8_t* out) {
  level.quant_tile(x, k, 1, k, tile);
  for (int64_t b = 0; b < k / kBlock; ++b, out += kCodeBlockBytes) {
    const float max = largest(x + b * kBlock);
    std::memcpy(out, &max, sizeof max);
    std::memcpy(out + sizeof max, tile + b * kQuantBytesPerRow, kBlock);
  }
}

void decode_row(const uint8_t* in, int64_t k, float* x) {
  for (int64_t b = 0; b < k / kBlock; ++b, in += kCodeBlockBytes, x += kBlock) {
    float max;
    std::memcpy(&max, in, sizeof max);
    int8_t codes[kBlock];
    std::memcpy(codes, in + sizeof max, kBlock);
    const float scale = max / 127.0f;
    for (int i = 0; i < kBlock; ++i) {
      const float code = static_cast<float>(codes[i]);
      x[i] = codes[i] == 127 ? max : codes[i] == -127 ? -max : code * scale;
    }
  }
}

}  // namespace

void encode_activations(const Context& ctx, const Tensor& x, const Tensor& codes) {
  const int64_t k = x.size(1);
  const LevelKernels& level = level_of(ctx);
  split_evenly(ctx, threads_for(ctx, x.size(0) * k), x.size(0), [&](int64_t begin, int64_t end) {
    thread_local std::vector<uint8_t> tile;  // one row; kept between calls
    tile.resize(static_cast<size_t>(quant_row_bytes(k)) + 64);
    auto* aligned = reinterpret_cast<uint8_t*>((reinterpret_cast<uintptr_t>(tile.data()) + 63) / 64 * 64);
    for (int64_t r = begin; r < end; ++r) encode_row(level, x.row<float>(r), k, aligned, codes.row<uint8_t>(r));
  });
}

void decode_activations(const Context& ctx, const Tensor& codes, const Tensor& x) {
  const int64_t k = x.size(1);
  split_evenly(ctx, threads_for(ctx, x.size(0) * k / 4), x.size(0), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) decode_row(codes.row<uint8_t>(r), k, x.row<float>(r));
  });
}

}  // namespace tutti::cpu
