#include "comm/reduce.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <algorithm>
#include <cstring>

#include "base/cpu_features.h"
#include "base/check.h"
#include "tensor/half.h"

namespace tutti {
namespace {

// Elements that stay in the first-level cache between the addends.
constexpr int64_t kBlock = 1024;

#if defined(__x86_64__)
__attribute__((target("avx,f16c"))) void halves_to_floats_f16c(float* out, const uint16_t* in,
                                                               int64_t count) {
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    _mm256_storeu_ps(out + i,
                     _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(in + i))));
  }
  for (; i < count; ++i) out[i] = half_to_float(in[i]);
}

__attribute__((target("avx,f16c"))) void floats_to_halves_f16c(uint16_t* out, const float* in,
                                                               int64_t count) {
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + i),
                     _mm256_cvtps_ph(_mm256_loadu_ps(in + i), _MM_FROUND_TO_NEAREST_INT));
  }
  for (; i < count; ++i) out[i] = float_to_half(in[i]);
}

bool has_f16c() {
  static const bool yes = cpu_supports_f16c() != 0;
  return yes;
}
#else
bool has_f16c() { return false; }
void halves_to_floats_f16c(float*, const uint16_t*, int64_t) {}
void floats_to_halves_f16c(uint16_t*, const float*, int64_t) {}
#endif

// Elements that need no wider type while they are added.
template <typename T>
void sum_plain(void* out, const void* const* parts, int num_parts, int64_t count) {
  T* __restrict block = nullptr;
  alignas(64) T buffer[kBlock];
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const int64_t n = std::min(kBlock, count - begin);
    block = buffer;
    const T* first = static_cast<const T*>(parts[0]) + begin;
    std::memcpy(block, first, static_cast<size_t>(n) * sizeof(T));
    for (int p = 1; p < num_parts; ++p) {
      const T* part = static_cast<const T*>(parts[p]) + begin;
      for (int64_t i = 0; i < n; ++i) block[i] += part[i];
    }
    std::memcpy(static_cast<T*>(out) + begin, block, static_cast<size_t>(n) * sizeof(T));
  }
}

// The common case of two ranks, without the block in between.
template <typename T>
void sum_two(void* out, const void* a, const void* b, int64_t count) {
  const T* x = static_cast<const T*>(a);
  const T* y = static_cast<const T*>(b);
  T* z = static_cast<T*>(out);
  for (int64_t i = 0; i < count; ++i) z[i] = x[i] + y[i];
}

template <typename T>
void sum(void* out, const void* const* parts, int num_parts, int64_t count) {
  if (num_parts == 2) {
    sum_two<T>(out, parts[0], parts[1], count);
  } else {
    sum_plain<T>(out, parts, num_parts, count);
  }
}

void sum_halves(void* out, const void* const* parts, int num_parts, int64_t count, DType dtype) {
  alignas(64) float total[kBlock];
  alignas(64) float part[kBlock];
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const int64_t n = std::min(kBlock, count - begin);
    to_float(total, static_cast<const uint16_t*>(parts[0]) + begin, n, dtype);
    for (int p = 1; p < num_parts; ++p) {
      to_float(part, static_cast<const uint16_t*>(parts[p]) + begin, n, dtype);
      for (int64_t i = 0; i < n; ++i) total[i] += part[i];
    }
    from_float(static_cast<uint16_t*>(out) + begin, total, n, dtype);
  }
}

}  // namespace

bool can_reduce(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16 ||
         dtype == DType::kI32 || dtype == DType::kI64;
}

void to_float(float* out, const void* in, int64_t count, DType dtype) {
  const auto* half = static_cast<const uint16_t*>(in);
  if (dtype == DType::kF32) {
    std::memcpy(out, in, static_cast<size_t>(count) * sizeof(float));
  } else if (dtype == DType::kBF16) {
    for (int64_t i = 0; i < count; ++i) out[i] = bfloat16_to_float(half[i]);
  } else {
    CHECK(dtype == DType::kF16);
    if (has_f16c()) return halves_to_floats_f16c(out, half, count);
    for (int64_t i = 0; i < count; ++i) out[i] = half_to_float(half[i]);
  }
}

void from_float(void* out, const float* in, int64_t count, DType dtype) {
  auto* half = static_cast<uint16_t*>(out);
  if (dtype == DType::kF32) {
    std::memcpy(out, in, static_cast<size_t>(count) * sizeof(float));
  } else if (dtype == DType::kBF16) {
    for (int64_t i = 0; i < count; ++i) half[i] = float_to_bfloat16(in[i]);
  } else {
    CHECK(dtype == DType::kF16);
    if (has_f16c()) return floats_to_halves_f16c(half, in, count);
    for (int64_t i = 0; i < count; ++i) half[i] = float_to_half(in[i]);
  }
}

void sum_in_order(void* out, const void* const* parts, int num_parts, int64_t count, DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return sum<float>(out, parts, num_parts, count);
    // Unsigned: integers wrap on overflow, with the same bits as signed ones.
    case DType::kI32:
      return sum<uint32_t>(out, parts, num_parts, count);
    case DType::kI64:
      return sum<uint64_t>(out, parts, num_parts, count);
    default:
      return sum_halves(out, parts, num_parts, count, dtype);
  }
}

}  // namespace tutti
