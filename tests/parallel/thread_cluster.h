// A cluster whose ranks are threads of the test: every rank is a real Worker over a real communicator, driven
// by a schedule that is known beforehand (no request stops early), so no engine is needed. What the engine's look-ahead
// does to workers happens here by itself: each rank gets all steps at once.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "comm/comm_factory.h"
#include "config/engine_config.h"
#include "protocol/step.h"
#include "runtime/model_source.h"
#include "runtime/worker.h"

namespace tutti::testing {

struct TestRequest {
  std::vector<int32_t> prompt;
  int32_t num_new = 1;  // tokens to generate
  SamplingParams sampling;
};

// Greedy unless said.
SamplingParams greedy();

struct ScheduleOptions {
  int32_t chunk = 1 << 20;  // prompt tokens of a request in one step
  int groups = 1;           // requests take turns in this many groups, as a pipeline wants it
  int64_t block_size = 16;
};

// Every step for `requests`, whose ids are 1, 2, ... Blocks are never shared or freed.
std::vector<SchedulerOutput> make_schedule(const std::vector<TestRequest>& requests, const ScheduleOptions& options = {});

// What came out for each request, in order.
struct RequestResult {
  std::vector<int32_t> tokens;
  std::vector<TokenLogprobs> logprobs;
  std::vector<TokenLogprobs> prompt_logprobs;
};
using Results = std::map<RequestId, RequestResult>;

// Changes the opened model before it is built: the mutations of golden tests.
using Prepare = std::function<void(ModelSource&)>;

// Runs the schedule on engine.parallel.replica_size() threads. Rethrows the first rank's exception.
Results run_cluster(const EngineConfig& engine, const std::vector<SchedulerOutput>& schedule, const Prepare& prepare = {},
                    TransportKind transport = TransportKind::kInProcess);

// Small limits, one thread a rank.
EngineConfig test_engine(const std::string& model_path, int tp = 1, int pp = 1);

// Rows of log-probabilities over the whole vocabulary, by token id: those of the prompt's tokens from the second on,
// then those of the generated ones. The request must have asked for all.
std::vector<std::vector<float>> logprob_rows(const RequestResult& result);
// A request for them.
TestRequest scored_request(std::vector<int32_t> prompt, int32_t num_new);

// Differences between two sets of rows, relative to the standard deviation of the first.
struct RelativeError {
  double worst = 0.0;
  double rms = 0.0;
};
RelativeError relative_error(const std::vector<std::vector<float>>& expected, const std::vector<std::vector<float>>& actual);

}  // namespace tutti::testing
