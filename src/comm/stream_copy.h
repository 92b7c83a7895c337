// Copying into memory that another core will read next.
#pragma once

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace tutti {

// Copies past the caches: between cores that share no cache, reading lines that are modified in the
// other's cache takes several times as long as reading memory. `to` is aligned to 16 bytes.
// Complete on return, so that a release store may publish it.
inline void stream_copy(void* to, const void* from, size_t bytes) {
#if defined(__x86_64__)
  auto* out = static_cast<__m128i*>(to);
  const auto* in = static_cast<const __m128i*>(from);
  const size_t whole = bytes / 64 * 4;
  for (size_t i = 0; i < whole; i += 4) {  // a cache line
    const __m128i a = _mm_loadu_si128(in + i), b = _mm_loadu_si128(in + i + 1);
    const __m128i c = _mm_loadu_si128(in + i + 2), d = _mm_loadu_si128(in + i + 3);
    _mm_stream_si128(out + i, a);
    _mm_stream_si128(out + i + 1, b);
    _mm_stream_si128(out + i + 2, c);
    _mm_stream_si128(out + i + 3, d);
  }
  if (bytes % 64 != 0) std::memcpy(out + whole, in + whole, bytes % 64);
  _mm_sfence();
#else
  if (bytes > 0) std::memcpy(to, from, bytes);
#endif
}

}  // namespace tutti
