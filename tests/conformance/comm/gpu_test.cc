// The conformance body on GPUs: a process a rank, each on a GPU of its own where there are enough, else all on one, which
// needs the MPS daemon (scripts/multi_gpu.sh starts one). TUTTI_TEST_RANKS: how many, 2 unless said.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "collectives.h"
#include "base/error.h"
#include "comm/device_bench.h"
#include "comm/device_factory.h"
#include "rank_processes.h"
#include "staged.h"

namespace tutti {
namespace {

using Path = DeviceCommOptions::Path;
using testing::Each;
using testing::HasSubstr;
using testing::IsEmpty;

int ranks() {
  const char* text = std::getenv("TUTTI_TEST_RANKS");
  return text == nullptr ? 2 : std::atoi(text);
}

// In a process of its own: the test itself must not touch a GPU before it forks.
bool one_gpu_each() {
  static const bool enough = [] {
    RankProcesses asked(1, [](int, Store&) { return std::to_string(visible_gpus()); });
    return std::atoi(asked.wait(std::chrono::seconds(60))[0].report.c_str()) >= ranks();
  }();
  return enough;
}

using Body = std::function<std::string(Communicator& gpu, DeviceBench& bench, Device device)>;

// Without `measure` all ways are as they are before anything is measured, whatever else runs on the GPUs.
std::vector<RankResult> run(Path path, std::chrono::seconds timeout, const Body& body, bool measure = true) {
  const bool own_gpu = one_gpu_each();
  RankProcesses processes(ranks(), [&](int rank, Store& store) {
    DeviceCommOptions options;
    options.group.rank = rank;
    options.group.size = ranks();
    options.group.timeout = timeout;
    options.group.setup_timeout = std::chrono::seconds(40);
    options.device = Device::cuda(own_gpu ? rank : 0);
    options.path = path;
    options.measure_algorithms = measure;
    DeviceBench bench(options.device);
    options.stream = bench.stream();
    const auto comm = make_device_communicator(options, store);
    const std::string report = body(*comm, bench, options.device);
    comm->finish();
    return report;
  });
  return processes.wait(std::chrono::seconds(100));
}

void expect_same(const std::vector<RankResult>& results) {
  for (const RankResult& result : results) {
    EXPECT_EQ(result.error, "");
    EXPECT_EQ(result.report, results[0].report);
    EXPECT_NE(result.report, "");
  }
}

class Gpu : public testing::TestWithParam<Path> {
 protected:
  void SetUp() override {
    if (GetParam() == Path::kNccl && !one_gpu_each()) GTEST_SKIP() << "NCCL refuses several ranks on one GPU";
  }
};

TEST_P(Gpu, Collectives) {
  for (const size_t shift : {size_t{0}, size_t{8}}) {
    expect_same(run(GetParam(), std::chrono::seconds(20), [&](Communicator& gpu, DeviceBench& bench, Device device) {
      StagedCommunicator staged(gpu, device, bench.stream(), shift);
      return check_collectives(staged, {{0, 1, 3, 17, 256, 1000, 5001, 70001, 300001},
                                        {DType::kF32, DType::kF16, DType::kBF16, DType::kI32, DType::kI64}}) +
             check_collectives(staged, {{12'000'003}, {DType::kBF16}});
    }));
  }
}

TEST_P(Gpu, SumsAreTheSameOnEveryRank) {
  const bool ordered = GetParam() == Path::kCudaIpc;
  expect_same(run(GetParam(), std::chrono::seconds(20), [&](Communicator& gpu, DeviceBench& bench, Device device) {
    StagedCommunicator staged(gpu, device, bench.stream(), 0);
    return check_rounding(staged, ordered);
  }));
}

// A graph of calls, replayed: the numbers of the calls live on the device.
TEST_P(Gpu, CapturedCallsAreReplayed) {
  expect_same(run(GetParam(), std::chrono::seconds(20), [&](Communicator& gpu, DeviceBench& bench, Device) {
    const auto ones = bench.random(1 << 20);
    std::vector<uint16_t> numbers(8192, 0x3f80);  // 1 in BF16
    cuda::copy_async(ones->data(), numbers.data(), numbers.size() * 2, bench.stream());
    cuda::synchronize(bench.stream());
    // One call, then seven in each of two replays: size^15, exact in BF16 for two ranks.
    (void)bench.microseconds(7, 1, [&] { gpu.all_reduce(ones->data(), 8192, DType::kBF16); }, [] {});
    gpu.finish();
    cuda::copy_async(numbers.data(), ones->data(), numbers.size() * 2, bench.stream());
    cuda::synchronize(bench.stream());
    std::string wrong;
    float expected = 1;
    for (int i = 0; i < 15; ++i) expected *= static_cast<float>(gpu.size());
    for (const uint16_t bits : numbers) {
      const uint32_t wide = static_cast<uint32_t>(bits) << 16;
      float value;
      std::memcpy(&value, &wide, sizeof value);
      if (std::abs(value - expected) > expected / 64) wrong = std::to_string(value);
    }
    if (!wrong.empty()) throw std::runtime_error("a sum is " + wrong + ", expected " + std::to_string(expected));
    return std::string("right");
  }));
}

float widened(uint16_t bits) {
  const uint32_t wide = static_cast<uint32_t>(bits) << 16;
  float value;
  std::memcpy(&value, &wide, sizeof value);
  return value;
}

// To BF16, ties to even.
uint16_t narrowed(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// In [-2, 2), different for every rank.
uint16_t number_of(int rank, int64_t i) { return narrowed(static_cast<float>((i * 7919 + rank * 104729) % 4001 - 2000) * 1e-3f); }

// What is wrong with the sum, the addition or the norm of a case; "" is right.
std::string check_fused(Communicator& gpu, DeviceBench& bench, int64_t rows, int64_t columns, bool must_take) {
  const auto count = static_cast<size_t>(rows * columns), bytes = 2 * count;
  std::vector<uint16_t> delta(count), residual(count), out(count, 0x7fc0);
  std::vector<float> weight(static_cast<size_t>(columns));
  for (size_t i = 0; i < count; ++i) {
    delta[i] = number_of(gpu.rank(), static_cast<int64_t>(i));
    residual[i] = number_of(77, static_cast<int64_t>(i));
  }
  for (size_t i = 0; i < weight.size(); ++i) weight[i] = 0.5f + static_cast<float>(i % 13) / 13;
  const auto memory = bench.random(3 * bytes + weight.size() * 4 + 64);
  std::byte* at = memory->data();
  std::byte *on_delta = at, *on_residual = at + bytes, *on_out = at + 2 * bytes, *on_weight = at + 3 * bytes;
  const auto put = [&](std::byte* to, const auto& from) { cuda::copy_async(to, from.data(), from.size() * sizeof(from[0]), bench.stream()); };
  put(on_delta, delta);
  put(on_residual, residual);
  put(on_out, out);
  put(on_weight, weight);
  if (!gpu.all_reduce_add_norm({on_delta, on_residual, reinterpret_cast<const float*>(on_weight), 1e-5f, on_out, rows, columns, DType::kBF16}))
    return must_take ? "it was not taken" : "";
  gpu.finish();
  std::vector<uint16_t> stream(count);
  cuda::copy_async(stream.data(), on_residual, bytes, bench.stream());
  cuda::copy_async(out.data(), on_out, bytes, bench.stream());
  cuda::synchronize(bench.stream());
  for (int64_t row = 0; row < rows; ++row) {
    double squares = 0;
    for (int64_t i = row * columns; i < (row + 1) * columns; ++i) {
      float sum = 0;
      for (int r = 0; r < gpu.size(); ++r) sum += widened(number_of(r, i));
      const uint16_t expected = narrowed(widened(residual[static_cast<size_t>(i)]) + widened(narrowed(sum)));
      if (stream[static_cast<size_t>(i)] != expected) return "the stream differs at " + std::to_string(i);
      squares += widened(expected) * widened(expected);
    }
    const double factor = 1 / std::sqrt(squares / static_cast<double>(columns) + 1e-5);
    for (int64_t i = 0; i < columns; ++i) {
      const auto at_i = static_cast<size_t>(row * columns + i);
      const double expected = widened(stream[at_i]) * factor * weight[static_cast<size_t>(i)];
      if (!(std::abs(widened(out[at_i]) - expected) <= std::abs(expected) / 128 + 1e-6)) return "the norm differs at " + std::to_string(at_i);
    }
  }
  return "";
}

// Measured, it is taken where this way of summing was the fastest: long sums, too, but which of them is the machine's affair.
TEST_P(Gpu, SumsWithTheirNorm) {
  if (GetParam() == Path::kNccl || !one_gpu_each()) GTEST_SKIP() << "through each other's memory only, a GPU each";
  for (const bool measure : {false, true}) {
    const auto body = [measure](Communicator& gpu, DeviceBench& bench, Device) {
      for (const auto& [rows, columns] : std::vector<std::pair<int64_t, int64_t>>{{1, 64}, {3, 576}, {1, 4096}, {32, 4096}, {1, 8192}, {16, 8192}, {2, 16384}}) {
        const bool must_take = !measure && 2 * rows * columns <= 65536;
        if (const std::string wrong = check_fused(gpu, bench, rows, columns, must_take); !wrong.empty())
          throw std::runtime_error(std::to_string(rows) + " x " + std::to_string(columns) + ": " + wrong);
      }
      const auto odd = bench.random(1 << 20);
      if (gpu.all_reduce_add_norm({odd->data(), odd->data() + 4096, nullptr, 1e-5f, odd->data() + 8192, 1, 100, DType::kBF16}))
        throw std::runtime_error("a row of 100 elements was taken");
      return std::string("right");
    };
    expect_same(run(GetParam(), std::chrono::seconds(20), body, measure));
  }
}

TEST_P(Gpu, ALateRankIsNamedAndTheOthersAreFreed) {
  const auto results = run(GetParam(), std::chrono::seconds(2), [](Communicator& gpu, DeviceBench& bench, Device) {
    const auto data = bench.random(1 << 20);
    gpu.all_reduce(data->data(), 1024, DType::kBF16);
    gpu.finish();
    if (gpu.rank() == 1) {
      std::this_thread::sleep_for(std::chrono::seconds(7));
      return std::string("late");
    }
    gpu.all_reduce(data->data(), 1024, DType::kBF16);
    gpu.finish();
    return std::string("not reached");
  });
  EXPECT_THAT(results[0].error, HasSubstr("rank 1"));
  EXPECT_LT(results[0].seconds, 30);
  EXPECT_EQ(results[1].error, "");
}

TEST_P(Gpu, AbortFreesAWaitingRank) {
  const auto results = run(GetParam(), std::chrono::seconds(20), [](Communicator& gpu, DeviceBench& bench, Device) {
    const auto data = bench.random(1 << 20);
    gpu.all_reduce(data->data(), 1024, DType::kBF16);
    gpu.finish();
    const auto start = Clock::now();
    if (gpu.rank() == 0) {
      gpu.all_reduce(data->data(), 1024, DType::kBF16);
      std::thread other([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(200));
        gpu.abort("the cluster has ended");
      });
      std::string error;
      try {
        gpu.finish();
      } catch (const CommError& e) {
        error = e.what();
      }
      other.join();
      if (error != "the cluster has ended") throw std::runtime_error("not freed: " + error);
      if (Clock::now() - start > std::chrono::seconds(5)) throw std::runtime_error("freed late");
    } else {
      std::this_thread::sleep_for(std::chrono::seconds(3));
    }
    std::_Exit(0);  // the group is broken: nothing to take down together
    return std::string();
  });
  for (const RankResult& result : results) EXPECT_EQ(result.signal, 0) << result.error;
}

INSTANTIATE_TEST_SUITE_P(Paths, Gpu, testing::Values(Path::kCudaIpc, Path::kNccl, Path::kAuto),
                         [](const auto& info) {
                           return std::string(info.param == Path::kCudaIpc ? "cuda_ipc" : info.param == Path::kNccl ? "nccl" : "auto");
                         });

}  // namespace
}  // namespace tutti
