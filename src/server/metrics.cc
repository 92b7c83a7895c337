#include "server/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <limits>
#include <map>

#include "server/process_stats.h"

namespace tutti {
namespace {

using Buckets = prometheus::Histogram::BucketBoundaries;
using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

const Buckets kFirstTokenBuckets = {.001, .005, .01, .02, .04, .06, .08, .1, .25, .5,  .75,
                                    1,    2.5,  5,   7.5, 10,  20,  40,  80, 160, 640, 2560};
const Buckets kTokenBuckets = {.01, .025, .05, .075, .1,  .15, .2, .3, .4, .5,
                               .75, 1,    2.5, 5,    7.5, 10,  20, 40, 80};
const Buckets kRequestBuckets = {.3, .5, .8, 1,  1.5, 2,   2.5, 5,   10,   15,  20,
                                 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680};
const Buckets kHttpBuckets = {.001, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300};

// 1, 2, 5, 10, 20, 50, ... up to `limit`.
Buckets one_two_five(int64_t limit) {
  Buckets buckets;
  for (int64_t decade = 1; decade <= limit; decade *= 10) {
    for (int64_t step : {1, 2, 5}) {
      if (decade * step <= limit) buckets.push_back(static_cast<double>(decade * step));
    }
  }
  return buckets;
}

double seconds(Clock::time_point begin, Clock::time_point end) {
  return std::max(0.0, std::chrono::duration<double>(end - begin).count());
}

const char* reason_name(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kError:
      return "error";
    case FinishReason::kAbort:
    case FinishReason::kNone:
      break;
  }
  return "abort";
}

constexpr FinishReason kReasons[] = {FinishReason::kStop, FinishReason::kLength, FinishReason::kAbort,
                                     FinishReason::kError};

}  // namespace

struct Metrics::Impl {
  using Labels = prometheus::Labels;
  using Histogram = prometheus::Histogram;

  Impl(const EngineConfig& engine, const std::string& model, std::vector<std::string> prefixes_in)
      : prefixes(std::move(prefixes_in)),
        config(engine),
        labels({{"model_name", model}, {"engine", "0"}}),
        token_buckets(one_two_five(std::max<int64_t>(1, engine.scheduler.max_model_len))) {
    auto& finished = prometheus::BuildCounter()
                         .Name("request_success_total")
                         .Help("Requests that ended, by reason.")
                         .Register(registry);
    for (FinishReason reason : kReasons) {
      Labels with_reason = labels;
      with_reason["finished_reason"] = reason_name(reason);
      success[reason] = &finished.Add(with_reason);
    }
  }

  Histogram& histogram(const char* name, const char* help, const Buckets& buckets) {
    return prometheus::BuildHistogram().Name(name).Help(help).Register(registry).Add(labels, buckets);
  }

  std::vector<std::string> prefixes;
  EngineConfig config;
  Labels labels;
  Buckets token_buckets;
  prometheus::Registry registry;       // names without prefix
  prometheus::Registry http_registry;  // names that have none
  std::map<FinishReason, prometheus::Counter*> success;

