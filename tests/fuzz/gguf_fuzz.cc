// Any bytes as a GGUF file: an error or tensors that lie in the file and can be dequantised, never
// more.
#include "weights/gguf.h"

#include "base/check.h"
#include "base/error.h"
#include "tensor/dequantize.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const tutti::GgufHeader header =
        tutti::parse_gguf(std::as_bytes(std::span(data, size)), "fuzz");
    for (const tutti::FileTensor& t : header.tensors) {
      CHECK(t.offset <= size && t.bytes <= size - t.offset);
      CHECK(tutti::checked_bytes(t.dtype, t.shape) == t.bytes);
      const std::optional<int64_t> count = tutti::checked_numel(t.shape);
      CHECK(count.has_value());
      std::vector<float> values(static_cast<size_t>(*count));
      tutti::dequantize_row(t.dtype, data + t.offset, *count, values.data());
    }
    tutti::dump_json(header.metadata);
  } catch (const tutti::IoError&) {
  }
  return 0;
}
