#include "parallel/thread_cluster.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <mutex>
#include <thread>

namespace tutti::testing {
namespace {

// A request on its way through the schedule.
struct Progress {
  const TestRequest* request;
  RequestId id;
  int64_t computed = 0;
  int32_t generated = 0;
  int64_t num_blocks = 0;

  int64_t known() const { return static_cast<int64_t>(request->prompt.size()) + generated; }
  bool done() const { return generated >= request->num_new; }
};

ScheduledRequest advance(Progress& p, const ScheduleOptions& options, int32_t& next_block) {
  ScheduledRequest part;
  part.id = p.id;
  part.num_computed_tokens = p.computed;
  part.num_tokens = static_cast<int32_t>(std::min<int64_t>(options.chunk, p.known() - p.computed));
  p.computed += part.num_tokens;
  for (; p.num_blocks * options.block_size < p.computed; ++p.num_blocks) part.new_block_ids.push_back(next_block++);
  part.samples = p.computed == p.known();
  if (part.samples) ++p.generated;
  return part;
}

void collect(const ModelRunnerOutput& output, Results& results) {
  for (const SampledToken& sampled : output.sampled) {
    RequestResult& result = results[sampled.id];
    if (sampled.has_token) {
      result.tokens.push_back(sampled.token_id);
      if (!sampled.logprobs.empty()) result.logprobs.push_back(sampled.logprobs);
    }
    result.prompt_logprobs.insert(result.prompt_logprobs.end(), sampled.prompt_logprobs.begin(), sampled.prompt_logprobs.end());
  }
}

CommOptions world_of(const EngineConfig& engine, int rank, TransportKind transport) {
  CommOptions options;
  options.comm_dtype = comm_dtype_from_name(engine.comm.dtype).value();
  options.tcp_streams = engine.comm.tcp_streams;
  options.rank = rank;
  options.size = engine.parallel.replica_size();
  options.transport = transport;
  return options;
}

ParallelGroups groups_of(const EngineConfig& engine, const CommOptions& world, Store& store) {
  return make_parallel_groups(world, engine.parallel.tp_group(world.rank), engine.parallel.pp_group(world.rank), store);
}

ParallelGroups groups_of_gpus(const EngineConfig& engine, const CommOptions& world, Device device, void* stream, Store& store) {
  DeviceCommOptions options;
  options.device = device;
  options.stream = stream;
  return make_device_groups(world, engine.parallel.tp_group(world.rank), engine.parallel.pp_group(world.rank), options, store);
}

std::vector<float> by_token(const TokenLogprobs& logprobs) {
  std::vector<float> row(logprobs.size() - 1);  // the chosen token comes twice
  for (const TokenLogprob& l : logprobs) row[static_cast<size_t>(l.token_id)] = l.logprob;
  return row;
}

}  // namespace

SamplingParams greedy() {
  SamplingParams sampling;
  sampling.temperature = 0.0;
  return sampling;
}

std::vector<SchedulerOutput> make_schedule(const std::vector<TestRequest>& requests, const ScheduleOptions& options) {
  std::vector<Progress> all;
  for (size_t i = 0; i < requests.size(); ++i) all.push_back({&requests[i], i + 1});
  std::vector<SchedulerOutput> steps;
  int32_t next_block = 0;
  for (int turn = 0;; turn = (turn + 1) % options.groups) {
    if (std::all_of(all.begin(), all.end(), [](const Progress& p) { return p.done(); })) return steps;
    SchedulerOutput step;
    for (size_t i = static_cast<size_t>(turn); i < all.size(); i += static_cast<size_t>(options.groups)) {
      Progress& p = all[i];
      if (p.done()) continue;
      if (p.computed == 0) {
        step.new_requests.push_back({p.id, p.request->prompt, static_cast<int32_t>(p.request->prompt.size()), p.request->sampling});
      }
      step.scheduled.push_back(advance(p, options, next_block));
    }
    if (step.scheduled.empty()) continue;
    step.step = static_cast<int64_t>(steps.size()) + 1;
    steps.push_back(std::move(step));
  }
}

Results run_cluster(const EngineConfig& engine, const std::vector<SchedulerOutput>& schedule, const Prepare& prepare,
                    TransportKind transport) {
  const int ranks = engine.parallel.replica_size();
  InMemoryStore store;
  Results results;
  std::mutex mutex;
  std::exception_ptr failure;
  std::vector<std::unique_ptr<Worker>> at_end(static_cast<size_t>(ranks));  // no rank leaves while others have work
  const auto run_rank = [&](int rank) {
    try {
      const CommOptions world = world_of(engine, rank, transport);
      auto owned = std::make_unique<Worker>(engine, rank, groups_of(engine, world, store), ranks, rank);
      Worker& worker = *owned;
      worker.set_device_groups([&](Device device, void* stream) { return groups_of_gpus(engine, world, device, stream, store); });
      auto source = std::make_unique<ModelSource>(open_model(engine));
      if (prepare) prepare(*source);
      worker.load({}, std::move(source));
      const auto finish = [&] {
        const ModelRunnerOutput output = worker.finish();
        if (worker.is_output_rank()) collect(output, results);
      };
      for (const SchedulerOutput& step : schedule) {  // with look-ahead, as a rank's process does it
        if (worker.num_started() == ModelRunner::kMaxStarted) finish();
        worker.start(step);
      }
      while (worker.num_started() > 0) finish();
      at_end[static_cast<size_t>(rank)] = std::move(owned);
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (!failure) failure = std::current_exception();
      store.close("another rank failed");
    }
  };
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) threads.emplace_back(run_rank, rank);
  for (std::thread& thread : threads) thread.join();
  if (failure) std::rethrow_exception(failure);
  return results;
}

