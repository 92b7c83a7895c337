// What the readers of weight files share: one tensor as a file's header describes it, and how names
// and shapes of untrusted files are shown to people. Plain values and pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/dtype.h"

namespace tutti {

// Checked against the size of the file: [offset, offset + bytes) lies inside it and holds exactly
// `shape` elements.
struct FileTensor {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;  // rows first
  size_t offset = 0;           // from the start of the file
  size_t bytes = 0;
};

// Elements of `shape`; nothing when the product does not fit 63 bits.
std::optional<int64_t> checked_numel(const std::vector<int64_t>& shape);

// Bytes of a contiguous tensor; nothing on overflow or when a row is not whole blocks.
std::optional<size_t> checked_bytes(DType dtype, const std::vector<int64_t>& shape);

// Where elements of this type may start, so that the CPU can read them in place.
size_t element_alignment(DType dtype);

// A name for a message: quoted, control characters replaced, cut after 80 bytes.
std::string quote_name(std::string_view name);

std::string shape_text(const std::vector<int64_t>& shape);  // "[4096, 576]"

}  // namespace tutti
