// A running server over a fake model.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "server/server.h"
#include "server/testing/fake_model.h"
#include "server/testing/test_client.h"

namespace tutti {

// A server on a free port; ends with the object.
class TestServer {
 public:
  struct Options {
    ServerConfig config;
    SchedulerConfig scheduler;
    GenerationDefaults defaults;
    RuleExecutor::Rule rule = repeat_text("hello world ");
    int64_t max_model_len = 4096;
    int64_t num_kv_blocks = 1 << 16;
  };
  TestServer() : TestServer(Options()) {}
  explicit TestServer(Options options);
  ~TestServer();

  int port() const { return server_->port(); }
  Server& server() { return *server_; }
  AsyncEngine& engine() { return *engine_; }
  RuleExecutor& executor() { return executor_; }
  const std::string& failure() const { return failure_; }
  bool ended() const { return ended_; }  // run() has returned
  void join();
  ClientResponse get(const std::string& path, const std::string& headers = "");
  ClientResponse post(const std::string& path, const Json& body, const std::string& headers = "");

 private:
  ByteTokenizer tokenizer_;
  RuleExecutor executor_;
  ChatTemplate chat_template_;
  std::unique_ptr<Metrics> metrics_;
  std::unique_ptr<AsyncEngine> engine_;
  std::unique_ptr<Server> server_;
  std::string failure_;
  std::atomic<bool> ended_{false};
  std::thread thread_;
};

// Until `condition` holds; a minute, because a sanitizer on a busy machine may take ten seconds for megabytes of JSON.
bool eventually(const std::function<bool()>& condition);

}  // namespace tutti
