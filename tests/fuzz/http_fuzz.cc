// Bytes of a connection: any bytes, however they are cut, become the same requests or the same HttpError.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "server/http_parser.h"

using namespace tutti;

namespace {

// What a connection would have seen, written down: requests, and the error that ended it.
std::string run(std::string_view bytes, size_t piece) {
  HttpParser parser({.max_head_bytes = 4096, .max_body_bytes = 4096});
  std::string seen;
  try {
    while (!bytes.empty()) {
      const size_t n = std::min(piece, bytes.size());
      bool complete = parser.feed(bytes.substr(0, n));
      bytes.remove_prefix(n);
      while (complete) {
        const HttpRequest request = parser.take();
        seen += request.method + " " + request.path + "?" + request.query + " " + std::to_string(request.headers.size()) +
                " " + request.body + "\n";
        CHECK(request.body.size() <= 4096);
        CHECK(request.path.find('\0') == std::string::npos);
        static_cast<void>(request.query_param("deep"));
        complete = parser.feed("");
      }
    }
  } catch (const HttpError& e) {
    CHECK(e.status() >= 400 && e.status() < 600);
  }
  return seen;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  const size_t piece = 1 + data[0] % 64;
  const std::string whole = run(bytes, bytes.size() + 1);
  const std::string pieces = run(bytes, piece);
  // A limit may strike earlier when more bytes are there to see, but never other requests.
  CHECK(whole == pieces || whole.starts_with(pieces) || pieces.starts_with(whole));
  return 0;
}
