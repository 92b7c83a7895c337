// Reads the header of a GGUF file (versions 2 and 3, little-endian): metadata, tensor descriptions,
// where the tensors' bytes lie. Every count, length and offset is checked against the bytes that
// are there before anything is allocated for it. Pure function over a mapped file; any thread.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "weights/file_tensor.h"

namespace tutti {

struct GgufHeader {
  uint32_t version = 0;
  Json metadata =
      Json::object();  // keys in the file's order; strings are raw bytes and may be invalid UTF-8
  std::vector<FileTensor> tensors;  // in the file's order
};

// `path` stands in the messages. Throws IoError naming the key or tensor, what was expected and
// what was found.
GgufHeader parse_gguf(std::span<const std::byte> file, const std::string& path);

// GGML's name of a tensor type ("Q4_K", "IQ2_XXS"), or "type 99" for one that has none.
std::string ggml_type_name(uint32_t type);

// The number GGUF stores for a type; the type must be one that GGUF has.
uint32_t ggml_type_of(DType dtype);

}  // namespace tutti
