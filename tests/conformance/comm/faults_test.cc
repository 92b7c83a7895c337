// What a rank says when another one dies, stops, leaves or is cut off. Every wait ends in time, and
// the message names the rank, the call and the way it failed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/format.h>
#include <sched.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <thread>

#include "comm/ucx_wire.h"
#include "rank_processes.h"

namespace tutti {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::AllOf;
using testing::AnyOf;
using testing::ContainsRegex;
using testing::HasSubstr;

struct Way {
  const char* name;
  TransportKind kind;
  std::vector<std::string> nodes;
  LinkKind link = LinkKind::kTcp;
};

class Faults : public testing::TestWithParam<Way> {
 protected:
  void SetUp() override {
    if (GetParam().link != LinkKind::kUcx || has_ucx()) return;
    ASSERT_FALSE(in_ci()) << kNoUcx;
    GTEST_SKIP() << kNoUcx;
  }

  static constexpr int kSize = 3;

  CommOptions options(milliseconds timeout) const {
    CommOptions options;
    options.transport = GetParam().kind;
    options.nodes = GetParam().nodes;
    options.link = GetParam().link;
    options.labels = {"rank 0 (node1 cpu 0)", "rank 1 (node1 cpu 1)", "rank 2 (node2 cpu 0)"};
    options.timeout = timeout;
    options.secret = "faults";
    return options;
  }
};

// All-reduces for ever; ready once the first is done.
std::string reduce_for_ever(Communicator& comm, Store& store, int64_t count) {
  std::vector<float> data(static_cast<size_t>(count));
  comm.all_reduce(data.data(), count, DType::kF32);
  mark_ready(store, comm.rank());
  for (;;) {
    comm.all_reduce(data.data(), count, DType::kF32);
    for (float& x : data) x = 1;
  }
}

RankProcesses::Body reducing(int size, const CommOptions& options, int64_t count) {
  return with_communicator(size, options, [=](Communicator& comm, Store& store) {
    return reduce_for_ever(comm, store, count);
  });
}

TEST_P(Faults, KilledRankIsNamedAtOnce) {
  for (const int victim : {0, 2}) {
    RankProcesses ranks(kSize, reducing(kSize, options(seconds(10)), 2048));
    for (int r = 0; r < kSize; ++r) ranks.wait_ready(r);
    std::this_thread::sleep_for(milliseconds(20));
    ranks.signal(victim, SIGKILL);
    const auto results = ranks.wait(seconds(10));
    for (int r = 0; r < kSize; ++r) {
      if (r == victim) continue;
      const RankResult& result = results[static_cast<size_t>(r)];
      EXPECT_THAT(result.error,
                  AllOf(HasSubstr(fmt::format("rank {} (", victim)), HasSubstr("in all-reduce "),
                        AnyOf(HasSubstr("process ended"), HasSubstr("left the group"))));
      EXPECT_LT(result.seconds, 1.0);
    }
  }
}

TEST_P(Faults, KilledInMidMessage) {
  RankProcesses ranks(kSize, reducing(kSize, options(seconds(10)), 8'000'000));
  for (int r = 0; r < kSize; ++r) ranks.wait_ready(r);
  std::this_thread::sleep_for(milliseconds(35));
  ranks.signal(1, SIGKILL);
  const auto results = ranks.wait(seconds(10));
  for (const size_t r : {0, 2}) {
    EXPECT_THAT(results[r].error, AllOf(HasSubstr("rank 1 ("), HasSubstr("in all-reduce ")));
    EXPECT_LT(results[r].seconds, 1.5);
  }
}

TEST_P(Faults, StoppedRankIsToldFromADeadOne) {
  RankProcesses ranks(kSize, reducing(kSize, options(milliseconds(1200)), 2048));
  for (int r = 0; r < kSize; ++r) ranks.wait_ready(r);
  ranks.signal(2, SIGSTOP);
  std::this_thread::sleep_for(milliseconds(2500));
  ranks.signal(2, SIGCONT);
  const auto results = ranks.wait(seconds(10));
  for (const size_t r : {0, 1}) {
    EXPECT_THAT(results[r].error,
                AllOf(HasSubstr("rank 2 ("), HasSubstr("late"), HasSubstr("stopped or busy")));
  }
  // It finds itself out of the group.
  EXPECT_FALSE(results[2].error.empty());
  EXPECT_NE(results[2].error, "still running");
}

TEST_P(Faults, SlowRankIsWaitedFor) {
  RankProcesses ranks(kSize,
                      with_communicator(kSize, options(seconds(3)), [](Communicator& comm, Store&) {
                        int32_t sum = 0;
                        for (int i = 0; i < 4; ++i) {
                          if (comm.rank() == 1) std::this_thread::sleep_for(milliseconds(200));
                          int32_t one = 1;
                          comm.all_reduce(&one, 1, DType::kI32);
                          sum += one;
                        }
                        return std::to_string(sum);
                      }));
  for (const RankResult& result : ranks.wait(seconds(10)))
    EXPECT_EQ(result.report, "12") << result.error;
}

TEST_P(Faults, LeavingIsToldFromDying) {
  RankProcesses ranks(kSize,
                      with_communicator(kSize, options(seconds(5)), [](Communicator& comm, Store&) {
                        comm.barrier();
                        if (comm.rank() == 2) return std::string("left");
                        int32_t one = 1;
                        comm.all_reduce(&one, 1, DType::kI32);
                        return std::string("cannot be");
                      }));
  const auto results = ranks.wait(seconds(10));
  EXPECT_EQ(results[2].report, "left");
  for (const size_t r : {0, 1}) {
    EXPECT_THAT(results[r].error, AllOf(HasSubstr("rank 2 ("), HasSubstr("left the group")));
    EXPECT_LT(results[r].seconds, 2.0);
  }
}

// A message between two ranks: a third one's death ends it as well.
class FaultsOfOneTransport : public Faults {};

TEST_P(FaultsOfOneTransport, ThirdRankDiesDuringAMessage) {
  RankProcesses ranks(
      kSize, with_communicator(kSize, options(seconds(8)), [](Communicator& comm, Store& store) {
        comm.barrier();
        mark_ready(store, comm.rank());
        char byte = 0;
        if (comm.rank() == 0) comm.recv(&byte, 1, 1);
        std::this_thread::sleep_for(seconds(2));
        return std::string("done");
      }));
  for (int r = 0; r < kSize; ++r) ranks.wait_ready(r);
  std::this_thread::sleep_for(milliseconds(50));
  ranks.signal(2, SIGKILL);
  const auto results = ranks.wait(seconds(10));
  EXPECT_THAT(results[0].error, AllOf(HasSubstr("rank 2 ("), HasSubstr("in recv 2")));
  EXPECT_LT(results[0].seconds, 1.0);
}

const Way kShm{"shm", TransportKind::kShm, {}};
const Way kTcp{"tcp", TransportKind::kTcp, {}};
const Way kHierarchical{"hierarchical", TransportKind::kAuto, {"node1", "node1", "node2"}};
const Way kUcx{"ucx", TransportKind::kTcp, {}, LinkKind::kUcx};
std::string name_of(const testing::TestParamInfo<Way>& info) { return info.param.name; }

INSTANTIATE_TEST_SUITE_P(Ways, Faults, testing::Values(kShm, kTcp, kHierarchical, kUcx), name_of);
INSTANTIATE_TEST_SUITE_P(Ways, FaultsOfOneTransport, testing::Values(kShm, kTcp), name_of);

// --------------------------------------------------------------------------------------------- TCP
// alone

void shut_down_all_tcp() {
  for (int fd = 3; fd < 256; ++fd) {
    int domain = 0;
    socklen_t length = sizeof domain;
    if (::getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &length) == 0 && domain == AF_INET)
      ::shutdown(fd, SHUT_RDWR);
  }
}

