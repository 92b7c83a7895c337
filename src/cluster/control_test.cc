// The control port with real sockets: certificates, refusals by token, messages both ways, broken streams.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>

#include <thread>
#include <utility>

#include "base/error.h"
#include "base/queue.h"
#include "cluster/control_client.h"
#include "cluster/control_server.h"
#include "cluster/network.h"

namespace tutti {
namespace {

using std::chrono::seconds;

const ClusterToken& token() {
  static const ClusterToken t = ClusterToken::parse("tutti1-5f0c9be2-c41a77d0e3f25b68c41a77d0e3f25b68");
  return t;
}
const TlsIdentity& identity() {
  static const TlsIdentity i = issue_identity(token());
  return i;
}
const TlsIdentity& stranger() {
  static const TlsIdentity i = issue_identity(ClusterToken::parse("tutti1-5f0c9be2-00000000000000000000000000000000"));
  return i;
}

Deadline soon() { return Deadline::after(seconds(10)); }

int free_port() {
  const Fd socket(::socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address);
  socklen_t size = sizeof address;
  ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &size);
  return ntohs(address.sin_port);
}

// Answers a Hello with a Welcome, echoes frames, notes the end.
class Recorder : public ControlHandler {
 public:
  void on_message(const std::shared_ptr<NodeSession>& session, NodeMessage message) override {
    if (const auto* started = std::get_if<RankStarted>(&message)) throw std::out_of_range(std::to_string(started->rank));
    if (std::holds_alternative<NodeHello>(message)) {
      session->send(Welcome{.cluster_id = token().cluster_id(), .ranks = {1, 2}});
    }
    if (auto* frame = std::get_if<RankFrame>(&message)) session->send(std::move(*frame));
    sessions.push(session);
  }
  void on_gone(const std::shared_ptr<NodeSession>& session) override { gone.push(session); }
  std::string status_json() override { return "{\"state\":\"ready\"}"; }

  Queue<std::shared_ptr<NodeSession>> sessions;
  Queue<std::shared_ptr<NodeSession>> gone;
};

class Control : public ::testing::Test {
 protected:
  Control() : port(free_port()), server(std::make_unique<ControlServer>(port, identity(), handler)) {}

  std::unique_ptr<ControlClient> connect() {
    return std::make_unique<ControlClient>("127.0.0.1", port, identity(), soon(),
                                           ControlClient::Callbacks{[this](HeadMessage m) { received.push(std::move(m)); },
                                                                    [this](std::string why) { ended.push(std::move(why)); }});
  }

