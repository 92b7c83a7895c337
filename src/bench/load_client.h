// Sends requests to an OpenAI-compatible server at given times, at most so many at once, and measures every streamed
// answer as its client sees it. One epoll loop on the calling thread, one connection a request.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace tutti {

struct LoadTarget {
  std::string host;
  int port = 80;
  std::string path;                                          // "/v1/completions"
  std::vector<std::pair<std::string, std::string>> headers;  // besides those that every request has
};

struct LoadRequest {
  std::string body;        // JSON, "stream" true
  double start_s = 0;      // not before, since the beginning of the load
  std::string request_id;  // X-Request-Id; "" = none
};

// Times in seconds. Those of a failed request end where it failed.
struct LoadResult {
  bool ok = false;
  std::string error;
  double start_s = 0;            // sent, since the beginning of the load
  double queue_s = 0;            // held back by the limit of requests at once
  double ttft_s = 0;             // to the first event with text
  double latency_s = 0;          // to the last event with text
  std::vector<double> itls_s;    // between events with text
  std::string text;
  int64_t prompt_tokens = -1;    // as the server counts them; -1 = it does not say
  int64_t output_tokens = -1;
};

struct LoadOptions {
  int max_concurrency = 0;      // 0 = no limit
  double silence_s = 300;       // a request whose server says nothing for so long has failed
  // Called after every finished request, and at least once a second; true = end here, what runs has failed.
  std::function<bool(int64_t done, int64_t failed)> on_progress;
};

// One result a request, in their order. Throws IoError only when nothing can be sent at all (no such host).
std::vector<LoadResult> run_load(const LoadTarget& target, const std::vector<LoadRequest>& requests, const LoadOptions& options);

}  // namespace tutti