  Histogram& ttft = histogram("time_to_first_token_seconds", "Arrival to first token.", kFirstTokenBuckets);
  Histogram& itl =
      histogram("inter_token_latency_seconds", "Time between two tokens of a request.", kTokenBuckets);
  Histogram& tpot_old =
      histogram("time_per_output_token_seconds", "Time between two tokens (older name).", kTokenBuckets);
  Histogram& tpot = histogram("request_time_per_output_token_seconds",
                              "Mean time per token after the first, of a request.", kTokenBuckets);
  Histogram& e2e = histogram("e2e_request_latency_seconds", "Arrival to end.", kRequestBuckets);
  Histogram& queue = histogram("request_queue_time_seconds", "Arrival to first step.", kRequestBuckets);
  Histogram& inference =
      histogram("request_inference_time_seconds", "First step to last token.", kRequestBuckets);
  Histogram& prefill =
      histogram("request_prefill_time_seconds", "First step to first token.", kRequestBuckets);
  Histogram& decode = histogram("request_decode_time_seconds", "First token to last token.", kRequestBuckets);
  Histogram& prompt = histogram("request_prompt_tokens", "Tokens of the prompt.", token_buckets);
  Histogram& generation = histogram("request_generation_tokens", "Tokens generated.", token_buckets);
  Histogram& max_generation =
      histogram("request_max_num_generation_tokens", "The most tokens one of a request's choices may have.",
                token_buckets);
  Histogram& params_n = histogram("request_params_n", "The request's n.", {1, 2, 5, 10, 20});
  Histogram& params_max = histogram("request_params_max_tokens", "The request's max_tokens.", token_buckets);
  Histogram& iteration = histogram("iteration_tokens_total", "Tokens computed and generated per engine step.",
                                   {1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384});
  Histogram& computed = histogram("request_prefill_kv_computed_tokens",
                                  "Prompt tokens computed, prefix cache hits left out.", token_buckets);
  prometheus::Family<prometheus::Counter>& http_total = prometheus::BuildCounter()
                                                            .Name("http_requests_total")
                                                            .Help("HTTP requests answered.")
                                                            .Register(http_registry);
  prometheus::Family<Histogram>& http_time = prometheus::BuildHistogram()
                                                 .Name("http_request_duration_seconds")
                                                 .Help("Arrival of the request to the end of its answer.")
                                                 .Register(http_registry);
  std::vector<std::function<std::string()>> sources;

  void add(std::vector<MetricFamily>* out, MetricType type, const std::string& name, const std::string& help,
           double value, const std::map<std::string, std::string>& more = {}) const {
    if (out->empty() || out->back().name != name) out->push_back({name, help, type, {}});
    ClientMetric metric;
    for (const auto& [key, text] : labels) metric.label.push_back({key, text});
    for (const auto& [key, text] : more) metric.label.push_back({key, text});
    (type == MetricType::Counter ? metric.counter.value : metric.gauge.value) = value;
    out->back().metric.push_back(std::move(metric));
  }

  void add_gauges(std::vector<MetricFamily>* out, const EngineStats& s) const {
    const auto gauge = [&](const char* name, const char* help, double value,
                           const std::map<std::string, std::string>& more = {}) {
      add(out, MetricType::Gauge, name, help, value, more);
    };
    const double usage = s.kv_blocks_total > 0
                             ? static_cast<double>(s.kv_blocks_used) / static_cast<double>(s.kv_blocks_total)
                             : 0.0;
    gauge("num_requests_running", "Requests in the batch.", s.num_running);
    gauge("num_requests_waiting", "Requests that wait for room.", s.num_waiting);
    gauge("num_requests_waiting_by_reason", "Requests that wait, by reason.", s.num_waiting,
          {{"reason", "capacity"}});
    gauge("num_requests_waiting_by_reason", "", 0, {{"reason", "deferred"}});
    gauge("kv_cache_usage_perc", "Share of the KV blocks in use, 0 to 1.", usage);
    gauge("gpu_cache_usage_perc", "Share of the KV blocks in use, 0 to 1 (older name).", usage);
    gauge("engine_sleep_state", "1 for the state the engine is in.", 1, {{"sleep_state", "awake"}});
    gauge("engine_sleep_state", "", 0, {{"sleep_state", "weights_offloaded"}});
    gauge("engine_sleep_state", "", 0, {{"sleep_state", "discard_all"}});
    gauge("cache_config_info", "The KV cache's configuration, in labels.", 1,
          {{"block_size", std::to_string(config.cache.block_size)},
           {"num_gpu_blocks", std::to_string(s.kv_blocks_total)},
           {"cache_dtype", config.cache.kv_cache_dtype},
           {"enable_prefix_caching", config.cache.enable_prefix_caching ? "True" : "False"},
           {"gpu_memory_utilization", std::to_string(config.cache.gpu_memory_utilization)}});
  }

