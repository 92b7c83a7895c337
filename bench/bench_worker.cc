// Times of one rank's steps: a real Worker with a real model or made-up weights, driven by hand-written steps with the
// engine's one step of look-ahead, without a server or other processes. Prints a table and JSON.
//   bench_worker MODEL [--load-format dummy] [--device cuda] [--quantization fp8] [--kv-cache-dtype fp8] [--batch-invariant 1] [--batches 1,8,32]
//                [--context 512] [--steps 64] [--prompts 2048,8192] [--max-model-len 4096] [--enforce-eager 1] [--json FILE]
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <memory>
#include <sstream>

#include "base/deadline.h"
#include "base/error.h"
#include "base/json.h"
#include "base/log.h"
#include "runtime/worker.h"
#include "tensor/device_memory.h"

using namespace tutti;

namespace {

struct Options {
  EngineConfig engine;
  std::vector<int64_t> batches = {1, 8, 32}, prompts = {2048};
  int64_t context = 512;
  int steps = 64;
  std::string json;
};

std::vector<int64_t> numbers(const std::string& text) {
  std::vector<int64_t> all;
  std::stringstream stream(text);
  for (std::string part; std::getline(stream, part, ',');) {
    if (std::stoll(part) > 0) all.push_back(std::stoll(part));
  }
  return all;
}

bool parse(int argc, char** argv, Options& o) {
  if (argc < 2) return false;
  o.engine.model = o.engine.model_path = argv[1];
  o.engine.scheduler.max_model_len = 4096;
  o.engine.scheduler.max_num_batched_tokens = 8192;
  for (int i = 2; i + 1 < argc; i += 2) {
    const std::string flag = argv[i], value = argv[i + 1];
    if (flag == "--load-format") o.engine.load_format = value;
    else if (flag == "--device") o.engine.device = value;
    else if (flag == "--dtype") o.engine.dtype = value;
    else if (flag == "--quantization") o.engine.quantization = value;
    else if (flag == "--kv-cache-dtype") o.engine.cache.kv_cache_dtype = value;
    else if (flag == "--kv-cache-memory-bytes") o.engine.cache.kv_cache_memory_bytes = std::stoll(value);
    else if (flag == "--fp8-weight-only") o.engine.fp8_weight_only = value == "1";
    else if (flag == "--batch-invariant") o.engine.batch_invariant = value == "1";
    else if (flag == "--enforce-eager") o.engine.enforce_eager = value == "1";
    else if (flag == "--max-model-len") o.engine.scheduler.max_model_len = std::stoll(value);
    else if (flag == "--max-num-batched-tokens") o.engine.scheduler.max_num_batched_tokens = std::stoll(value);
    else if (flag == "--max-num-seqs") o.engine.scheduler.max_num_seqs = std::stoll(value);
    else if (flag == "--batches") o.batches = numbers(value);
    else if (flag == "--prompts") o.prompts = numbers(value);
    else if (flag == "--context") o.context = std::stoll(value);
    else if (flag == "--steps") o.steps = std::stoi(value);
    else if (flag == "--json") o.json = value;
    else return false;
  }
  return argc % 2 == 0;
}

double seconds(Clock::duration d) { return std::chrono::duration<double>(d).count(); }

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

class Bench {
 public:
  explicit Bench(const Options& o) : o_(o) {
    const auto begin = Clock::now();
    ParallelGroups groups{make_self_communicator(), make_self_communicator(), make_self_communicator()};
    worker_ = std::make_unique<Worker>(o.engine, 0, std::move(groups));
    worker_->load([&](int64_t done, int64_t total) {
      if (done == total) weights_s_ = seconds(Clock::now() - begin);
    });
    load_s_ = seconds(Clock::now() - begin);
    const MemoryReport memory = worker_->memory();
    std::printf("loaded in %.2f s (weights %.2f s); %lld KV blocks; GiB: weights %.2f, activations %.2f, KV %.2f, graphs %.2f, other %.2f\n",
                load_s_, weights_s_, static_cast<long long>(worker_->num_kv_blocks()), gib(memory.weights), gib(memory.activations),
                gib(memory.kv_cache), gib(memory.graphs), gib(memory.other));
    std::fflush(stdout);
  }

  // Milliseconds between the ends of decode steps of `batch` requests.
  void decode(int64_t batch) {
    begin_requests(batch, o_.context - o_.steps / 2);
    while (!all_prefilled()) run({prefill_step()});
    const std::vector<double> ms = run(decode_steps(o_.steps));
    const double tpot = median({ms.begin() + 4, ms.end()});
    double idle = 0;
    if (o_.engine.device == "cuda") {  // in steps of their own, as clocks between steps take a little themselves
      constexpr int kSteps = 24;
      worker_->measure_gpu_idle(true);
      run(decode_steps(kSteps));
      worker_->measure_gpu_idle(false);
      const std::vector<float>& all = worker_->gpu_idle_us();
      idle = median({all.end() - kSteps + 4, all.end()});
    }
    const double rate = static_cast<double>(batch) / tpot * 1e3;
    std::printf("decode  batch %4lld  context %lld  TPOT %8.3f ms (best %.3f)  %9.1f tokens/s  idle %.1f us\n", static_cast<long long>(batch),
                static_cast<long long>(o_.context), tpot, *std::min_element(ms.begin() + 4, ms.end()), rate, idle);
    std::fflush(stdout);
    results_.push_back({{"kind", "decode"}, {"batch", batch}, {"context", o_.context}, {"tpot_ms", tpot}, {"tokens_per_s", rate}, {"gpu_idle_us", idle}});
  }

