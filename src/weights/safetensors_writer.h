// Writes small .safetensors files: tiny random models and the files of tests. Any thread.
#pragma once

#include <map>
#include <string>

#include "tensor/tensor.h"

namespace tutti {

// The file's bytes: a header padded to 8 bytes, then the tensors, those with the widest elements
// first, so that all are aligned. Tensors must be contiguous and of a type that safetensors has
// (not block-quantised).
std::string serialize_safetensors(const std::map<std::string, Tensor>& tensors,
                                  const std::map<std::string, std::string>& metadata = {});

// Throws IoError when the file cannot be written.
void write_safetensors(const std::string& path, const std::map<std::string, Tensor>& tensors,
                       const std::map<std::string, std::string>& metadata = {});

}  // namespace tutti
