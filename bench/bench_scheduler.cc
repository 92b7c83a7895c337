// Time of one scheduler turn (schedule + update + outputs) with many running and waiting requests.
//   bench_scheduler [RUNNING WAITING STEPS]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "engine/fake_executor.h"
#include "engine/scheduler.h"

using namespace tutti;

namespace {

EngineRequest make_request(RequestId id, int prompt_tokens, int max_tokens) {
  EngineRequest r;
  r.id = id;
  for (int i = 0; i < prompt_tokens; ++i) r.prompt_token_ids.push_back(static_cast<int32_t>(id * 7919 + static_cast<uint64_t>(i)) % 30000);
  r.sampling.max_tokens = max_tokens;
  return r;
}

double percentile(std::vector<double> values, double p) {
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(p * static_cast<double>(values.size() - 1))];
}

}  // namespace

int main(int argc, char** argv) {
  const int running = argc > 1 ? std::atoi(argv[1]) : 256;
  const int waiting = argc > 2 ? std::atoi(argv[2]) : 1000;
  const int steps = argc > 3 ? std::atoi(argv[3]) : 3000;
  Scheduler::Options options;
  options.scheduler = {.max_num_batched_tokens = 2048, .max_num_seqs = running, .max_model_len = 8192};
  options.num_kv_blocks = 60000;
  Scheduler scheduler(options);
  FakeExecutor workers({}, [](RequestId, int64_t) { return 5; });
  RequestId next = 1;
  // Generations of 300 tokens: about one request ends and one starts at every step, while `waiting` others queue.
  const auto top_up = [&] {
    while (scheduler.num_running() + scheduler.num_waiting() < running + waiting) {
      const int length = 100 + static_cast<int>(next % 200);
      scheduler.add(make_request(next, length, 200 + static_cast<int>(next % 200)));
      ++next;
    }
  };
  std::vector<double> times;
  for (int step = 0; step < steps + 200; ++step) {
    top_up();  // hashing prompts belongs to the arrival of a request, not to a step
    const auto begin = Clock::now();
    const SchedulerOutput out = scheduler.schedule();
    auto middle = Clock::now();
    const ModelRunnerOutput answer = workers.run(out);
    const auto answered = Clock::now();
    scheduler.update(answer);
    const auto outputs = scheduler.take_outputs();
    const auto end = Clock::now();
    if (step >= 200) times.push_back(std::chrono::duration<double, std::micro>((middle - begin) + (end - answered)).count());
  }
  std::printf("{\"benchmark\": \"scheduler\", \"running\": %lld, \"waiting\": %lld, \"steps\": %d, \"p50_us\": %.1f, \"p99_us\": %.1f, \"max_us\": %.1f}\n",
              static_cast<long long>(scheduler.num_running()), static_cast<long long>(scheduler.num_waiting()), steps,
              percentile(times, 0.5), percentile(times, 0.99), percentile(times, 1.0));
}