// The process lives on, as when a firewall resets its connections.
TEST(TcpFaults, ConnectionCutInMidMessage) {
  CommOptions options;
  options.transport = TransportKind::kTcp;
  options.labels = {"rank 0 (node1)", "rank 1 (node2)"};
  RankProcesses ranks(2, with_communicator(2, options, [](Communicator& comm, Store& store) {
                        comm.barrier();
                        std::thread cutter([&] {
                          if (comm.rank() != 1) return;
                          std::this_thread::sleep_for(milliseconds(60));
                          shut_down_all_tcp();
                        });
                        std::string error;
                        try {
                          reduce_for_ever(comm, store, 16'000'000);
                        } catch (const std::exception& e) {
                          error = e.what();
                        }
                        cutter.join();
                        return error;
                      }));
  const auto results = ranks.wait(seconds(10));
  EXPECT_THAT(results[0].report,
              AllOf(HasSubstr("rank 1 (node2): connection "),
                    ContainsRegex("in all-reduce [0-9]+ over tcp 127.0.0.1 - 127.0.0.1")));  // fast machines get past the second
  EXPECT_THAT(results[1].report, HasSubstr("rank 0 (node1): connection "));
  EXPECT_LT(results[0].seconds, 2.0);
}

TEST(TcpFaults, EarlierEpochIsRefused) {
  CommOptions options;
  options.transport = TransportKind::kTcp;
  options.size = 2;
  options.setup_timeout = milliseconds(800);
  RankProcesses ranks(2, [=](int rank, Store& store) {
    CommOptions own = options;
    own.rank = rank;
    own.epoch = rank == 0 ? 5 : 4;
    if (rank == 1) {  // it finds the new group's address where it looks for the old one
      const std::string address = store.get("comm/world/5/tcp/0", Deadline::after(seconds(5)));
      store.set("comm/world/4/tcp/0", address);
    }
    make_communicator(own, store);
    return std::string("joined");
  });
  const auto results = ranks.wait(seconds(10));
  EXPECT_THAT(results[1].error, HasSubstr("epoch 4 is over, the group is at epoch 5"));
  EXPECT_THAT(results[0].error, HasSubstr("rank 1: did not connect"));
}