  void add_counters(std::vector<MetricFamily>* out, const EngineStats& s) const {
    const auto counter = [&](const char* name, const char* help, double value,
                             const std::map<std::string, std::string>& more = {}) {
      add(out, MetricType::Counter, name, help, value, more);
    };
    const double cached = static_cast<double>(s.prefix_cache_hits);
    counter("num_preemptions_total", "Requests that gave their KV blocks back for others.",
            s.num_preemptions);
    counter("prompt_tokens_total", "Prompt tokens, computed or cached.", s.prompt_tokens);
    counter("prompt_tokens_by_source_total", "Prompt tokens by where they came from.",
            std::max(0.0, static_cast<double>(s.prompt_tokens) - cached), {{"source", "local_compute"}});
    counter("prompt_tokens_by_source_total", "", cached, {{"source", "local_cache_hit"}});
    counter("prompt_tokens_by_source_total", "", 0, {{"source", "external_kv_transfer"}});
    counter("prompt_tokens_cached_total", "Prompt tokens that the prefix cache gave.", cached);
    counter("generation_tokens_total", "Tokens generated.", s.generation_tokens);
    counter("prefix_cache_queries_total", "Tokens looked up in the prefix cache.", s.prefix_cache_queries);
    counter("prefix_cache_hits_total", "Tokens found in the prefix cache.", s.prefix_cache_hits);
    counter("gpu_prefix_cache_queries_total", "Older name of prefix_cache_queries.", s.prefix_cache_queries);
    counter("gpu_prefix_cache_hits_total", "Older name of prefix_cache_hits.", s.prefix_cache_hits);
    counter("external_prefix_cache_queries_total", "Tokens looked up in an external cache.", 0);
    counter("external_prefix_cache_hits_total", "Tokens found in an external cache.", 0);
    counter("mm_cache_queries_total", "Items looked up in the multi-modal cache.", 0);
    counter("mm_cache_hits_total", "Items found in the multi-modal cache.", 0);
    counter("corrupted_requests_total", "Requests with NaN among their logits.", 0);
  }

  void add_block_times(std::vector<MetricFamily>* out, const KVBlockHistograms& times) const {
    const auto add_one = [&](const char* name, const char* help, const TimeHistogram& h) {
      ClientMetric metric;
      for (const auto& [key, text] : labels) metric.label.push_back({key, text});
      uint64_t count = 0;
      for (size_t i = 0; i < h.counts.size(); ++i) {
        count += static_cast<uint64_t>(h.counts[i]);
        const bool last = i == TimeHistogram::kBounds.size();
        metric.histogram.bucket.push_back(
            {count, last ? std::numeric_limits<double>::infinity() : TimeHistogram::kBounds[i]});
      }
      metric.histogram.sample_count = count;
      metric.histogram.sample_sum = h.sum;
      out->push_back({name, help, MetricType::Histogram, {std::move(metric)}});
    };
    add_one("kv_block_lifetime_seconds", "From a KV block's allocation until it is used for something else.",
            times.lifetime);
    add_one("kv_block_idle_before_evict_seconds", "From a KV block's last use until it is used for something else.",
            times.idle_before_evict);
    add_one("kv_block_reuse_gap_seconds", "Between two uses of a KV block.", times.reuse_gap);
  }

  // Where the time of the steps went: no other engine's name.
  void add_steps(std::vector<MetricFamily>* out, const EngineStats& s) const {
    const auto counter = [&](const char* name, const char* help, double value) {
      add(out, MetricType::Counter, name, help, value);
    };
    counter("tutti:engine_steps_total", "Steps that all ranks have answered.", s.steps);
    counter("tutti:step_seconds_total", "Time of all steps, of the slowest rank.", s.step_seconds);
    counter("tutti:compute_seconds_total", "Of that, computing.", s.compute_seconds);
    counter("tutti:comm_seconds_total", "Of that, inside collectives.", s.comm_seconds);
    counter("tutti:host_seconds_total", "Scheduling and handing out.", s.host_seconds);
    counter("tutti:comm_bytes_total", "Bytes that the slowest rank moved in collectives.", s.comm_bytes);
    counter("tutti:pp_comm_seconds_total", "Of comm_seconds, between pipeline stages.", s.pp_comm_seconds);
    counter("tutti:pp_comm_bytes_total", "Of comm_bytes, between pipeline stages.", s.pp_comm_bytes);
    counter("tutti:bubble_seconds_total", "Of step_seconds, what a rank waited for another stage or the next step, on average.",
            s.bubble_seconds);
    add(out, MetricType::Gauge, "tutti:slowest_rank", "Of the last step.", s.slowest_rank);
    add(out, MetricType::Gauge, "tutti:engine_healthy", "0 when the engine has failed.", s.healthy ? 1 : 0);
  }
};

