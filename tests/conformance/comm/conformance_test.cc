#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/format.h>

#include "collectives.h"
#include "comm/comm_testing.h"
#include "rank_processes.h"

namespace tutti {
namespace {

using testing::Each;
using testing::IsEmpty;

const std::vector<DType> kAllTypes = {DType::kF32, DType::kF16, DType::kBF16, DType::kI32,
                                      DType::kI64};

struct Way {
  const char* name;
  TransportKind kind;
  bool several_nodes;
  int streams;
};

CommOptions options_of(const Way& way, int size) {
  CommOptions options;
  options.transport = way.kind;
  options.tcp_streams = way.streams;
  options.secret = "conformance";
  options.timeout = std::chrono::seconds(30);
  for (int r = 0; r < size; ++r)
    options.nodes.push_back(way.several_nodes ? fmt::format("node{}", r % 2) : "node");
  return options;
}

// Runs the body on every rank and requires that all return the same.
void run(const Way& way, int size, const std::function<std::string(Communicator&)>& body) {
  std::vector<std::string> reports(static_cast<size_t>(size));
  std::vector<std::string> errors(static_cast<size_t>(size));
  if (way.kind == TransportKind::kInProcess) {
    errors = run_rank_threads(size, options_of(way, size), [&](Communicator& comm) {
      reports[static_cast<size_t>(comm.rank())] = body(comm);
    });
  } else {
    RankProcesses ranks(size,
                        with_communicator(size, options_of(way, size),
                                          [&](Communicator& comm, Store&) { return body(comm); }));
    const auto results = ranks.wait(std::chrono::seconds(100));
    for (size_t r = 0; r < results.size(); ++r) {
      reports[r] = results[r].report;
      errors[r] = results[r].error;
    }
  }
  EXPECT_THAT(errors, Each(IsEmpty()));
  EXPECT_THAT(reports, Each(reports[0]));
  EXPECT_FALSE(reports[0].empty());
}

class Conformance : public testing::TestWithParam<std::tuple<Way, int>> {
 protected:
  Way way() const { return std::get<0>(GetParam()); }
  int size() const { return std::get<1>(GetParam()); }
};

TEST_P(Conformance, SmallAllTypes) {
  run(way(), size(), [](Communicator& comm) {
    return check_collectives(comm, {{0, 1, 3, 17, 256, 1000, 5001}, kAllTypes});
  });
}

TEST_P(Conformance, Larger) {
  // Around the borders of the algorithms, slots and channels.
  std::vector<int64_t> counts = {16384, 16385, 70001};
  if (size() <= 4) counts.push_back(300001);
  run(way(), size(), [&](Communicator& comm) {
    return check_collectives(comm, {counts, {DType::kF32, DType::kBF16}});
  });
}

TEST_P(Conformance, Rounding) {
  const bool in_rank_order = !way().several_nodes;
  run(way(), size(), [=](Communicator& comm) { return check_rounding(comm, in_rank_order); });
}

// 64 MB with few ranks.
class ConformanceHuge : public Conformance {};

TEST_P(ConformanceHuge, Sums) {
  const int64_t count = size() == 2 ? 16'000'003 : 2'000'003;
  run(way(), size(), [=](Communicator& comm) {
    std::vector<float> data(static_cast<size_t>(count));
    for (size_t i = 0; i < data.size(); ++i)
      data[i] = static_cast<float>((i + static_cast<size_t>(comm.rank())) % 1000);
    comm.all_reduce(data.data(), count, DType::kF32);
    double total = 0;
    for (size_t i = 0; i < data.size(); ++i) {
      float expected = 0;
      for (int r = 0; r < comm.size(); ++r)
        expected += static_cast<float>((i + static_cast<size_t>(r)) % 1000);
      if (data[i] != expected) throw std::runtime_error(fmt::format("element {}: {}", i, data[i]));
      total += data[i];
    }
    std::vector<float> all(data.size() / 8 * static_cast<size_t>(comm.size()));
    comm.all_gather(data.data(), all.data(), data.size() / 8 * sizeof(float));
    for (size_t i = 0; i < all.size(); ++i) {
      if (all[i] != data[i % (data.size() / 8)])
        throw std::runtime_error(fmt::format("gathered element {}", i));
    }
    return fmt::format("{}", total);
  });
}

const Way kWays[] = {{"in_process", TransportKind::kInProcess, false, 1},
                     {"shm", TransportKind::kShm, false, 1},
                     {"tcp", TransportKind::kTcp, false, 1},
                     {"tcp_streams", TransportKind::kTcp, false, 3},
                     {"hierarchical", TransportKind::kAuto, true, 1}};

std::string name_of(const testing::TestParamInfo<std::tuple<Way, int>>& info) {
  return fmt::format("{}_{}", std::get<0>(info.param).name, std::get<1>(info.param));
}

INSTANTIATE_TEST_SUITE_P(Ways, Conformance,
                         testing::Combine(testing::ValuesIn(kWays), testing::Range(1, 9)), name_of);
INSTANTIATE_TEST_SUITE_P(Ways, ConformanceHuge,
                         testing::Combine(testing::ValuesIn(kWays), testing::Range(2, 4)), name_of);

}  // namespace
}  // namespace tutti
