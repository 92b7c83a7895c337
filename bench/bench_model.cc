// Speed of a whole model on this machine's CPU: a real Worker behind a real EngineCore, one process, no network. The
// read bandwidth is measured right before each test (the best of many short reads), and before and after it (sustained). Prints JSON; bench/cpu_peers.py runs it beside a peer.
//   bench_model MODEL [--threads N] [--tests tg128,pp512,batch8,batch32] [--kv-cache-dtype T] [--rounds N]
// tgN: N tokens of one sequence. ppN: a prompt of N tokens. batchN: N sequences over one shared prompt of 128 tokens, 16
// tokens each; the prompt's own time is not counted.
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <map>
#include <mutex>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "base/queue.h"
#include "comm/parallel_groups.h"
#include "comm/store.h"
#include "cpu_limits.h"
#include "engine/engine_core.h"
#include "ops/cpu/isa.h"
#include "runtime/worker.h"

using namespace tutti;

namespace {

// One rank in a thread of this process.
class LocalExecutor final : public Executor {
 public:
  explicit LocalExecutor(Worker& worker) : worker_(worker), thread_([this] { serve(); }) {}
  ~LocalExecutor() override {
    steps_.close();
    thread_.join();
  }
  ExecutorInfo info() const override { return {.num_kv_blocks = worker_.num_kv_blocks()}; }
  void submit(const SchedulerOutput& step) override { steps_.push(step); }
  ModelRunnerOutput wait(Deadline deadline) override {
    auto output = outputs_.pop(deadline);
    if (!output) throw CommError("the worker thread gave no answer in time");
    return *output;
  }
  bool ready() const override { return outputs_.size() > 0; }

 private:
  void serve() {
    while (const auto step = steps_.pop(Deadline::never())) outputs_.push(worker_.execute(*step));
  }

  Worker& worker_;
  Queue<SchedulerOutput> steps_;
  Queue<ModelRunnerOutput> outputs_;
  std::thread thread_;
};

struct Options {
  std::string model, kv_cache_dtype = "auto", tests = "tg128,pp512,batch8,batch32";
  int threads = 2, rounds = 1;
};

bool parse(int argc, char** argv, Options& o) {
  if (argc < 2 || argc % 2 != 0) return false;
  o.model = argv[1];
  for (int i = 2; i < argc; i += 2) {
    const std::string flag = argv[i], value = argv[i + 1];
    if (flag == "--threads") o.threads = std::stoi(value);
    else if (flag == "--tests") o.tests = value;
    else if (flag == "--kv-cache-dtype") o.kv_cache_dtype = value;
    else if (flag == "--rounds") o.rounds = std::stoi(value);
    else return false;
  }
  return o.threads > 0 && o.rounds > 0;
}

EngineConfig engine_config(const Options& o) {
  EngineConfig engine;
  engine.model = engine.model_path = o.model;
  engine.cpu_threads = o.threads;
  engine.scheduler.max_model_len = 2048;
  engine.scheduler.max_num_seqs = 64;
  engine.cache.kv_cache_memory_bytes = int64_t{1} << 30;
  engine.cache.kv_cache_dtype = o.kv_cache_dtype;
  return engine;
}

using Clock = std::chrono::steady_clock;

double seconds_between(Clock::time_point begin, Clock::time_point end) { return std::chrono::duration<double>(end - begin).count(); }

class Bench {
 public:
  Bench(const EngineConfig& config, Worker& worker)
      : vocab_(static_cast<int32_t>(worker.model_config().vocab_size)), executor_(worker),
        engine_(config, {}, executor_, [this](std::vector<TokenOutput> outputs) { take(outputs); }),
        thread_([this] { engine_.run(); }) {}
  ~Bench() {
    engine_.stop();
    thread_.join();
  }

  // Tokens a second of one test.
  double run(const std::string& test) {
    const auto number = [&](size_t prefix) { return std::stoi(test.substr(prefix)); };
    if (test.starts_with("tg")) return decode({random_prompt(1)}, number(2));
    if (test.starts_with("pp")) return prefill(number(2));
    if (!test.starts_with("batch")) throw ConfigError("--tests " + test + ": expected tgN, ppN or batchN");
    const auto prompt = random_prompt(128);
    generate({prompt}, 1);  // its blocks are found again by all
    return decode(std::vector(static_cast<size_t>(number(5)), prompt), 16);
  }

 private:
  using Times = std::vector<Clock::time_point>;  // of a sequence's tokens

  std::vector<int32_t> random_prompt(int length) {
    std::vector<int32_t> ids;
    for (int i = 0; i < length; ++i) {
      state_ = state_ * 1664525 + 1013904223;
      ids.push_back(static_cast<int32_t>(state_ >> 8) % (vocab_ - 300) + 300);
    }
    return ids;
  }

