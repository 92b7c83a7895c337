// Activations as int8 codes, the form in which they cross between ranks. A block of 32 elements is
//
//   float  max     max|x| of the block
//   int8   codes[32]
//
// with the codes that the quantised matrix kernels would make of x. decode() gives max back for codes of +-127 and
// code * (max / 127) otherwise, so that quantising the decoded values again finds the same max and the same codes:
// linear(decode(encode(x))) has the bits of linear(x).
#include "ops/cpu/drivers.h"
#include "ops/ops.h"

namespace tutti::cpu {

void encode_activations(const Context& ctx, const Tensor& x, const Tensor& codes) {
  const int64_t k = x.size(1);
  const LevelKernels& level = level_of(ctx);
  split_evenly(ctx, threads_for(ctx, x.size(0) * k / 4), x.size(0), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) level.encode_codes(x.row<float>(r), k, codes.row<uint8_t>(r));
  });
}

void decode_activations(const Context& ctx, const Tensor& codes, const Tensor& x) {
  const int64_t k = x.size(1);
  const LevelKernels& level = level_of(ctx);
  split_evenly(ctx, threads_for(ctx, x.size(0) * k / 8), x.size(0), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) level.decode_codes(codes.row<uint8_t>(r), k, x.row<float>(r));
  });
}

}  // namespace tutti::cpu
