#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "base/error.h"
#include "comm/comm_factory.h"
#include "comm/group_communicator.h"
#include "comm/nccl/fake_nccl.h"
#include "comm/nccl/nccl_environment.h"
#include "comm/nccl/nccl_transport.h"

namespace tutti {
namespace {

using nccl::FakeFaults;
using testing::AllOf;
using testing::HasSubstr;
using Clocked = std::chrono::duration<double>;

struct Rank {
  Communicator& comm;
  nccl::FakeStream& stream;
  int rank;
  int size;
};

struct Outcome {
  std::vector<std::string> errors;
  std::vector<int> peers;
  double seconds = 0;
};

// Runs `body` on the ranks of a group over the fake library, each a thread with a stream.
Outcome run_ranks(int size, const FakeFaults& faults, std::chrono::milliseconds timeout, const std::function<void(Rank)>& body) {
  const nccl::Api& api = nccl::fake_library(faults);
  InMemoryStore store;
  Outcome outcome;
  outcome.errors.resize(static_cast<size_t>(size));
  outcome.peers.assign(static_cast<size_t>(size), -1);
  const auto start = Clock::now();
  const auto run = [&](int rank) {
    const auto index = static_cast<size_t>(rank);
    try {
      CommOptions options;
      options.rank = rank;
      options.size = size;
      options.transport = TransportKind::kInProcess;
      options.timeout = std::chrono::seconds(2);
      const auto control = make_communicator(options, store);
      CommGroup group{rank, size, {}, "tp", 0, {}};
      for (int r = 0; r < size; ++r) group.labels.push_back("rank " + std::to_string(r) + " (node gpu)");
      nccl::FakeStream stream;
      int32_t scratch = 0;
      GroupCommunicator comm(
          group, std::make_unique<NcclTransport>(group, api, stream, *control, &scratch, Deadline::after(timeout)),
          {timeout, /*check_sequence=*/false});
      body({comm, stream, rank, size});
    } catch (const CommError& error) {
      outcome.errors[index] = error.what();
      outcome.peers[index] = error.peer();
    } catch (const std::exception& error) {
      outcome.errors[index] = error.what();
    }
  };
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) threads.emplace_back(run, rank);
  for (std::thread& thread : threads) thread.join();
  outcome.seconds = Clocked(Clock::now() - start).count();
  return outcome;
}

constexpr auto kSoon = std::chrono::milliseconds(400);
constexpr auto kLong = std::chrono::seconds(10);

TEST(Nccl, EveryCollectiveRunsOnTheStream) {
  for (const int size : {2, 3}) {
    const Outcome outcome = run_ranks(size, {.delay = std::chrono::milliseconds(2)}, kLong, [](Rank r) {
      const auto n = static_cast<size_t>(r.size);
      std::vector<float> sum(100, static_cast<float>(r.rank + 1)), parts(n * 3), mine(3);
      std::vector<int32_t> gathered(n, -1), out(n), in(n, -1);
      for (size_t i = 0; i < parts.size(); ++i) parts[i] = static_cast<float>(i * static_cast<size_t>(r.rank + 1));
      for (size_t i = 0; i < n; ++i) out[i] = 10 * r.rank + static_cast<int>(i);
      const int32_t own = 7 + r.rank;
      std::vector<int64_t> told(4, r.rank == 1 ? 99 : 0);
      r.comm.all_reduce(sum.data(), 100, DType::kF32);
      r.comm.all_gather(&own, gathered.data(), sizeof own);
      r.comm.reduce_scatter(parts.data(), mine.data(), 3, DType::kF32);
      r.comm.broadcast(told.data(), 32, 1);
      r.comm.all_to_all(out.data(), in.data(), sizeof(int32_t));
      int32_t letter = r.rank == 0 ? 1234 : 0;
      if (r.rank == 0) r.comm.send(&letter, sizeof letter, 1);
      if (r.rank == 1) r.comm.recv(&letter, sizeof letter, 0);
      r.comm.barrier();
      r.comm.finish();
      const int ranks_sum = r.size * (r.size + 1) / 2;
      EXPECT_THAT(sum, testing::Each(static_cast<float>(ranks_sum)));
      EXPECT_THAT(told, testing::Each(99));
      for (int i = 0; i < r.size; ++i) {
        EXPECT_EQ(gathered[static_cast<size_t>(i)], 7 + i);
        EXPECT_EQ(in[static_cast<size_t>(i)], 10 * i + r.rank);
      }
      for (int i = 0; i < 3; ++i) EXPECT_EQ(mine[static_cast<size_t>(i)], static_cast<float>((3 * r.rank + i) * ranks_sum));
      EXPECT_TRUE(r.rank >= 2 || letter == 1234);
      EXPECT_EQ(r.comm.transport(), "nccl");
    });
    EXPECT_THAT(outcome.errors, testing::Each("")) << size << " ranks";
    EXPECT_EQ(nccl::fake_comms_alive(), 0);
  }
}

TEST(Nccl, ARankThatNeverConnectsIsNamed) {
  // Rank 1 does not even come to the control group's call: it is late on its own thread.
  const Outcome outcome = run_ranks(2, {.never_connect = {0, 1}}, kSoon, [](Rank) {});
  for (const std::string& error : outcome.errors) {
    EXPECT_THAT(error, AllOf(HasSubstr("NCCL has not connected group tp within"), HasSubstr("link between them has failed")));
  }
  EXPECT_LT(outcome.seconds, 5);
  EXPECT_EQ(nccl::fake_comms_alive(), 0);
}

TEST(Nccl, ARefusedConnectionSaysWhatNcclSays) {
  const Outcome outcome = run_ranks(2, {.refuse_connection = {1}}, kSoon, [](Rank r) { r.comm.finish(); });
  EXPECT_THAT(outcome.errors[1], AllOf(HasSubstr("rank 1 (node gpu): NCCL cannot connect group tp: internal error"),
                                       HasSubstr("the fake's last words"), HasSubstr("NCCL_DEBUG")));
}

TEST(Nccl, NoIdEndsAllRanks) {
  const Outcome outcome = run_ranks(3, {.no_id = true}, kSoon, [](Rank) {});
  EXPECT_THAT(outcome.errors, testing::Each(HasSubstr("rank 0 (node gpu): NCCL gives no id for group tp: unhandled system error")));
}

TEST(Nccl, ALateRankIsNamedByFinish) {
  std::atomic<bool> rank_0_has_given_up{false};
  const Outcome outcome = run_ranks(2, {}, kSoon, [&](Rank r) {
    std::vector<float> data(8, 1.0f);
    r.comm.all_reduce(data.data(), 8, DType::kF32);
    r.comm.finish();
    if (r.rank == 1) {  // late with its second all-reduce
      while (!rank_0_has_given_up) std::this_thread::sleep_for(std::chrono::milliseconds(5));
      return;
    }
    const struct Given {
      std::atomic<bool>& flag;
      ~Given() { flag = true; }
    } given{rank_0_has_given_up};
    r.comm.all_reduce(data.data(), 8, DType::kF32);
    try {
      r.comm.finish();
    } catch (const CommError&) {
      EXPECT_THROW(r.comm.all_reduce(data.data(), 8, DType::kF32), CommError);  // broken for good
      throw;
    }
  });
  EXPECT_THAT(outcome.errors[0], AllOf(HasSubstr("2 over NCCL in group tp has not ended after"), HasSubstr("rank 1")));
  EXPECT_EQ(outcome.peers[0], 1);
  EXPECT_EQ(outcome.errors[1], "");
  EXPECT_LT(outcome.seconds, 5);
  EXPECT_EQ(nccl::fake_comms_alive(), 0);
}

TEST(Nccl, TheWatchdogFreesAStreamThatNobodyWaitsFor) {
  const Outcome outcome = run_ranks(2, {.hang_from_call = 1}, kSoon, [](Rank r) {
    std::vector<float> data(8, 1.0f);
    r.comm.all_reduce(data.data(), 8, DType::kF32);
    r.comm.all_reduce(data.data(), 8, DType::kF32);
    std::this_thread::sleep_for(std::chrono::seconds(1));
    r.comm.all_reduce(data.data(), 8, DType::kF32);
  });
  EXPECT_THAT(outcome.errors, testing::Each(AllOf(HasSubstr("all-reduce 2 over NCCL in group tp has not ended after 0."),
                                                  HasSubstr("link between them has failed"))));
}

// A replayed graph makes no calls: what is on the stream has its time from watch() on.
TEST(Nccl, WhatIsWatchedHasToEnd) {
  const Outcome outcome = run_ranks(2, {}, kSoon, [](Rank r) {
    std::atomic<bool> end{false};
    const auto start = Clock::now();
    r.stream.push([&] {
      while (!end) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    });
    const struct End {
      std::atomic<bool>& flag;
      nccl::FakeStream& stream;
      ~End() {
        flag = true;
        while (!stream.reached(stream.mark())) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    } ending{end, r.stream};
    r.comm.watch();
    while (Clock::now() - start < std::chrono::seconds(3)) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      r.comm.watch();
    }
  });
  EXPECT_THAT(outcome.errors, testing::Each(HasSubstr("over NCCL in group tp has not ended after 0.")));
  EXPECT_LT(outcome.seconds, 3);
}

TEST(Nccl, AnErrorOfTheLibraryEndsTheCalls) {
  const Outcome outcome = run_ranks(2, {.hang_from_call = 1, .async_error_from_call = 2}, kLong, [](Rank r) {
    std::vector<float> data(8, 1.0f);
    r.comm.all_reduce(data.data(), 8, DType::kF32);
    r.comm.all_reduce(data.data(), 8, DType::kF32);
    r.comm.finish();
  });
  EXPECT_THAT(outcome.errors, testing::Each(HasSubstr("remote process exited or there was a network error")));
  EXPECT_LT(outcome.seconds, 5);
}

TEST(Nccl, AbortFreesAWaitingRank) {
  const Outcome outcome = run_ranks(2, {.hang_from_call = 0}, kLong, [](Rank r) {
    std::vector<float> data(8, 1.0f);
    r.comm.all_reduce(data.data(), 8, DType::kF32);
    std::thread other([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      r.comm.abort("the cluster has ended");
    });
    const struct Join {
      std::thread& thread;
      ~Join() { thread.join(); }
    } join{other};
    r.comm.finish();
  });
  EXPECT_THAT(outcome.errors, testing::Each("the cluster has ended"));
  EXPECT_LT(outcome.seconds, 2);
}

// The host is hundreds of calls ahead for longer than a call may take, and everything moves.
TEST(Nccl, ALongQueueIsNotLate) {
  constexpr int kCalls = 1000;
  constexpr uint64_t kAhead = 200;  // 0.4 s
  const Outcome outcome = run_ranks(2, {.delay = std::chrono::milliseconds(2)}, std::chrono::milliseconds(1500), [](Rank r) {
    std::vector<float> data(kCalls, 1.0f);
    for (int i = 0; i < kCalls; ++i) {
      r.comm.all_reduce(&data[static_cast<size_t>(i)], 1, DType::kF32);
      if (i % 100 == 99) r.comm.watch();
      while (r.stream.ahead() > kAhead) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    r.comm.finish();
    EXPECT_THAT(data, testing::Each(2.0f));
  });
  EXPECT_THAT(outcome.errors, testing::Each(""));
  EXPECT_GT(outcome.seconds, 1.8);  // else nothing could have been late
}

TEST(NcclEnvironment, PeerToPeerIsOffWhenTheUserSaysSo) {
  ::unsetenv("NCCL_P2P_DISABLE");
  EXPECT_FALSE(nccl::p2p_is_off());
  ::setenv("NCCL_P2P_DISABLE", "0", 1);
  EXPECT_FALSE(nccl::p2p_is_off());
  ::setenv("NCCL_P2P_DISABLE", "1", 1);
  EXPECT_TRUE(nccl::p2p_is_off());
  ::unsetenv("NCCL_P2P_DISABLE");
}

TEST(NcclEnvironment, NodesOfOneMachineAreKeptApart) {
  const nccl::Settings none = nccl::settings_for({{"a", "m1"}, {"a", "m1"}}, 0, "eth0");
  EXPECT_TRUE(none.empty());
  const nccl::Settings two_machines = nccl::settings_for({{"a", "m1"}, {"b", "m2"}}, 1, "eth0");
  EXPECT_THAT(two_machines, testing::ElementsAre(testing::Pair("NCCL_HOSTID", "b"), testing::Pair("NCCL_SOCKET_IFNAME", "=eth0")));
  const nccl::Settings namespaces = nccl::settings_for({{"a", "m1"}, {"b", "m1"}}, 0, "");
  EXPECT_THAT(namespaces, testing::ElementsAre(testing::Pair("NCCL_HOSTID", "a"), testing::Pair("NCCL_P2P_DISABLE", "1"),
                                               testing::Pair("NCCL_SHM_DISABLE", "1")));
}

TEST(NcclEnvironment, WhatTheUserHasSetStays) {
  ::setenv("TUTTI_TEST_SETTING", "theirs", 1);
  ::unsetenv("TUTTI_TEST_OTHER");
  EXPECT_EQ(nccl::apply({{"TUTTI_TEST_SETTING", "ours"}, {"TUTTI_TEST_OTHER", "ours"}}), "TUTTI_TEST_OTHER=ours");
  EXPECT_STREQ(std::getenv("TUTTI_TEST_SETTING"), "theirs");
  ::unsetenv("TUTTI_TEST_OTHER");
}

TEST(NcclEnvironment, LoopbackIsNoInterfaceForData) {
  EXPECT_EQ(nccl::interface_of("127.0.0.1"), "");
  EXPECT_EQ(nccl::interface_of("not an address"), "");
}

}  // namespace
}  // namespace tutti
