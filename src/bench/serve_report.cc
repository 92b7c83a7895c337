#include "bench/serve_report.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <numeric>

#include "base/error.h"

namespace tutti {
namespace {

constexpr double kMs = 1e3;

struct Name {
  const char* name;
  const char* label;
  const char* header;
};
constexpr Name kNames[] = {
    {"ttft", "TTFT", "Time to First Token"},
    {"tpot", "TPOT", "Time per Output Token (excl. 1st token)"},
    {"itl", "ITL", "Inter-token Latency"},
    {"e2el", "E2EL", "End-to-end Latency"},
    {"client_queue_time", "Client queue", "Client Queue Time"},
    {"e2el_including_client_queue", "E2EL incl. queue", "End-to-end Latency (incl. Client Queue)"},
};

double mean(const std::vector<double>& values) {
  return values.empty() ? 0 : std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double deviation(const std::vector<double>& values) {
  const double m = mean(values);
  double sum = 0;
  for (double v : values) sum += (v - m) * (v - m);
  return values.empty() ? 0 : std::sqrt(sum / static_cast<double>(values.size()));
}

// Between the two nearest values, as numpy does.
double percentile(std::vector<double> values, double percent) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const double at = percent / 100 * static_cast<double>(values.size() - 1);
  const auto low = static_cast<size_t>(at);
  const size_t high = std::min(low + 1, values.size() - 1);
  return values[low] + (values[high] - values[low]) * (at - static_cast<double>(low));
}

std::string percentile_name(double percent) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", percent);
  return text;
}

std::string centred(const std::string& text, char fill) {
  constexpr size_t kWidth = 50;
  const size_t room = kWidth > text.size() ? kWidth - text.size() : 0;
  return std::string(room / 2, fill) + text + std::string(room - room / 2, fill) + "\n";
}

std::string line(const std::string& label, const std::string& value) {
  char text[128];
  std::snprintf(text, sizeof text, "%-40s %-10s\n", label.c_str(), value.c_str());
  return text;
}
std::string line(const std::string& label, double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2f", value);
  return line(label, text);
}
std::string line(const std::string& label, int64_t value) { return line(label, std::to_string(value)); }

}  // namespace

ServeReport::ServeReport(const std::vector<BenchPrompt>& prompts, const std::vector<LoadResult>& results, double duration_s,
                         ReportOptions options)
    : results_(results), duration_s_(duration_s), options_(std::move(options)) {
  for (const Name& name : kNames) metrics_.push_back({name.name, name.label, name.header, {}});
  for (const std::string& metric : options_.metrics) values(metric);
  for (const auto& [metric, limit] : options_.goodput) {
    const bool known = metric == "ttft" || metric == "tpot" || metric == "e2el";
    if (!known) throw ConfigError("--goodput " + metric + ": expected ttft, tpot or e2el with milliseconds, ttft:200");
  }
  for (size_t i = 0; i < results.size(); ++i) add(results[i], prompts[i]);
  find_peaks();
}

std::vector<double>& ServeReport::values(const std::string& name) {
  for (Metric& metric : metrics_) {
    if (metric.name == name) return metric.values_ms;
  }
  throw ConfigError("--percentile-metrics " + name +
                    ": expected ttft, tpot, itl, e2el, client_queue_time or e2el_including_client_queue");
}

void ServeReport::add(const LoadResult& r, const BenchPrompt& prompt) {
  const int64_t input = r.prompt_tokens >= 0 ? r.prompt_tokens : prompt.num_tokens;
  // A server that does not count is taken to have sent a token an event.
  const int64_t output = !r.ok ? 0 : r.output_tokens >= 0 ? r.output_tokens : static_cast<int64_t>(r.itls_s.size()) + 1;
  input_lens_.push_back(input);
  output_lens_.push_back(output);
  if (!r.ok) {
    ++failed_;
    return;
  }
  ++completed_;
  total_input_ += input;
  total_output_ += output;
  const double tpot_ms = output > 1 ? (r.latency_s - r.ttft_s) / static_cast<double>(output - 1) * kMs : 0;
  values("ttft").push_back(r.ttft_s * kMs);
  if (output > 1) values("tpot").push_back(tpot_ms);
  for (double itl : r.itls_s) values("itl").push_back(itl * kMs);
  values("e2el").push_back(r.latency_s * kMs);
  values("client_queue_time").push_back(r.queue_s * kMs);
  values("e2el_including_client_queue").push_back((r.latency_s + r.queue_s) * kMs);
  const std::map<std::string, double> own = {{"ttft", r.ttft_s * kMs}, {"tpot", tpot_ms}, {"e2el", r.latency_s * kMs}};
  const bool good = std::all_of(options_.goodput.begin(), options_.goodput.end(),
                                [&](const auto& limit) { return own.at(limit.first) <= limit.second; });
  if (good) ++good_;
}