  // Engine thread.
  void take(const std::vector<TokenOutput>& outputs) {
    const auto now = Clock::now();
    const std::lock_guard lock(mutex_);
    for (const TokenOutput& output : outputs) {
      if (output.finish_reason == FinishReason::kError) error_ = output.error;
      times_[output.id].insert(times_[output.id].end(), output.token_ids.size(), now);
      if (output.finish_reason != FinishReason::kNone) ++ended_;
    }
    changed_.notify_all();
  }

  // All prompts at once, `count` tokens of each.
  std::vector<Times> generate(const std::vector<std::vector<int32_t>>& prompts, int count) {
    std::unique_lock lock(mutex_);
    times_.clear();
    ended_ = 0;
    lock.unlock();
    for (const auto& prompt : prompts) {
      EngineRequest request;
      request.id = ++last_id_;
      request.prompt_token_ids = prompt;
      request.sampling.temperature = 0;
      request.sampling.max_tokens = count;
      request.sampling.ignore_eos = true;
      engine_.add_request(request);
    }
    lock.lock();
    if (!changed_.wait_for(lock, std::chrono::minutes(5), [&] { return ended_ == prompts.size() || !error_.empty(); })) {
      throw CommError("no answer after 5 minutes");
    }
    if (!error_.empty()) throw CommError(error_);
    std::vector<Times> all;
    for (auto& [id, times] : times_) all.push_back(std::move(times));
    return all;
  }

  double prefill(int length) {
    const auto begin = Clock::now();
    return length / seconds_between(begin, generate({random_prompt(length)}, 1).front().front());
  }

  // `count` steps of all sequences together: counted is what comes while every one of them is decoding.
  double decode(const std::vector<std::vector<int32_t>>& prompts, int count) {
    const auto all = generate(prompts, count + 4);  // they may start some steps apart
    auto begin = all.front().front(), end = all.front().back();
    for (const Times& times : all) {
      begin = std::max(begin, times.front());
      end = std::min(end, times.back());
    }
    int64_t tokens = 0;
    for (const Times& times : all) {
      for (const auto time : times) tokens += time > begin && time <= end;
    }
    return static_cast<double>(tokens) / seconds_between(begin, end);
  }

  const int32_t vocab_;
  uint32_t state_ = 1;
  RequestId last_id_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<RequestId, Times> times_;
  size_t ended_ = 0;
  std::string error_;
  LocalExecutor executor_;
  EngineCore engine_;
  std::thread thread_;
};

// What a token reads: everything but the input embedding, unless that is the output matrix, too.
int64_t weight_bytes_of_token(const Worker& worker) {
  int64_t bytes = worker.memory().weights;
  if (worker.model_config().tie_word_embeddings) return bytes;
  for (const ParameterSlot& slot : worker.model().parameters().slots()) {
    if (slot.pieces.front().name == "embed.weight") bytes -= static_cast<int64_t>(slot.matrix->bytes());
  }
  return bytes;
}

int run(const Options& options) {
  const EngineConfig config = engine_config(options);
  const auto begin = Clock::now();
  InMemoryStore store;
  Worker worker(config, 0, make_parallel_groups(CommOptions{}, {0}, {0}, store));
  worker.load();
  Json report = {{"level", cpu::best_kernel_table().name}, {"threads", options.threads}, {"load_s", seconds_between(begin, Clock::now())},
                 {"weight_bytes_of_token", weight_bytes_of_token(worker)}, {"results", Json::array()}};
  ThreadPool pool(options.threads);
  Bench bench(config, worker);
  for (int round = 0; round < options.rounds; ++round) {
    std::stringstream tests(options.tests);
    for (std::string test; std::getline(tests, test, ',');) {
      const double read_gb_s = bench::measure_read(pool), before = bench::measure_sustained_read(pool);
      const double tokens_s = bench.run(test), after = bench::measure_sustained_read(pool);
      report["results"].push_back(
          {{"test", test}, {"tokens_s", tokens_s}, {"read_gb_s", read_gb_s}, {"sustained_read_gb_s", (before + after) / 2}});
    }
  }
  std::printf("%s\n", report.dump(1).c_str());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  if (!parse(argc, argv, options)) {
    std::fprintf(stderr, "usage: bench_model MODEL [--threads N] [--tests tg128,pp512,batch8,batch32] [--kv-cache-dtype T] [--rounds N]\n");
    return 2;
  }
  try {
    return run(options);
  } catch (const Error& error) {
    std::fprintf(stderr, "bench_model: %s\n", error.what());
    return 1;
  }
}
