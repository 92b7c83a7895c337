#include "comm/cuda_ipc/ipc_trial.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <thread>

#include "base/error.h"
#include "tensor/cuda/ipc_memory.h"
#include "tensor/device_memory.h"

namespace tutti::cuda_ipc {
namespace {

constexpr auto kBudget = std::chrono::seconds(5);

const char* name_of(SumWay way) {
  return way == SumWay::kLowLatency ? "low-latency" : way == SumWay::kOneShot ? "one-shot" : "two-shot";
}

// Small numbers: every sum is exact in float32.
float value_of(int rank, size_t index) { return static_cast<float>((index * 7 + static_cast<size_t>(rank) * 13) % 101); }

bool wait(const SelfTest& test) {
  const uint64_t end = test.stream->mark();
  while (!test.stream->reached(end)) {
    if (test.deadline.passed()) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
  return !test.failed();
}

std::string test_sum(const SelfTest& test, SumWay way, size_t count, const std::shared_ptr<Buffer>& memory) {
  std::vector<float> numbers(count);
  for (size_t i = 0; i < count; ++i) numbers[i] = value_of(test.group.rank, i);
  cuda::copy_async(memory->data(), numbers.data(), count * sizeof(float), test.stream->handle());
  test.sum(way, memory->data(), count * sizeof(float), DType::kF32);
  std::fill(numbers.begin(), numbers.end(), -1.0f);
  cuda::copy_async(numbers.data(), memory->data(), count * sizeof(float), test.stream->handle());
  if (!wait(test)) return fmt::format("the {} sum of {} numbers does not end", name_of(way), count);
  for (size_t i = 0; i < count; ++i) {
    float expected = 0;
    for (int r = 0; r < test.group.size; ++r) expected += value_of(r, i);
    if (numbers[i] != expected) {
      return fmt::format("the {} sum of {} numbers is wrong: number {} is {}, expected {}", name_of(way), count, i, numbers[i],
                         expected);
    }
  }
  return "";
}

std::string test_gather(const SelfTest& test, size_t bytes, const std::shared_ptr<Buffer>& memory) {
  const auto size = static_cast<size_t>(test.group.size);
  std::vector<uint8_t> own(bytes), all(size * bytes, 0xff);
  for (size_t i = 0; i < bytes; ++i) own[i] = static_cast<uint8_t>(value_of(test.group.rank, i));
  std::byte* recv = memory->data() + (bytes + 255) / 256 * 256;
  cuda::copy_async(memory->data(), own.data(), bytes, test.stream->handle());
  test.gather(memory->data(), recv, bytes);
  cuda::copy_async(all.data(), recv, all.size(), test.stream->handle());
  if (!wait(test)) return fmt::format("the gather of {} bytes does not end", bytes);
  for (size_t i = 0; i < all.size(); ++i) {
    if (all[i] != static_cast<uint8_t>(value_of(static_cast<int>(i / bytes), i % bytes)))
      return fmt::format("the gather of {} bytes is wrong at byte {}", bytes, i);
  }
  return "";
}

}  // namespace

// Twice each: both halves of the areas.
std::string run_self_test(const SelfTest& test) {
  const auto memory = cuda::allocate(size_t{8} << 20, test.stream->device());
  for (int round = 0; round < 2; ++round) {
    for (const SumWay way : {SumWay::kLowLatency, SumWay::kOneShot, SumWay::kTwoShot}) {
      for (const size_t count : {size_t{1}, size_t{1021}, size_t{65536 + 3}}) {
        if (std::string problem = test_sum(test, way, count, memory); !problem.empty()) return problem;
      }
    }
    for (const size_t bytes : {size_t{1}, size_t{4096}, size_t{70001}}) {
      if (std::string problem = test_gather(test, bytes, memory); !problem.empty()) return problem;
    }
  }
  return "";
}

Measurement::Measurement(CudaStream& stream, Communicator& control, std::function<void()> finish)
    : stream_(stream),
      control_(control),
      finish_(std::move(finish)),
      data_(cuda::allocate(kRoomBytes, stream.device())) {
  check(cudaEventCreate(&begin_), "cudaEventCreate");
  check(cudaEventCreate(&end_), "cudaEventCreate");
  cuda::zero_async(data_->data(), data_->bytes(), stream_.handle());
}

Measurement::~Measurement() {
  (void)cudaStreamSynchronize(stream_.stream());
  drop_graphs();
  (void)cudaEventDestroy(begin_);
  (void)cudaEventDestroy(end_);
}

void Measurement::drop_graphs() {
  for (const auto& [key, graph] : graphs_) (void)cudaGraphExecDestroy(graph);
  graphs_.clear();
}

void Measurement::choose(AlgorithmTable& table, const std::vector<SumWay>& ways, size_t largest, const Run& run) {
  SumTrial trial;
  trial.ways = ways;
  trial.time = [&](SumWay way, size_t bytes) { return replay(way, bytes, run); };
  trial.slowest = [&](double seconds) {
    std::vector<double> all(static_cast<size_t>(control_.size()));
    control_.all_gather(&seconds, all.data(), sizeof seconds);
    return *std::max_element(all.begin(), all.end());
  };
  trial.growth = 2;
  measure_algorithms(table, trial, largest, kBudget);
  drop_graphs();
}

// Captured on first use; the first replay of a size is the table's warm-up.
double Measurement::replay(SumWay way, size_t bytes, const Run& run) {
  cudaGraphExec_t& graph = graphs_[{way, bytes}];
  if (graph == nullptr) {
    const int calls = bytes > (size_t{4} << 20) ? 3 : 20;
    cudaGraph_t recorded = nullptr;
    run(way, data_->data(), bytes);  // NCCL connects at the first call of a kind
    finish_();
    check(cudaStreamBeginCapture(stream_.stream(), cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
    for (int i = 0; i < calls; ++i) run(way, data_->data(), bytes);
    check(cudaStreamEndCapture(stream_.stream(), &recorded), "cudaStreamEndCapture");
    check(cudaGraphInstantiate(&graph, recorded, 0), "cudaGraphInstantiate");
    check(cudaGraphDestroy(recorded), "cudaGraphDestroy");
  }
  check(cudaEventRecord(begin_, stream_.stream()), "cudaEventRecord");
  check(cudaGraphLaunch(graph, stream_.stream()), "cudaGraphLaunch");
  check(cudaEventRecord(end_, stream_.stream()), "cudaEventRecord");
  finish_();
  float milliseconds = 0;
  check(cudaEventElapsedTime(&milliseconds, begin_, end_), "cudaEventElapsedTime");
  return 1e-3 * static_cast<double>(milliseconds);
}

}  // namespace tutti::cuda_ipc
