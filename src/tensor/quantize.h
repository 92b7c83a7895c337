// float32 to the floating and block-quantised types: for tiny models, tests and tools. Q8_0, Q4_0,
// Q4_1, Q5_0 and Q5_1 give the bytes that GGUF's own writers give. The K and IQ types have no
// single right answer: here each group's range decides its scale, without the search for a smaller
// error that converters do. Pure functions, any thread.
#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace tutti {

// in[count] (count a multiple of the type's block size) to `row`, which has dtype_bytes(dtype,
// count) bytes. Not for the integer types and F8_E4M3.
void quantize_row(const float* in, int64_t count, DType dtype, void* row);

}  // namespace tutti
