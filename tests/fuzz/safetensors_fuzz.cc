// Any bytes as a .safetensors file and as an index: an error or tensors that lie in the file, never
// more.
#include "weights/safetensors.h"

#include "base/check.h"
#include "base/error.h"

namespace {

void check_header(const tutti::SafetensorsHeader& header, size_t file_bytes) {
  size_t end = 0;
  for (const tutti::FileTensor& t : header.tensors) {
    CHECK(end == 0 || t.offset == end);
    CHECK(t.offset <= file_bytes && t.bytes <= file_bytes - t.offset);
    CHECK(tutti::checked_bytes(t.dtype, t.shape) == t.bytes);
    end = t.offset + t.bytes;
  }
  CHECK(header.tensors.empty() || end == file_bytes);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    check_header(tutti::parse_safetensors(std::as_bytes(std::span(data, size)), "fuzz"), size);
  } catch (const tutti::IoError&) {
  }
  try {
    for (const auto& [tensor, file] : tutti::parse_safetensors_index(
             std::string(reinterpret_cast<const char*>(data), size), "fuzz")) {
      CHECK(!file.empty() && file.find('/') == std::string::npos);
    }
  } catch (const tutti::IoError&) {
  }
  return 0;
}