EngineConfig test_engine(const std::string& model_path, int tp, int pp) {
  EngineConfig engine;
  engine.model = model_path;
  engine.model_path = model_path;
  engine.parallel.tensor_parallel_size = tp;
  engine.parallel.pipeline_parallel_size = pp;
  engine.scheduler.max_num_batched_tokens = 256;
  engine.scheduler.max_num_seqs = 16;
  engine.scheduler.max_model_len = 128;
  engine.cache.num_blocks_override = 128;
  engine.cpu_threads = 1;
  engine.collective_timeout_s = 60;  // sanitizers on a busy machine
  return engine;
}

std::vector<std::vector<float>> logprob_rows(const RequestResult& result) {
  std::vector<std::vector<float>> rows;
  for (const TokenLogprobs& l : result.prompt_logprobs) rows.push_back(by_token(l));
  for (const TokenLogprobs& l : result.logprobs) rows.push_back(by_token(l));
  return rows;
}

TestRequest scored_request(std::vector<int32_t> prompt, int32_t num_new) {
  TestRequest request{std::move(prompt), num_new, greedy()};
  request.sampling.logprobs = SamplingParams::kAllLogprobs;
  request.sampling.prompt_logprobs = SamplingParams::kAllLogprobs;
  return request;
}

RelativeError relative_error(const std::vector<std::vector<float>>& expected, const std::vector<std::vector<float>>& actual) {
  CHECK_EQ(expected.size(), actual.size());
  double sum = 0.0;
  double squares = 0.0;
  double worst = 0.0;
  double error_squares = 0.0;
  double count = 0.0;
  for (size_t r = 0; r < expected.size(); ++r) {
    CHECK_EQ(expected[r].size(), actual[r].size());
    for (size_t i = 0; i < expected[r].size(); ++i) {
      const double value = expected[r][i];
      sum += value;
      squares += value * value;
      ++count;
      const double difference = std::abs(value - actual[r][i]);
      worst = std::isnan(difference) ? INFINITY : std::max(worst, difference);
      error_squares += difference * difference;
    }
  }
  const double mean = sum / count;
  const double deviation = std::sqrt(squares / count - mean * mean);
  return {worst / deviation, std::sqrt(error_squares / count) / deviation};
}

}  // namespace tutti::testing
