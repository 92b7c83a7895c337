// Sockets, event loops and their threads. run() serves until stop() has let running answers end; the handler
// is called on the loop of the request's connection.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/deadline.h"
#include "server/http.h"
#include "server/server_config.h"

namespace tutti {

class HttpServer {
 public:
  // Binds and listens. Throws ConfigError when it cannot, naming the address (and the process that has it).
  HttpServer(const HttpConfig& config, HttpHandler handler);
  ~HttpServer();

  int port() const;             // 0 with a Unix socket
  std::string address() const;  // "http://127.0.0.1:8000", "https://...", "unix:/run/tutti.sock"

  EventLoop& loop();  // the first one
  uint64_t arriving_bytes() const;  // what max_arriving_bytes bounds; from any thread

  // Serves on this thread and config.io_threads - 1 others. Returns after stop().
  void run();
  // No new connections; running answers may end until `deadline`, then all is closed. Thread-safe; the
  // earliest deadline of several calls counts.
  void stop(Deadline deadline);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tutti
