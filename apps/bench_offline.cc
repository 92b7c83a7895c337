// `tutti bench latency` and `tutti bench throughput`: a model on the ranks of this command, without a server. Printed and
// saved in the form of vLLM's benchmarks of these names.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <numeric>
#include <random>
#include <utility>

#include "apps/bench_commands.h"
#include "apps/bench_flags.h"
#include "apps/local_engine.h"
#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"

namespace tutti {
namespace {

using Seconds = std::chrono::duration<double>;

// What a request that is not made of text needs.
EngineRequest make_request(RequestId id, std::vector<int32_t> prompt, int64_t output_len) {
  EngineRequest request;
  request.id = id;
  request.prompt_token_ids = std::move(prompt);
  request.sampling.temperature = 0.0;
  request.sampling.max_tokens = static_cast<int32_t>(output_len);
  request.sampling.ignore_eos = true;
  return request;
}

// Submits all and waits for the last token of the last one. The tokens that came; less than was asked for only after a
// signal.
int64_t run_requests(LocalEngine& engine, std::vector<EngineRequest> requests, Signals& signals) {
  size_t open = requests.size();
  std::vector<RequestId> ids;
  for (EngineRequest& request : requests) {
    ids.push_back(request.id);
    engine.submit(std::move(request));
  }
  int64_t tokens = 0;
  bool aborted = false;
  while (open > 0) {
    const auto output = engine.next(Deadline::after(std::chrono::milliseconds(100)));
    if (signals.interrupted() && !std::exchange(aborted, true)) {
      for (RequestId id : ids) engine.abort(id);
    }
    if (!output) continue;
    tokens += static_cast<int64_t>(output->token_ids.size());
    if (output->finish_reason == FinishReason::kError) throw CommError(output->error);
    if (output->finish_reason != FinishReason::kNone) --open;
  }
  return tokens;
}

// The model is open and its ranks run. Nothing started when a signal came first.
struct Bench {
  ServedModel model;
  std::unique_ptr<LocalEngine> engine;
};

Bench start(ServeOptions& options, const char* command, Signals& signals) {
  log::fact("tutti", "{}", build_id());
  for (const std::string& note : options.notes) log::note("{}", note);
  const LaunchPlan plan = plan_of_head(options, command);
  Bench bench{open_served_model(options, local_rank_count(plan, options.engine.parallel)), nullptr};
  bench.engine = std::make_unique<LocalEngine>(options, plan, bench.model, signals);
  if (!bench.engine->started()) bench.engine.reset();
  return bench;
}

void check_lengths(const ModelInfo& model, int64_t input_len, int64_t output_len) {
  if (input_len < 1 || output_len < 1) throw ConfigError("--input-len and --output-len: expected at least 1");
  if (input_len + output_len <= model.max_model_len) return;
  throw ConfigError(fmt::format("{} tokens in and {} out are more than --max-model-len {}", input_len, output_len, model.max_model_len));
}

double percentile(std::vector<double> values, double percent) {
  std::sort(values.begin(), values.end());
  const double at = percent / 100 * static_cast<double>(values.size() - 1);
  const auto low = static_cast<size_t>(at);
  const size_t high = std::min(low + 1, values.size() - 1);
  return values[low] + (values[high] - values[low]) * (at - static_cast<double>(low));
}

void report_latency(const std::vector<double>& latencies, const std::string& json_file) {
  constexpr int kPercents[] = {10, 25, 50, 75, 90, 99};
  const double mean = std::accumulate(latencies.begin(), latencies.end(), 0.0) / static_cast<double>(latencies.size());
  std::printf("Avg latency: %.9g seconds\n", mean);
  Json percentiles = Json::object();
  for (int percent : kPercents) {
    percentiles[std::to_string(percent)] = percentile(latencies, percent);
    std::printf("%d%% percentile latency: %.9g seconds\n", percent, percentile(latencies, percent));
  }
  if (json_file.empty()) return;
  write_file(json_file, dump_json({{"avg_latency", mean}, {"latencies", latencies}, {"percentiles", percentiles}}) + "\n");
}

}  // namespace

int run_bench_latency(const Arguments& arguments) {
  int64_t input_len = 32;
  int64_t output_len = 128;
  int64_t batch_size = 8;
  int64_t warmups = 10;
  int64_t iterations = 30;
  std::string json_file;
  FlagParser p("tutti bench latency", "Loads a model and measures how long one batch of requests takes.");
  p.count("--input-len", &input_len, "tokens of a prompt (32)");
  p.count("--output-len", &output_len, "tokens of an answer (128)");
  p.count("--batch-size", &batch_size, "requests of a batch (8)");
  p.count("--num-iters-warmup", &warmups, "batches before measuring (10)");
  p.count("--num-iters", &iterations, "batches measured (30)");
  p.value("--output-json", &json_file, "a file for the numbers");
  Signals signals;  // first: looking for GPUs may start threads of the driver
  ServeOptions options = parse_model_options(p, arguments);
  if (batch_size < 1 || iterations < 1) throw ConfigError("--batch-size and --num-iters: expected at least 1");
  // The same prompts again and again would be measured without their prefill.
  if (!p.given("--enable-prefix-caching")) options.engine.cache.enable_prefix_caching = false;
  log::setup(options.log);
  Bench bench = start(options, "bench latency", signals);
  if (bench.engine == nullptr) return static_cast<int>(ExitCode::kOk);
  check_lengths(bench.model.info, input_len, output_len);

  std::mt19937_64 random(options.engine.seed);
  std::vector<double> latencies;
  RequestId next_id = 1;
  for (int64_t i = -warmups; i < iterations && !signals.interrupted(); ++i) {
    std::vector<EngineRequest> batch;
    for (int64_t b = 0; b < batch_size; ++b) {
      std::vector<int32_t> prompt(static_cast<size_t>(input_len));
      for (int32_t& token : prompt) token = static_cast<int32_t>(random() % static_cast<uint64_t>(bench.model.info.vocab_size));
      batch.push_back(make_request(next_id++, std::move(prompt), output_len));
    }
    log::progress("batch", i < 0 ? fmt::format("warm-up {} of {}", i + warmups + 1, warmups)
                                 : fmt::format("{} of {}", i + 1, iterations));
    const auto begin = Clock::now();
    run_requests(*bench.engine, std::move(batch), signals);
    if (i >= 0 && !signals.interrupted()) latencies.push_back(Seconds(Clock::now() - begin).count());
  }
  bench.engine->finish("the benchmark is complete");
  if (latencies.empty()) return static_cast<int>(ExitCode::kOk);
  report_latency(latencies, json_file);
  return static_cast<int>(ExitCode::kOk);
}

int run_bench_throughput(const Arguments& arguments) {
  WorkloadOptions workload;
  std::string json_file;
  FlagParser p("tutti bench throughput", "Loads a model, gives it many requests at once and measures tokens a second.");
  WorkloadFlags flags(p, workload);
  p.value("--output-json", &json_file, "a file for the numbers");
  Signals signals;  // first: looking for GPUs may start threads of the driver
  ServeOptions options = parse_model_options(p, arguments);
  flags.settle();
  workload.seed = options.engine.seed;
  options.engine.scheduler.max_queue_size = std::max(options.engine.scheduler.max_queue_size, workload.num_prompts);
  log::setup(options.log);
  Bench bench = start(options, "bench throughput", signals);
  if (bench.engine == nullptr) return static_cast<int>(ExitCode::kOk);

  std::vector<EngineRequest> requests;
  int64_t prompt_tokens = 0;
  for (const BenchPrompt& prompt : make_prompts(workload, *bench.model.tokenizer)) {
    std::vector<int32_t> ids = bench.model.tokenizer->encode(prompt.text);
    check_lengths(bench.model.info, static_cast<int64_t>(ids.size()), prompt.output_len);
    prompt_tokens += static_cast<int64_t>(ids.size());
    requests.push_back(make_request(requests.size() + 1, std::move(ids), prompt.output_len));
  }
  const auto count = static_cast<double>(requests.size());
  const auto begin = Clock::now();
  const int64_t output_tokens = run_requests(*bench.engine, std::move(requests), signals);
  const double seconds = Seconds(Clock::now() - begin).count();
  bench.engine->finish("the benchmark is complete");
  if (signals.interrupted()) return static_cast<int>(ExitCode::kOk);
  const auto total = static_cast<double>(prompt_tokens + output_tokens);
  std::printf("Throughput: %.2f requests/s, %.2f total tokens/s, %.2f output tokens/s\n", count / seconds, total / seconds,
              static_cast<double>(output_tokens) / seconds);
  std::printf("Total num prompt tokens:  %lld\nTotal num output tokens:  %lld\n", static_cast<long long>(prompt_tokens),
              static_cast<long long>(output_tokens));
  if (!json_file.empty()) {
    write_file(json_file, dump_json({{"elapsed_time", seconds},
                                     {"num_requests", count},
                                     {"total_num_tokens", total},
                                     {"requests_per_second", count / seconds},
                                     {"tokens_per_second", total / seconds}}) + "\n");
  }
  return static_cast<int>(ExitCode::kOk);
}

}  // namespace tutti
