// Writes a golden checkpoint as a GGUF file, with the names, metadata and row order that converters give it.
#pragma once

#include <string>

#include "tensor/dtype.h"

namespace tutti::testing {

// `dtype`: of all matrices.
void write_gguf_model(const std::string& folder, DType dtype, const std::string& path);

}  // namespace tutti::testing