// Per second of the load: tokens that came in it, requests that were open in it. Tokens of a request are spread over its
// events.
void ServeReport::find_peaks() {
  const auto seconds = static_cast<size_t>(std::max(0.0, duration_s_)) + 1;
  std::vector<double> tokens(seconds, 0);
  std::vector<int64_t> open(seconds, 0);
  const auto bucket = [&](double at) { return std::min(static_cast<size_t>(std::max(0.0, at)), seconds - 1); };
  for (size_t i = 0; i < results_.size(); ++i) {
    const LoadResult& r = results_[i];
    if (!r.ok) continue;
    const double per_event = static_cast<double>(output_lens_[i]) / static_cast<double>(r.itls_s.size() + 1);
    double at = r.start_s + r.ttft_s;
    tokens[bucket(at)] += per_event;
    for (double itl : r.itls_s) tokens[bucket(at += itl)] += per_event;
    for (size_t s = bucket(r.start_s); s <= bucket(r.start_s + r.latency_s); ++s) ++open[s];
  }
  peak_output_ = *std::max_element(tokens.begin(), tokens.end());
  peak_concurrent_ = *std::max_element(open.begin(), open.end());
}

std::string ServeReport::text() const {
  const auto rate = [this](int64_t count) { return duration_s_ > 0 ? static_cast<double>(count) / duration_s_ : 0; };
  std::string out = centred(" Serving Benchmark Result ", '=');
  out += line("Successful requests:", completed_);
  out += line("Failed requests:", failed_);
  if (options_.max_concurrency > 0) out += line("Maximum request concurrency:", static_cast<int64_t>(options_.max_concurrency));
  if (options_.rate > 0) out += line("Request rate configured (RPS):", options_.rate);
  out += line("Benchmark duration (s):", duration_s_);
  out += line("Total input tokens:", total_input_);
  out += line("Total generated tokens:", total_output_);
  out += line("Request throughput (req/s):", rate(completed_));
  if (!options_.goodput.empty()) out += line("Request goodput (req/s):", rate(good_));
  out += line("Output token throughput (tok/s):", rate(total_output_));
  out += line("Peak output token throughput (tok/s):", peak_output_);
  out += line("Peak concurrent requests:", static_cast<double>(peak_concurrent_));
  out += line("Total token throughput (tok/s):", rate(total_input_ + total_output_));
  for (const Metric& metric : metrics_) {
    if (std::find(options_.metrics.begin(), options_.metrics.end(), metric.name) == options_.metrics.end()) continue;
    out += centred(metric.header, '-');
    out += line("Mean " + metric.label + " (ms):", mean(metric.values_ms));
    out += line("Median " + metric.label + " (ms):", percentile(metric.values_ms, 50));
    for (double p : options_.percentiles) {
      out += line("P" + percentile_name(p) + " " + metric.label + " (ms):", percentile(metric.values_ms, p));
    }
  }
  return out + std::string(50, '=') + "\n";
}

Json ServeReport::json(bool detailed) const {
  const auto rate = [this](int64_t count) { return duration_s_ > 0 ? static_cast<double>(count) / duration_s_ : 0; };
  Json out = {{"duration", duration_s_},
              {"completed", completed_},
              {"failed", failed_},
              {"total_input_tokens", total_input_},
              {"total_output_tokens", total_output_},
              {"request_throughput", rate(completed_)},
              {"request_goodput", nullptr},
              {"output_throughput", rate(total_output_)},
              {"total_token_throughput", rate(total_input_ + total_output_)},
              {"max_output_tokens_per_s", peak_output_},
              {"max_concurrent_requests", peak_concurrent_}};
  if (!options_.goodput.empty()) out["request_goodput"] = rate(good_);
  for (const Metric& metric : metrics_) {
    if (std::find(options_.metrics.begin(), options_.metrics.end(), metric.name) == options_.metrics.end()) continue;
    out["mean_" + metric.name + "_ms"] = mean(metric.values_ms);
    out["median_" + metric.name + "_ms"] = percentile(metric.values_ms, 50);
    out["std_" + metric.name + "_ms"] = deviation(metric.values_ms);
    for (double p : options_.percentiles) {
      out["p" + percentile_name(p) + "_" + metric.name + "_ms"] = percentile(metric.values_ms, p);
    }
  }
  if (!detailed) return out;
  out["input_lens"] = input_lens_;
  out["output_lens"] = output_lens_;
  for (const char* name : {"ttfts", "itls", "start_times", "latencies", "generated_texts", "errors"}) out[name] = Json::array();
  for (const LoadResult& r : results_) {
    out["ttfts"].push_back(r.ttft_s);
    out["itls"].push_back(r.itls_s);
    out["start_times"].push_back(r.start_s);
    out["latencies"].push_back(r.latency_s);
    out["generated_texts"].push_back(r.text);
    out["errors"].push_back(r.error);
  }
  return out;
}

}  // namespace tutti
