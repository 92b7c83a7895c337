// Reads the header of a .safetensors file: 8 bytes of length, a JSON object, then the tensors'
// bytes. Strict: a file whose header and size do not agree to the byte is refused. Pure function
// over a mapped file; any thread.
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "weights/file_tensor.h"

namespace tutti {

struct SafetensorsHeader {
  std::vector<FileTensor> tensors;              // in the order of their bytes
  std::map<std::string, std::string> metadata;  // "__metadata__"
};

// `path` stands in the messages. Throws IoError naming the tensor, what was expected and what was
// found.
SafetensorsHeader parse_safetensors(std::span<const std::byte> file, const std::string& path);

// The "weight_map" of a model.safetensors.index.json: tensor name -> file name (a plain name in the
// same folder). Throws IoError.
std::map<std::string, std::string> parse_safetensors_index(const std::string& text,
                                                           const std::string& path);

}  // namespace tutti