  // Prompts of 2048 tokens, `tokens` of them in a step.
  void prefill(int64_t tokens) {
    const int64_t length = std::min<int64_t>({tokens, 2048, o_.engine.scheduler.max_model_len - 1});
    std::vector<double> ms;
    for (int i = 0; i < 5; ++i) {
      begin_requests(tokens / length, length);
      const double one = run({prefill_step()}).front();
      if (i > 0) ms.push_back(one);
    }
    const double rate = static_cast<double>(tokens / length * length) / median(ms) * 1e3;
    std::printf("prefill %4lld x %lld tokens  %8.3f ms  %9.1f tokens/s\n", static_cast<long long>(tokens / length), static_cast<long long>(length),
                median(ms), rate);
    std::fflush(stdout);
    results_.push_back({{"kind", "prefill"}, {"prompts", tokens / length}, {"length", length}, {"ms", median(ms)}, {"tokens_per_s", rate}});
  }

  Json report() const {
    return {{"model", o_.engine.model}, {"device", o_.engine.device}, {"quantization", o_.engine.quantization},
            {"kv_cache_dtype", o_.engine.cache.kv_cache_dtype}, {"load_s", load_s_}, {"weights_s", weights_s_},
            {"kv_blocks", worker_->num_kv_blocks()}, {"results", results_}};
  }

 private:
  struct Running {
    RequestId id;
    int64_t prompt, computed = 0, blocks = 0;
  };
  static double gib(int64_t bytes) { return static_cast<double>(bytes) / (1 << 30); }

  // Forgets the requests there were.
  void begin_requests(int64_t count, int64_t prompt) {
    for (const Running& r : running_) dropped_.push_back(r.id);
    running_.clear();
    next_block_ = 0;
    for (int64_t i = 0; i < count; ++i) {
      running_.push_back({next_id_++, prompt});
      NewRequestData fresh;
      fresh.id = running_.back().id;
      for (int64_t t = 0; t < prompt; ++t) {
        fresh.token_ids.push_back(static_cast<int32_t>((fresh.id * 7919 + static_cast<uint64_t>(t) * 104729) % static_cast<uint64_t>(worker_->model_config().vocab_size)));
      }
      fresh.num_prompt_tokens = static_cast<int32_t>(prompt);
      fresh.sampling.temperature = 0.0;
      fresh_.push_back(std::move(fresh));
    }
  }
  bool all_prefilled() const {
    return std::all_of(running_.begin(), running_.end(), [](const Running& r) { return r.computed >= r.prompt; });
  }
  SchedulerOutput new_step() {
    SchedulerOutput step;
    step.step = next_step_++;
    step.dropped = std::move(dropped_);
    dropped_.clear();
    return step;
  }
  void schedule(SchedulerOutput& step, Running& r, int64_t tokens) {
    ScheduledRequest part;
    part.id = r.id;
    part.num_tokens = static_cast<int32_t>(tokens);
    part.num_computed_tokens = r.computed;
    r.computed += tokens;
    for (; r.blocks * o_.engine.cache.block_size < r.computed; ++r.blocks) part.new_block_ids.push_back(next_block_++);
    CHECK_LE(next_block_, worker_->num_kv_blocks());
    part.samples = r.computed >= r.prompt;
    step.scheduled.push_back(std::move(part));
  }
  SchedulerOutput prefill_step() {
    SchedulerOutput step = new_step();
    int64_t left = o_.engine.scheduler.max_num_batched_tokens;
    for (Running& r : running_) {
      const int64_t tokens = std::min(left, r.prompt - r.computed);
      if (tokens <= 0) continue;
      if (r.computed == 0) {
        step.new_requests.push_back(std::move(fresh_.front()));
        fresh_.erase(fresh_.begin());
      }
      schedule(step, r, tokens);
      left -= tokens;
    }
    return step;
  }
  std::vector<SchedulerOutput> decode_steps(int count) {
    std::vector<SchedulerOutput> steps;
    for (int i = 0; i < count; ++i) {
      steps.push_back(new_step());
      for (Running& r : running_) schedule(steps.back(), r, 1);
    }
    return steps;
  }
  // Milliseconds from the end of one step to that of the next.
  std::vector<double> run(const std::vector<SchedulerOutput>& steps) {
    std::vector<double> ms;
    auto last = Clock::now();
    const auto finish = [&] {
      worker_->finish();
      const auto now = Clock::now();
      ms.push_back(seconds(now - last) * 1e3);
      last = now;
    };
    for (const SchedulerOutput& step : steps) {
      if (worker_->num_started() == ModelRunner::kMaxStarted) finish();
      worker_->start(step);
    }
    while (worker_->num_started() > 0) finish();
    return ms;
  }

  const Options& o_;
  std::unique_ptr<Worker> worker_;
  double load_s_ = 0, weights_s_ = 0;
  std::vector<Running> running_;
  std::vector<NewRequestData> fresh_;
  std::vector<RequestId> dropped_;
  RequestId next_id_ = 1;
  int64_t next_step_ = 1;
  int32_t next_block_ = 0;
  Json results_ = Json::array();
};

}  // namespace

int main(int argc, char** argv) {
  Options options;
  if (!parse(argc, argv, options)) {
    std::fprintf(stderr, "usage: bench_worker MODEL [--load-format dummy] [--device cuda] ... (see the source)\n");
    return 2;
  }
  try {
    log::setup({});
    Bench bench(options);
    for (const int64_t tokens : options.prompts) bench.prefill(tokens);
    for (const int64_t batch : options.batches) bench.decode(batch);
    if (!options.json.empty()) std::ofstream(options.json) << dump_json(bench.report()) << "\n";
    return 0;
  } catch (const Error& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return static_cast<int>(e.exit_code());
  }
}
