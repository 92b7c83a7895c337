// HTTP/1.1 as route handlers see it: a request in, one response or one event stream out. The sockets are
// behind HttpServer (http_server.h); no Boost header is needed to write a handler.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/event_loop.h"

namespace tutti {

using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

struct HttpRequest {
  std::string method;   // "GET"
  std::string path;     // "/v1/models", percent-decoded
  std::string query;    // after the "?", as sent
  HttpHeaders headers;  // names in lower case
  std::string body;
  std::string peer;  // "10.0.0.7:51812" or "unix"
  bool keep_alive = true;
  bool http_1_0 = false;

  // The first header of that name (given in lower case), nullptr when there is none.
  const std::string* header(std::string_view name) const;
  // "deep" in "?deep", "?deep=" and "?deep=1": its decoded value.
  std::optional<std::string> query_param(std::string_view name) const;
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "application/json";
  HttpHeaders headers;
  std::string body;
};

// "Not Found" for 404.
std::string_view http_status_text(int status);
// "a%20b" to "a b". Nothing when an escape is broken or gives a NUL byte.
std::optional<std::string> percent_decode(std::string_view text);

// One request and the way to answer it. Lives on `loop()`; whoever answers holds the shared pointer. After a
// disconnect everything written is dropped, so that handlers need not care.
class HttpExchange {
 public:
  virtual ~HttpExchange() = default;

  virtual HttpRequest& request() = 0;
  virtual EventLoop& loop() = 0;

  // Goes into the response's head, whatever it turns out to be. Before respond() or start_stream().
  virtual void add_header(std::string name, std::string value) = 0;

  // The whole answer; or else start_stream() (server-sent events), any number of write(), and end().
  virtual void respond(HttpResponse response) = 0;
  virtual void start_stream() = 0;
  virtual void write(std::string_view events) = 0;
  virtual void end() = 0;

  // The head is on its way: the status cannot change any more.
  virtual bool started() const = 0;
  // False while the client is slower than we are: hold back (and merge) what comes until the handler of
  // on_writable.
  virtual bool writable() const = 0;
  virtual void on_writable(std::function<void()> handler) = 0;
  // The client is gone before the answer was complete.
  virtual void on_disconnect(std::function<void()> handler) = 0;
  // Once, when `instant` has passed (within a tenth of a second) and the answer is not complete: whatever the rest of the
  // process is waiting for.
  virtual void on_deadline(std::chrono::steady_clock::time_point instant, std::function<void()> handler) = 0;
  // Once, when the answer is complete or the client gone (kClientGone in place of a status).
  virtual void on_finish(std::function<void(int status)> handler) = 0;
  static constexpr int kClientGone = 499;
};

using HttpHandler = std::function<void(std::shared_ptr<HttpExchange>)>;

}  // namespace tutti