TEST(TcpFaults, StrangersHoldUpNobody) {
  CommOptions options;
  options.transport = TransportKind::kTcp;
  RankProcesses ranks(2, [=](int rank, Store& store) {
    std::vector<std::thread> strangers;
    if (rank == 1) {
      const std::string address = store.get("comm/world/0/tcp/0", Deadline::after(seconds(5)));
      // Silent ones, a talkative one and one that hangs up; bash has sockets.
      const std::string device = "/dev/tcp/127.0.0.1/" + address.substr(address.rfind(':') + 1);
      for (const char* act : {"sleep 2", "head -c 4000 /dev/urandom >&3; sleep 1", "exit"}) {
        strangers.emplace_back([=] {
          const int rc =
              std::system(fmt::format("bash -c 'exec 3<>{}; {}' 2>/dev/null", device, act).c_str());
          (void)rc;
        });
      }
      std::this_thread::sleep_for(milliseconds(300));
    }
    CommOptions own = options;
    own.rank = rank;
    own.size = 2;
    const auto comm = make_communicator(own, store);
    comm->barrier();
    for (auto& stranger : strangers) stranger.join();
    return std::string("joined");
  });
  for (const RankResult& result : ranks.wait(seconds(10)))
    EXPECT_EQ(result.report, "joined") << result.error;
}

bool shell(const std::string& command) {
  return std::system((command + " >/dev/null 2>&1").c_str()) == 0;
}

// Two network namespaces joined by a veth pair, one rank in each; then the cable is pulled.
TEST(TcpFaults, CutLinkIsToldFromAStoppedProcess) {
  const bool must_run = in_ci();
  if (::geteuid() != 0 && !must_run) GTEST_SKIP() << "network namespaces need root";
  CommOptions options;
  options.transport = TransportKind::kTcp;
  options.timeout = seconds(4);
  options.labels = {"rank 0 (node1)", "rank 1 (node2)"};
  RankProcesses ranks(2, [=](int rank, Store& store) {
    if (::unshare(CLONE_NEWNET) != 0) return std::string("no namespaces");
    mark_ready(store, 10 + rank);
    store.get("wired", Deadline::after(seconds(10)));
    CommOptions own = options;
    own.rank = rank;
    own.size = 2;
    own.bind_address = fmt::format("10.77.0.{}", rank + 1);
    const auto comm = make_communicator(own, store);
    return reduce_for_ever(*comm, store, 2048);
  });
  for (int r = 0; r < 2; ++r) ranks.wait_ready(10 + r);
  const auto in = [&](int rank, const std::string& command) {
    return shell(fmt::format("nsenter -t {} -n {}", ranks.pid(rank), command));
  };
  bool wired = shell(fmt::format("ip link add tt0 netns {} type veth peer name tt1 netns {}",
                                 ranks.pid(0), ranks.pid(1)));
  for (int r = 0; r < 2; ++r) {
    wired = wired && in(r, fmt::format("ip addr add 10.77.0.{}/24 dev tt{}", r + 1, r)) &&
            in(r, fmt::format("ip link set tt{} up", r));
  }
  if (!wired && !must_run) GTEST_SKIP() << "no veth pairs on this machine";
  ASSERT_TRUE(wired) << "no veth pairs on this machine";
  ranks.store().set("wired", "1");
  for (int r = 0; r < 2; ++r) ranks.wait_ready(r);
  ASSERT_TRUE(in(1, "ip link set tt1 down"));
  const auto results = ranks.wait(seconds(15));
  EXPECT_THAT(results[0].error,
              AllOf(HasSubstr("rank 1 (node2): "), HasSubstr("over tcp 10.77.0.1 - 10.77.0.2"),
                    HasSubstr("link")));
  EXPECT_THAT(results[1].error, AllOf(HasSubstr("rank 0 (node1): "), HasSubstr("link")));
  for (const RankResult& result : results) EXPECT_LT(result.seconds, 6.0);
}

TEST(ShmFaults, NothingIsLeftBehind) {
  const auto names = [] {
    std::string text;
    for (const char* command : {"ls /dev/shm", "grep -c tutti- /proc/net/unix"}) {
      FILE* pipe = ::popen(command, "r");
      char buffer[4096];
      while (size_t n = ::fread(buffer, 1, sizeof buffer, pipe)) text.append(buffer, n);
      ::pclose(pipe);
    }
    return text;
  };
  const std::string before = names();
  {
    RankProcesses ranks(2, reducing(2, CommOptions{.transport = TransportKind::kShm}, 2048));
    for (int r = 0; r < 2; ++r) ranks.wait_ready(r);
    ranks.signal(0, SIGKILL);
    ranks.signal(1, SIGKILL);
    ranks.wait(seconds(5));
  }
  EXPECT_EQ(names(), before);
}

}  // namespace
}  // namespace tutti