  int port;
  Recorder handler;
  std::unique_ptr<ControlServer> server;
  Queue<HeadMessage> received;
  Queue<std::string> ended;
};

TEST_F(Control, TheProbeTellsTheReasons) {
  EXPECT_EQ(probe_head("127.0.0.1", port, identity(), soon()).result, ProbeResult::kOk);
  EXPECT_EQ(probe_head("127.0.0.1", port, stranger(), soon()).result, ProbeResult::kWrongToken);
  const Probe refused = probe_head("127.0.0.1", free_port(), identity(), soon());
  EXPECT_EQ(refused.result, ProbeResult::kRefused);
  EXPECT_THAT(refused.detail, ::testing::HasSubstr("refused"));
}

// A socket that listens, and its port.
std::pair<Fd, int> listener() {
  Fd other(::socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ::bind(other.get(), reinterpret_cast<sockaddr*>(&address), sizeof address);
  ::listen(other.get(), 1);
  socklen_t size = sizeof address;
  ::getsockname(other.get(), reinterpret_cast<sockaddr*>(&address), &size);
  return {std::move(other), ntohs(address.sin_port)};
}

TEST_F(Control, TheProbeKnowsWhenItIsNotTuttiThatListens) {
  const auto [other, at] = listener();
  const Probe probe = probe_head("127.0.0.1", at, identity(), Deadline::after(std::chrono::milliseconds(300)));
  EXPECT_EQ(probe.result, ProbeResult::kNotTutti);
  EXPECT_EQ(probe.detail, "it does not answer");
}

TEST_F(Control, AProbeWhoseConnectionIsClosedDoesNotSayThatItIsAnotherProgram) {
  ::signal(SIGPIPE, SIG_IGN);  // as the program does
  const auto [other, at] = listener();
  for (const bool reads : {true, false}) {  // what was sent and not read makes the end a reset
    std::thread closer([&, fd = other.get()] {
      const Fd connection(::accept(fd, nullptr, nullptr));
      char bytes[4096];
      if (reads) {
        EXPECT_GT(::recv(connection.get(), bytes, sizeof bytes, 0), 0);
      }
    });
    const Probe probe = probe_head("127.0.0.1", at, identity(), soon());
    closer.join();
    EXPECT_EQ(probe.result, ProbeResult::kRefused) << reads;
    EXPECT_THAT(probe.detail, ::testing::HasSubstr("closed the connection")) << reads;
  }
}

TEST_F(Control, AStrangerGetsNoConnection) {
  EXPECT_THROW(fetch_status("127.0.0.1", port, stranger(), Deadline::after(seconds(1))), CommError);
  EXPECT_EQ(fetch_status("127.0.0.1", port, identity(), soon()), "{\"state\":\"ready\"}");
}

TEST_F(Control, MessagesArriveBothWaysAndLargeOnesToo) {
  const auto client = connect();
  ASSERT_TRUE(client->send(NodeHello{.name = "node2"}));
  const auto welcome = received.pop(soon());
  ASSERT_TRUE(welcome.has_value());
  EXPECT_THAT(std::get<Welcome>(*welcome).ranks, ::testing::ElementsAre(1, 2));

  const std::string payload(8u << 20, 'x');  // beyond gRPC's default of 4 MB
  ASSERT_TRUE(client->send(RankFrame{3, 1, Frame{FrameType::kOutput, payload}}));
  const auto echo = received.pop(soon());
  ASSERT_TRUE(echo.has_value());
  const RankFrame& frame = std::get<RankFrame>(*echo);
  EXPECT_EQ(frame.epoch, 3);
  EXPECT_EQ(frame.rank, 1);
  EXPECT_EQ(frame.frame.type, FrameType::kOutput);
  EXPECT_EQ(frame.frame.payload.size(), payload.size());
}

TEST_F(Control, EachSideNoticesTheEndOfTheOther) {
  auto client = connect();
  client->send(NodeHello{});
  ASSERT_TRUE(received.pop(soon()));
  client.reset();
  EXPECT_TRUE(handler.gone.pop(soon()).has_value());

  client = connect();
  client->send(NodeHello{});
  ASSERT_TRUE(received.pop(soon()));
  handler.sessions.pop(soon());
  const auto session = handler.sessions.pop(soon());
  ASSERT_TRUE(session.has_value());
  (*session)->end();
  EXPECT_TRUE(handler.gone.pop(soon()).has_value());
  while (auto why = ended.pop(Deadline::after(seconds(1)))) EXPECT_FALSE(why->empty());
  EXPECT_FALSE((*session)->send(HeadHeartbeat{}));
}

TEST_F(Control, AMessageThatCannotBeTakenEndsItsSessionInOrder) {
  const auto client = connect();
  client->send(NodeHello{});
  ASSERT_TRUE(received.pop(soon()));
  const auto session = handler.sessions.pop(soon());
  ASSERT_TRUE(session.has_value());
  client->send(RankStarted{1, 77, 1});  // no such rank
  EXPECT_TRUE(handler.gone.pop(soon()).has_value());
  EXPECT_TRUE(ended.pop(soon()).has_value());
  EXPECT_FALSE((*session)->send(HeadHeartbeat{}));
}

TEST_F(Control, ATakenPortIsAConfigError) {
  EXPECT_THROW(ControlServer(port, identity(), handler), ConfigError);
  EXPECT_FALSE(port_is_free("127.0.0.1", port));
  EXPECT_TRUE(port_is_free("127.0.0.1", free_port()));
}

}  // namespace
}  // namespace tutti
