// A step message from anywhere: decoding throws IoError or gives a value that encodes to the same bytes again.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/error.h"
#include "protocol/channel.h"
#include "protocol/wire.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tutti;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  try {
    if (wire::encode(wire::decode_scheduler_output(bytes)) != bytes) std::abort();
  } catch (const IoError&) {
  }
  try {
    if (wire::encode(wire::decode_model_runner_output(bytes)) != bytes) std::abort();
  } catch (const IoError&) {
  }
  try {
    const auto [key, value] = unpack_pair(bytes);
    if (pack_pair(key, value) != bytes) std::abort();
  } catch (const IoError&) {
  }
  return 0;
}
