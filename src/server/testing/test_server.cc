#include "server/testing/test_server.h"

#include <chrono>

#include "base/error.h"

namespace tutti {

TestServer::TestServer(Options options) : executor_(options.rule, options.num_kv_blocks), chat_template_(ChatTemplate::chatml()) {
  EngineConfig engine_config;
  engine_config.scheduler = options.scheduler;
  engine_config.scheduler.max_model_len = options.max_model_len;
  options.config.http.port = 0;
  ModelInfo model;
  model.served_names = {"test-model", "alias"};
  model.root = "/models/test";
  model.max_model_len = options.max_model_len;
  model.vocab_size = tokenizer_.vocab_size();
  model.eos_token_ids = {ByteTokenizer::kEos};
  model.defaults = options.defaults;
  metrics_ = std::make_unique<Metrics>(engine_config, "test-model", options.config.metrics_prefixes);
  engine_ = std::make_unique<AsyncEngine>(engine_config, model.eos_token_ids, executor_, *metrics_);
  server_ = std::make_unique<Server>(options.config, model, *engine_, *metrics_, tokenizer_, chat_template_);
  thread_ = std::thread([this] {
    try {
      server_->run();
    } catch (const CommError& e) {
      failure_ = e.what();
    }
    ended_ = true;
  });
}

TestServer::~TestServer() {
  executor_.paused = false;
  server_->drain(Deadline::after(std::chrono::milliseconds(0)));
  join();
}

void TestServer::join() {
  if (thread_.joinable()) thread_.join();
}

ClientResponse TestServer::get(const std::string& path, const std::string& headers) {
  return TestClient(port()).get(path, headers);
}

ClientResponse TestServer::post(const std::string& path, const Json& body, const std::string& headers) {
  return TestClient(port()).post(path, body, headers);
}

bool eventually(const std::function<bool()>& condition) {
  const Deadline deadline = Deadline::after(std::chrono::seconds(60));
  while (!deadline.passed()) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return condition();
}

}  // namespace tutti
