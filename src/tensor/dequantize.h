// Any element type to float32: the scalar reference, bit for bit what the formats define. Kernels
// are tested against it; nothing on the hot path calls it. Pure functions, any thread.
#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace tutti {

// `count` elements at `row` (a multiple of the type's block size) to out[count].
void dequantize_row(DType dtype, const void* row, int64_t count, float* out);

}  // namespace tutti
