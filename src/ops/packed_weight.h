// A weight matrix in the form that kernels read: one or more segments of stacked rows, each of one element type, in a
// layout that the device's packing chose. Immutable once packed.
#pragma once

#include <cstdint>
#include <vector>

#include "tensor/tensor.h"

namespace tutti {

struct PackedWeight {
  struct Segment {
    DType dtype = DType::kF32;  // as in the file
    int64_t rows = 0;           // output features
    int layout = 0;             // the device's own numbering (ops/cpu/layout.h)
    Tensor storage;             // U8 [bytes]
  };

  std::vector<Segment> segments;
  int64_t out_features = 0;
  int64_t in_features = 0;

  bool defined() const { return !segments.empty(); }
  size_t bytes() const {
    size_t sum = 0;
    for (const Segment& s : segments) sum += s.storage.bytes();
    return sum;
  }
};

}  // namespace tutti
