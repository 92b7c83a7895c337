// Bytes of a connection to HttpRequests, with limits on the head and the body. No sockets: the connection
// feeds it, and so do its test and its fuzzer. One per connection, used on the connection's loop.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/error.h"
#include "server/http.h"

namespace tutti {

// Bytes that are not HTTP, or too many of them: answered with `status`, then the connection is closed.
class HttpError : public Error {
 public:
  HttpError(int status, const std::string& message) : Error(message, ExitCode::kConfig), status_(status) {}
  int status() const { return status_; }

 private:
  int status_;
};

class HttpParser {
 public:
  struct Limits {
    uint32_t max_head_bytes = 64 * 1024;
    uint64_t max_body_bytes = 32ull * 1024 * 1024;
  };

  explicit HttpParser(const Limits& limits);
  ~HttpParser();

  // Adds bytes; what lies beyond the end of the request is kept for the next one. True when a request is
  // complete. Throws HttpError (400, 413, 431, 501, 505).
  bool feed(std::string_view bytes);
  // The complete request. The parser is then ready for the next; call feed("") to see whether it is already
  // there.
  HttpRequest take();

  // Some bytes of a request have come, but not all of it.
  bool in_request() const;
  bool head_complete() const;
  // The head is complete, the body is not, and the client waits for "100 Continue". True once per request.
  bool wants_continue();

 private:
  struct State;
  const Limits limits_;
  std::unique_ptr<State> state_;
};

}  // namespace tutti
