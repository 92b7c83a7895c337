// Every transport over threads, in small: what the conformance tests do at length over processes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <numeric>
#include <vector>

#include "base/error.h"
#include "comm/comm_testing.h"
#include "comm/parallel_groups.h"

namespace tutti {
namespace {

using std::chrono::milliseconds;
using testing::AllOf;
using testing::Each;
using testing::HasSubstr;
using testing::IsEmpty;

struct Case {
  const char* name;
  TransportKind kind;
  std::vector<std::string> nodes;
};

class Collectives : public testing::TestWithParam<Case> {
 protected:
  CommOptions options() const {
    CommOptions options;
    options.transport = GetParam().kind;
    options.nodes = GetParam().nodes;
    options.secret = "between us";
    options.check_sequence = true;
    return options;
  }
};

TEST_P(Collectives, GiveTheSums) {
  const auto errors = run_rank_threads(3, options(), [](Communicator& comm) {
    for (const int64_t count : {0, 1, 100, 100000}) {
      std::vector<float> data(static_cast<size_t>(count));
      for (size_t i = 0; i < data.size(); ++i)
        data[i] = static_cast<float>(comm.rank() + 1) * static_cast<float>(i % 97);
      comm.all_reduce(data.data(), count, DType::kF32);
      for (size_t i = 0; i < data.size(); ++i)
        ASSERT_EQ(data[i], 6.0f * static_cast<float>(i % 97));
    }
    EXPECT_EQ(comm.stats().calls, 4);
    EXPECT_EQ(comm.stats().bytes, 400404);
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
}

TEST_P(Collectives, MoveTheBytes) {
  const auto errors = run_rank_threads(3, options(), [](Communicator& comm) {
    const int own = comm.rank();
    std::vector<int> gathered(3);
    comm.all_gather(&own, gathered.data(), sizeof own);
    EXPECT_EQ(gathered, (std::vector<int>{0, 1, 2}));

    int from_last = own == 2 ? 77 : 0;
    comm.broadcast(&from_last, sizeof from_last, 2);
    EXPECT_EQ(from_last, 77);

    std::vector<int> out(3), in(3);
    for (int r = 0; r < 3; ++r) out[static_cast<size_t>(r)] = 10 * own + r;
    comm.all_to_all(out.data(), in.data(), sizeof(int));
    EXPECT_EQ(in, (std::vector<int>{own, 10 + own, 20 + own}));

    int sum = 0;
    comm.reduce_scatter(out.data(), &sum, 1, DType::kI32);
    EXPECT_EQ(sum, 30 + 3 * own);

    comm.barrier();
    int token = own;
    if (own > 0) comm.recv(&token, sizeof token, own - 1);
    EXPECT_EQ(token, std::max(0, own - 1));
    if (own < 2) comm.send(&own, sizeof own, own + 1);
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
}

TEST_P(Collectives, SomeMessagesMayLieUnread) {
  constexpr size_t kBytes = (64 << 10) / Communicator::kMostUnread;
  std::atomic<bool> all_sent = false;
  const auto errors = run_rank_threads(3, options(), [&](Communicator& comm) {
    if (comm.rank() == 2) return;
    std::vector<uint8_t> data(kBytes);
    if (comm.rank() == 0) {
      for (size_t i = 0; i < Communicator::kMostUnread; ++i) {
        std::fill(data.begin(), data.end(), static_cast<uint8_t>(i + 1));
        comm.send(data.data(), kBytes, 1);
      }
      all_sent = true;
      return;
    }
    const auto give_up = Clock::now() + std::chrono::seconds(20);
    while (!all_sent && Clock::now() < give_up) std::this_thread::sleep_for(milliseconds(1));
    ASSERT_TRUE(all_sent);
    for (size_t i = 0; i < Communicator::kMostUnread; ++i) {
      comm.recv(data.data(), kBytes, 0);
      EXPECT_THAT(data, Each(i + 1));
    }
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
}

TEST_P(Collectives, AbortFreesWhoWaits) {
  const auto start = Clock::now();
  const auto errors = run_rank_threads(3, options(), [](Communicator& comm) {
    if (comm.rank() == 2) {
      std::this_thread::sleep_for(milliseconds(30));
      comm.abort("the operator said stop");
    }
    comm.barrier();
  });
  EXPECT_THAT(errors, Each(HasSubstr("the operator said stop")));
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(5));
}

TEST_P(Collectives, LateRankIsNamed) {
  CommOptions late = options();
  late.timeout = milliseconds(150);
  late.labels = {"rank 0 (a)", "rank 1 (b)", "rank 2 (c cpu 1)"};
  std::atomic<int> waiting = 0;
  const auto errors = run_rank_threads(3, late, [&](Communicator& comm) {
    comm.barrier();
    if (comm.rank() == 2) {
      while (waiting < 2) std::this_thread::sleep_for(milliseconds(10));
      return;
    }
    std::vector<float> data(10);
    try {
      comm.all_reduce(data.data(), 10, DType::kF32);
    } catch (const CommError& error) {
      ++waiting;
      EXPECT_THROW(comm.barrier(), CommError);  // broken for good
      throw;
    }
  });
  for (size_t r : {0, 1})
    EXPECT_THAT(errors[r], AllOf(HasSubstr("rank 2 (c cpu 1)"), HasSubstr("all-reduce 2")));
}

TEST_P(Collectives, DifferentCallsAreTold) {
  const auto errors = run_rank_threads(3, options(), [](Communicator& comm) {
    std::vector<float> data(20);
    comm.barrier();
    comm.all_reduce(data.data(), comm.rank() == 1 ? 20 : 10, DType::kF32);
  });
  EXPECT_THAT(errors, Each(AllOf(HasSubstr("all-reduce 2 of 10 F32"),
                                 HasSubstr("all-reduce 2 of 20 F32"))));
}

INSTANTIATE_TEST_SUITE_P(
    Transports, Collectives,
    testing::Values(Case{"in_process", TransportKind::kInProcess, {}},
                    Case{"shm", TransportKind::kShm, {}}, Case{"tcp", TransportKind::kTcp, {}},
                    Case{"hierarchical", TransportKind::kAuto, {"x", "y", "x"}}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(Factory, ChoosesByNode) {
  const auto transport_of = [](std::vector<std::string> nodes) {
    CommOptions options;
    options.nodes = nodes;
    std::string name;
    const auto errors =
        run_rank_threads(static_cast<int>(nodes.size()), options, [&](Communicator& comm) {
          if (comm.rank() == 0) name = comm.transport();
        });
    EXPECT_THAT(errors, Each(IsEmpty()));
    return name;
  };
  EXPECT_EQ(transport_of({"x"}), "self");
  EXPECT_EQ(transport_of({"x", "x"}), "shm");
  EXPECT_EQ(transport_of({"x", "y"}), "tcp");
  EXPECT_EQ(transport_of({"x", "y", "y"}), "hierarchical");
}

TEST(Factory, MissingRankIsNamed) {
  InMemoryStore store;
  CommOptions options;
  options.size = 2;
  options.setup_timeout = milliseconds(50);
  options.labels = {"rank 0", "rank 1 (node2)"};
  for (const auto kind : {TransportKind::kShm, TransportKind::kTcp}) {
    options.transport = kind;
    try {
      make_communicator(options, store);
      ADD_FAILURE();
    } catch (const CommError& error) {
      EXPECT_THAT(error.what(), HasSubstr("rank 1 (node2)"));
    }
  }
}

TEST(Factory, SharedMemoryDoesNotReachOverNodes) {
  InMemoryStore store;
  CommOptions options;
  options.size = 2;
  options.nodes = {"x", "y"};
  options.transport = TransportKind::kShm;
  EXPECT_THROW(make_communicator(options, store), ConfigError);
}

TEST(Factory, WrongSecretIsRefused) {
  InMemoryStore store;
  std::string errors[2];
  std::vector<std::thread> threads;
  for (int r = 0; r < 2; ++r) {
    threads.emplace_back([&, r] {
      CommOptions options;
      options.rank = r;
      options.size = 2;
      options.transport = TransportKind::kTcp;
      options.setup_timeout = milliseconds(300);
      options.secret = r == 0 ? "right" : "wrong";
      try {
        make_communicator(options, store);
      } catch (const CommError& error) {
        errors[r] = error.what();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_THAT(errors[1], HasSubstr("the cluster's secret differs"));
  EXPECT_THAT(errors[0], HasSubstr("rank 1: did not connect"));
}

TEST(ParallelGroupsTest, TwoByTwo) {
  InMemoryStore store;
  std::vector<std::thread> threads;
  for (int r = 0; r < 4; ++r) {
    threads.emplace_back([&store, r] {
      CommOptions world;
      world.rank = r;
      world.size = 4;
      world.transport = TransportKind::kInProcess;
      const int stage = r / 2, column = r % 2;
      ParallelGroups groups =
          make_parallel_groups(world, {2 * stage, 2 * stage + 1}, {column, 2 + column}, store);
      int32_t sums[3] = {r, r, r};
      groups.world->all_reduce(&sums[0], 1, DType::kI32);
      groups.tp->all_reduce(&sums[1], 1, DType::kI32);
      groups.pp->all_reduce(&sums[2], 1, DType::kI32);
      EXPECT_EQ(sums[0], 6);
      EXPECT_EQ(sums[1], 4 * stage + 1);
      EXPECT_EQ(sums[2], 2 * column + 2);
      EXPECT_EQ(groups.tp->rank(), column);
      EXPECT_EQ(groups.pp->rank(), stage);
    });
  }
  for (auto& thread : threads) thread.join();
}

TEST(StoreTest, WaitsAndCloses) {
  InMemoryStore store;
  std::thread setter([&] {
    std::this_thread::sleep_for(milliseconds(10));
    store.set("a", "1");
  });
  EXPECT_EQ(store.get("a", Deadline::after(std::chrono::seconds(5))), "1");
  setter.join();
  EXPECT_THROW(store.get("b", Deadline::after(milliseconds(1))), CommError);
  store.close("shutting down");
  EXPECT_THROW(store.get("b", Deadline::after(std::chrono::seconds(5))), CommError);
}

}  // namespace
}  // namespace tutti