Metrics::Metrics(const EngineConfig& engine, const std::string& model_name, std::vector<std::string> prefixes)
    : impl_(std::make_unique<Impl>(engine, model_name, std::move(prefixes))) {}
Metrics::~Metrics() = default;

void Metrics::first_token(double seconds_since_arrival) { impl_->ttft.Observe(seconds_since_arrival); }

void Metrics::next_tokens(int64_t count, double seconds_since_last) {
  for (int64_t i = 0; i < count; ++i) {
    impl_->itl.Observe(seconds_since_last / static_cast<double>(count));
    impl_->tpot_old.Observe(seconds_since_last / static_cast<double>(count));
  }
}

void Metrics::iteration(int64_t num_tokens) { impl_->iteration.Observe(static_cast<double>(num_tokens)); }

void Metrics::request_finished(const RequestRecord& r) {
  Impl& m = *impl_;
  m.success.at(r.finish_reason == FinishReason::kNone ? FinishReason::kAbort : r.finish_reason)->Increment();
  m.e2e.Observe(seconds(r.arrival, r.end));
  m.prompt.Observe(static_cast<double>(r.prompt_tokens));
  m.generation.Observe(static_cast<double>(r.generation_tokens));
  m.max_generation.Observe(static_cast<double>(r.generation_tokens));
  m.params_n.Observe(r.n);
  m.params_max.Observe(static_cast<double>(r.max_tokens));
  if (r.started == Clock::time_point{}) return;
  m.queue.Observe(seconds(r.arrival, r.started));
  m.computed.Observe(static_cast<double>(r.prompt_tokens - r.cached_tokens));
  if (r.generation_tokens == 0) return;
  m.prefill.Observe(seconds(r.started, r.first_token));
  m.decode.Observe(seconds(r.first_token, r.last_token));
  m.inference.Observe(seconds(r.started, r.last_token));
  if (r.generation_tokens > 1) {
    m.tpot.Observe(seconds(r.first_token, r.last_token) / static_cast<double>(r.generation_tokens - 1));
  }
}

void Metrics::http_request(const std::string& method, const std::string& route, int status,
                           double seconds_taken) {
  const std::string group = std::to_string(status / 100) + "xx";
  impl_->http_total.Add({{"handler", route}, {"method", method}, {"status", group}}).Increment();
  impl_->http_time.Add({{"handler", route}, {"method", method}}, kHttpBuckets).Observe(seconds_taken);
}

void Metrics::add_source(std::function<std::string()> source) { impl_->sources.push_back(std::move(source)); }

std::string Metrics::render(const EngineStats& stats) const {
  std::vector<MetricFamily> named = impl_->registry.Collect();
  impl_->add_gauges(&named, stats);
  impl_->add_counters(&named, stats);
  if (impl_->config.cache.kv_cache_metrics) impl_->add_block_times(&named, stats.kv_block_times);
  std::vector<MetricFamily> all;
  for (const std::string& prefix : impl_->prefixes) {
    for (MetricFamily family : named) {
      family.name = prefix + family.name;
      all.push_back(std::move(family));
    }
  }
  impl_->add_steps(&all, stats);
  for (MetricFamily& family : impl_->http_registry.Collect()) all.push_back(std::move(family));
  std::string text = prometheus::TextSerializer().Serialize(all);
  text += process_stats_text();
  for (const auto& source : impl_->sources) text += source();
  return text;
}

}  // namespace tutti
