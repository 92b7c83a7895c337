// The head with a node that comes and goes, over real sockets: what its callers may rely on.
#include "cluster/head.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <future>
#include <string_view>
#include <thread>

#include "base/error.h"
#include "base/queue.h"
#include "cluster/control_client.h"

namespace tutti {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

Deadline soon() { return Deadline::after(seconds(10)); }

const ClusterToken& token() {
  static const ClusterToken t = ClusterToken::parse("tutti1-5f0c9be2-c41a77d0e3f25b68c41a77d0e3f25b68");
  return t;
}
const TlsIdentity& identity() {
  static const TlsIdentity i = issue_identity(token());
  return i;
}

constexpr auto kRankSleep = seconds(4);

// The head starts its ranks as this program: they do not run the tests again, they do not even read.
[[gnu::constructor]] void be_a_rank(int argc, char** argv) {
  if (argc < 2 || std::string_view(argv[1]) != "rank") return;
  std::this_thread::sleep_for(kRankSleep);
  ::_exit(0);
}

// A head for two ranks on two nodes, on whatever port is free.
class HeadTest : public ::testing::Test {
 protected:
  HeadTest() {
    HeadOptions options;
    options.engine.parallel.tensor_parallel_size = 2;
    options.num_nodes = 2;
    options.shutdown_timeout_s = 600;
    open(options);
  }

  void open(HeadOptions options) {
    head.reset();
    for (options.control_port = 30100 + static_cast<int>(::getpid() % 20000); head == nullptr; ++options.control_port) {
      auto candidate = std::make_unique<Head>(options);
      try {
        candidate->listen(token(), identity());
      } catch (const ConfigError&) {
        continue;
      }
      head = std::move(candidate);
      port = options.control_port;
    }
  }

  std::unique_ptr<ControlClient> join() {
    auto node = std::make_unique<ControlClient>("127.0.0.1", port, identity(), soon(),
                                                ControlClient::Callbacks{[this](HeadMessage m) { received.push(std::move(m)); },
                                                                         [](const std::string&) {}});
    NodeHello hello{.name = "other", .address = "127.0.0.2", .machine = head->self().hello.machine, .facts = comparable_facts()};
    node->send(hello);
    return node;
  }

  // The ranks, with that of `node`.
  std::shared_ptr<RankGroup> start_with(const std::unique_ptr<ControlClient>& node) {
    node->send(NodeModelFiles{});
    EXPECT_TRUE(head->wait_for_nodes(soon(), "--x", [] { return false; }));
    return head->start_ranks();
  }

  static bool fails(const RankGroup& group, milliseconds within) {
    for (const Deadline deadline = Deadline::after(within); !deadline.passed(); std::this_thread::sleep_for(milliseconds(10))) {
      if (group.failure()) return true;
    }
    return false;
  }

  Queue<HeadMessage> received;
  std::unique_ptr<Head> head;
  int port = 0;
};

TEST_F(HeadTest, RanksStartOnNodesThatHavePassedTheirChecksOnly) {
  const auto start = [&] { head->start_ranks(); };
  EXPECT_THAT(start, ThrowsMessage<CommError>(HasSubstr("a node has left")));
  auto node = join();
  const auto welcome = received.pop(soon());
  ASSERT_TRUE(welcome && std::holds_alternative<Welcome>(*welcome));
  EXPECT_EQ(std::get<Welcome>(*welcome).shutdown_timeout_s, 600);  // it waits for running requests as long as the head
  // It has its rank, but nobody knows yet whether it has the same model.
  EXPECT_FALSE(head->needs_other_nodes());
  EXPECT_THAT(start, ThrowsMessage<CommError>(HasSubstr("has not shown its model files")));
  const auto wait = [&] { head->wait_for_nodes(Deadline::after(milliseconds(300)), "--x", [] { return false; }); };
  EXPECT_THAT(wait, ThrowsMessage<JoinError>(HasSubstr("other has not shown its model files")));
  node->send(NodeModelFiles{});
  EXPECT_TRUE(head->wait_for_nodes(soon(), "--x", [] { return false; }));
}

// A rank that does not read keeps the head at starting it; whoever asks meanwhile is answered.
TEST_F(HeadTest, NobodyWaitsForRanksThatStart) {
  HeadOptions options;
  options.engine.model_path.assign(1 << 20, 'x');  // the rank's configuration is more than a socket holds
  open(options);
  std::atomic<bool> started{false};
  std::jthread starter([&] {
    EXPECT_THAT([&] { head->start_ranks(); }, ThrowsMessage<CommError>(HasSubstr("the other process is gone")));
    started = true;
  });
  while (!started && fetch_status("127.0.0.1", port, identity(), Deadline::after(kRankSleep / 2)).find("\"epoch\":1") == std::string::npos) {
  }
  EXPECT_FALSE(started);
}

// The route decides, not the address that the head goes by.
TEST_F(HeadTest, ALostNodeNamesTheLinkThatWasUsed) {
  const auto group = start_with(join());
  // The node has left with its client.
  EXPECT_TRUE(fails(*group, seconds(10)));
  EXPECT_THAT(group->failure()->message, HasSubstr("; link lo from 127.0.0.1 to 127.0.0.2"));
}

TEST_F(HeadTest, ANodeThatMayNotStayUntilTheEndIsLostAtOnce) {
  for (const bool stays : {false, true}) {
    head->on_leaving([&](const std::string&) { return stays; });
    auto node = join();
    const auto group = start_with(node);
    node->send(Leaving{"its worker was asked to end"});
    EXPECT_EQ(fails(*group, stays ? seconds(1) : seconds(10)), !stays);
    if (!stays) {
      EXPECT_THAT(group->failure()->message, EndsWith("is lost: its worker was asked to end"));
    }
    head->stop_ranks("the test goes on", false, milliseconds(0));
  }
}

// Whoever takes the source back may destroy what it looks at.
TEST_F(HeadTest, NobodyAsksAStatusSourceThatWasTakenBack) {
  std::promise<void> asked;
  std::atomic<bool> answered{false};
  head->set_status_source([&] {
    asked.set_value();
    std::this_thread::sleep_for(milliseconds(200));
    answered = true;
    return Json{{"state", "ready"}};
  });
  std::string report;
  std::thread client([&] { report = fetch_status("127.0.0.1", port, identity(), soon()); });
  asked.get_future().wait();
  head->set_status_source({});
  EXPECT_TRUE(answered);
  client.join();
  EXPECT_THAT(report, HasSubstr("\"state\":\"ready\""));
  EXPECT_THAT(fetch_status("127.0.0.1", port, identity(), soon()), Not(HasSubstr("\"state\":\"ready\"")));
}

}  // namespace
}  // namespace tutti
