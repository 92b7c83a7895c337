// How a reducing collective deals `count` elements to its ranks.
#pragma once

#include <algorithm>
#include <cstdint>

namespace tutti {

struct Slice {
  int64_t begin;
  int64_t count;
};

// A slice begins on a multiple of this many elements: on a cache line, and on a block of the
// codecs.
constexpr int64_t kSliceElements = 64;

// The part of `count` elements that rank r of n sums; may be empty for the last ranks.
inline Slice slice_of(int64_t count, int r, int n) {
  const int64_t per_rank = (count + n - 1) / n;
  const int64_t stride = (per_rank + kSliceElements - 1) / kSliceElements * kSliceElements;
  const int64_t begin = std::min(count, stride * r);
  return {begin, std::min(count, begin + stride) - begin};
}

}  // namespace tutti
