// What /metrics shows: per-request histograms and HTTP counters that the server records (thread-safe), and
// the engine's own counters, read when somebody scrapes. Each family that vLLM has too appears once under every configured
// prefix ("tutti:", "vllm:"), the others under "tutti:" alone.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "config/engine_config.h"
#include "engine/engine_core.h"

namespace tutti {

// One finished request of the engine, in instants of its life.
struct RequestRecord {
  Clock::time_point arrival{};
  Clock::time_point started{};  // first step scheduled; the epoch when it never was
  Clock::time_point first_token{};
  Clock::time_point last_token{};
  Clock::time_point end{};
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;
  int64_t generation_tokens = 0;
  int64_t max_tokens = 0;
  int n = 1;
  FinishReason finish_reason = FinishReason::kNone;
};

class Metrics {
 public:
  Metrics(const EngineConfig& engine, const std::string& model_name, std::vector<std::string> prefixes);
  ~Metrics();

  void first_token(double seconds_since_arrival);
  void next_tokens(int64_t count, double seconds_since_last);
  void iteration(int64_t num_tokens);
  void request_finished(const RequestRecord& record);
  void http_request(const std::string& method, const std::string& route, int status, double seconds);

  // Further text in Prometheus' exposition format, for what other modules know (ranks, links). Before the
  // first scrape.
  void add_source(std::function<std::string()> source);

  std::string render(const EngineStats& stats) const;
  static constexpr const char* kContentType = "text/plain; version=0.0.4; charset=utf-8";

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tutti
