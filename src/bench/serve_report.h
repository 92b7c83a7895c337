// What a load said: the block that people read and the JSON that scripts read, in the form of `vllm bench serve`.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "bench/load_client.h"
#include "bench/workload.h"

namespace tutti {

struct ReportOptions {
  std::vector<std::string> metrics = {"ttft", "tpot", "itl"};  // also e2el, client_queue_time, e2el_including_client_queue
  std::vector<double> percentiles = {99};
  std::vector<std::pair<std::string, double>> goodput;  // ttft, tpot, e2el: most milliseconds of a good request
  double rate = 0;                                      // 0 = all at once
  double burstiness = 1;
  int max_concurrency = 0;
};

class ServeReport {
 public:
  // `prompts`, `results`: one a request. `duration_s` of the whole load. Throws ConfigError for an unknown metric.
  ServeReport(const std::vector<BenchPrompt>& prompts, const std::vector<LoadResult>& results, double duration_s,
              ReportOptions options);

  int64_t completed() const { return completed_; }
  int64_t failed() const { return failed_; }

  std::string text() const;
  // duration, completed, total_input_tokens, ... ; with the lists of all requests when `detailed`.
  Json json(bool detailed) const;

 private:
  struct Metric {
    std::string name;    // "ttft"
    std::string label;   // "TTFT"
    std::string header;  // "Time to First Token"
    std::vector<double> values_ms;
  };
  void add(const LoadResult& result, const BenchPrompt& prompt);
  void find_peaks();
  std::vector<double>& values(const std::string& name);

  const std::vector<LoadResult>& results_;
  const double duration_s_;
  const ReportOptions options_;
  std::vector<Metric> metrics_;
  std::vector<int64_t> input_lens_;
  std::vector<int64_t> output_lens_;
  int64_t completed_ = 0;
  int64_t failed_ = 0;
  int64_t good_ = 0;
  int64_t total_input_ = 0;
  int64_t total_output_ = 0;
  double peak_output_ = 0;  // tokens within one second
  int64_t peak_concurrent_ = 0;
};

}  // namespace tutti
