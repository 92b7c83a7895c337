// The arithmetic of reducing collectives.
#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace tutti {

// F32, F16, BF16, I32 and I64 can be summed.
bool can_reduce(DType dtype);

// out[i] = parts[0][i] + parts[1][i] + ... in that order; half types are added in float32 and
// rounded once (to nearest even). `out` may be one of the parts. The bits do not depend on the
// processor or on where a slice begins.
void sum_in_order(void* out, const void* const* parts, int num_parts, int64_t count, DType dtype);

// What the sums of half types pass through; also used where a sum is kept in float32 between two
// steps.
void to_float(float* out, const void* in, int64_t count, DType dtype);
void from_float(void* out, const float* in, int64_t count, DType dtype);

}  // namespace tutti
