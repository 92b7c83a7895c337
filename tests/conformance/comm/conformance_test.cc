#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/format.h>

#include "collectives.h"
#include "comm/comm_testing.h"
#include "comm/ucx_wire.h"
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
  LinkKind link = LinkKind::kTcp;
};

CommOptions options_of(const Way& way, int size) {
  CommOptions options;
  options.transport = way.kind;
  options.tcp_streams = way.streams;
  options.link = way.link;
  options.secret = "conformance";
  options.timeout = std::chrono::seconds(30);
  for (int r = 0; r < size; ++r)
    options.nodes.push_back(way.several_nodes ? fmt::format("node{}", r % 2) : "node");
  return options;
}

// Runs the body on every rank and requires that all return the same.
void run(const Way& way, int size, const std::function<std::string(Communicator&)>& body) {
  if (way.link == LinkKind::kUcx && !has_ucx()) {
    ASSERT_FALSE(in_ci()) << kNoUcx;
    GTEST_SKIP() << kNoUcx;
  }
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

// The other collectives with as much: every byte has a value of its own place.
TEST_P(ConformanceHuge, Moves) {
  const size_t bytes = (size() == 2 ? size_t{32} : size_t{8}) << 20;  // of one piece
  run(way(), size(), [=](Communicator& comm) {
    const auto ranks = static_cast<size_t>(comm.size());
    const auto me = static_cast<size_t>(comm.rank());
    const auto value = [](size_t from, size_t to, size_t i) {
      return static_cast<uint8_t>(i * 31 + (i >> 8) * 7 + from * 5 + to * 3);
    };
    std::vector<uint8_t> out(bytes * ranks), in(bytes * ranks);
    const auto expect = [&](const char* what, const auto& expected) {
      for (size_t i = 0; i < in.size(); ++i) {
        if (in[i] != expected(i / bytes, i % bytes)) throw std::runtime_error(fmt::format("{}: byte {}", what, i));
      }
    };
    for (size_t i = 0; i < out.size(); ++i) out[i] = value(me, i / bytes, i % bytes);
    comm.all_to_all(out.data(), in.data(), bytes);
    expect("all-to-all", [&](size_t piece, size_t i) { return value(piece, me, i); });
    const size_t root = ranks - 1;
    for (size_t i = 0; i < in.size(); ++i) in[i] = me == root ? value(root, i / bytes, i % bytes) : uint8_t{0};
    comm.broadcast(in.data(), in.size(), static_cast<int>(root));
    expect("broadcast", [&](size_t piece, size_t i) { return value(root, piece, i); });
    const int next = static_cast<int>((me + 1) % ranks);
    const int previous = static_cast<int>((me + ranks - 1) % ranks);
    if (me != 0) comm.recv(in.data(), in.size(), previous);
    comm.send(out.data(), out.size(), next);
    if (me == 0) comm.recv(in.data(), in.size(), previous);
    expect("recv", [&](size_t piece, size_t i) { return value(static_cast<size_t>(previous), piece, i); });

    const auto count = static_cast<int64_t>(bytes / sizeof(int64_t));
    std::vector<int64_t> parts(static_cast<size_t>(count) * ranks), sum(static_cast<size_t>(count));
    for (size_t i = 0; i < parts.size(); ++i) parts[i] = static_cast<int64_t>(i * (me + 1));
    comm.reduce_scatter(parts.data(), sum.data(), count, DType::kI64);
    for (size_t i = 0; i < sum.size(); ++i) {
      const size_t place = me * static_cast<size_t>(count) + i;
      if (sum[i] != static_cast<int64_t>(place * ranks * (ranks + 1) / 2)) throw std::runtime_error(fmt::format("reduce-scatter: {}", i));
    }
    return std::string("all moved");
  });
}

const Way kWays[] = {{"in_process", TransportKind::kInProcess, false, 1},
                     {"shm", TransportKind::kShm, false, 1},
                     {"tcp", TransportKind::kTcp, false, 1},
                     {"tcp_streams", TransportKind::kTcp, false, 3},
                     {"hierarchical", TransportKind::kAuto, true, 1},
                     {"ucx", TransportKind::kTcp, false, 1, LinkKind::kUcx}};

std::string name_of(const testing::TestParamInfo<std::tuple<Way, int>>& info) {
  return fmt::format("{}_{}", std::get<0>(info.param).name, std::get<1>(info.param));
}

INSTANTIATE_TEST_SUITE_P(Ways, Conformance,
                         testing::Combine(testing::ValuesIn(kWays), testing::Range(1, 9)), name_of);
INSTANTIATE_TEST_SUITE_P(Ways, ConformanceHuge,
                         testing::Combine(testing::ValuesIn(kWays), testing::Range(2, 4)), name_of);

}  // namespace
}  // namespace tutti
