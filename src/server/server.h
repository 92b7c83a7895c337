// The HTTP side of the program: sockets, routes and the API over one engine. apps/ builds it when the model
// is loaded, calls run() on the main thread and drain() from the thread that waits for signals.
#pragma once

#include <memory>
#include <string>

#include "server/async_engine.h"
#include "server/router.h"
#include "server/server_config.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace tutti {

class Server {
 public:
  // Binds and listens; throws ConfigError. The references outlive the server.
  Server(const ServerConfig& config, const ModelInfo& model, AsyncEngine& engine, Metrics& metrics,
         const Tokenizer& tokenizer, const ChatTemplate& chat_template);
  ~Server();

  int port() const;
  std::string address() const;  // "http://127.0.0.1:8000"
  // For routes of other modules (a dashboard, the cluster's status). Before run().
  Router& router();

  // Serves until drain() has ended, and then ends the engine. Throws CommError when the engine has failed
  // (its clients have been told), unless the configuration says to stay.
  void run();
  // No new requests (503); running ones may end until `deadline`. Again with an earlier deadline: ends
  // sooner. `why` there is no more time is logged with the requests that are cut off. Thread-safe, returns at once.
  void drain(Deadline deadline, const std::string& why = "the time to end is over");
  // Requests that drain() ended with an error.
  int64_t num_aborted() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tutti
