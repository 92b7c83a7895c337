#include "comm/tcp_handshake.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/tcp.h>

#include "base/error.h"
#include "comm/tcp_socket.h"

namespace tutti {
namespace {

constexpr const char* kSecret = "the cluster's secret";

class Handshake : public testing::Test {
 protected:
  Handshake() {
    expected_.epoch = 7;
    expected_.to = 1;
    expected_.size = 4;
    expected_.group = {'w', 'o', 'r', 'l', 'd'};
    hello_ = expected_;
    hello_.from = 3;
    hello_.nonce = random_nonce();
  }
  // What the acceptor says once the connector has signed what it says.
  TcpVerdict verdict(const std::string& secret = kSecret) {
    hello_.tag = connector_tag(secret, hello_, challenge_);
    return judge(hello_, expected_, kSecret, challenge_);
  }

  const Nonce challenge_ = random_nonce();
  TcpHello expected_;
  TcpHello hello_;
};

TEST_F(Handshake, RankIsWelcome) { EXPECT_EQ(verdict(), TcpVerdict::kWelcome); }

TEST_F(Handshake, StrangersAreRefused) {
  EXPECT_EQ(verdict("another secret"), TcpVerdict::kSecret);
  EXPECT_EQ(verdict(""), TcpVerdict::kSecret);
  hello_.version = kTcpVersion + 1;
  EXPECT_EQ(verdict(), TcpVerdict::kVersion);
}

TEST_F(Handshake, RecordedHelloIsOfNoUse) {
  ASSERT_EQ(verdict(), TcpVerdict::kWelcome);
  EXPECT_EQ(judge(hello_, expected_, kSecret, random_nonce()), TcpVerdict::kSecret);
}

// Whatever is changed on the way shows.
TEST_F(Handshake, EveryFieldIsSigned) {
  ASSERT_EQ(verdict(), TcpVerdict::kWelcome);
  for (size_t i = sizeof(uint32_t) * 2; i < offsetof(TcpHello, tag); ++i) {
    TcpHello changed = hello_;
    reinterpret_cast<unsigned char*>(&changed)[i] ^= 1;
    EXPECT_EQ(judge(changed, expected_, kSecret, challenge_), TcpVerdict::kSecret) << "byte " << i;
  }
}

TEST_F(Handshake, WrongGroupEpochOrRank) {
  hello_.group[0] = 'x';
  EXPECT_EQ(verdict(), TcpVerdict::kGroup);
  hello_ = expected_;
  hello_.from = 3;
  hello_.epoch = 6;
  EXPECT_EQ(verdict(), TcpVerdict::kEpoch);
  EXPECT_EQ(verdict_text(TcpVerdict::kEpoch, hello_, 7, kTcpVersion),
            "epoch 6 is over, the group is at epoch 7");
  for (const int from : {-1, 0, 1, 4, 1000}) {
    hello_ = expected_;
    hello_.from = from;
    EXPECT_EQ(verdict(), TcpVerdict::kRank) << from;
  }
  hello_.from = 3;
  hello_.size = 5;
  EXPECT_EQ(verdict(), TcpVerdict::kRank);
}

// Else each side could answer with what the other sent.
TEST_F(Handshake, TheSidesSignDifferently) {
  EXPECT_FALSE(equal_tags(connector_tag(kSecret, hello_, challenge_),
                          acceptor_tag(kSecret, hello_, challenge_)));
}

TEST(SocketAddressTest, Parses) {
  EXPECT_EQ(SocketAddress::parse_with_port("10.0.0.1:23000")->text(), "10.0.0.1:23000");
  EXPECT_EQ(SocketAddress::parse_with_port("[::1]:23000")->text(), "[::1]:23000");
  EXPECT_EQ(SocketAddress::parse_with_port("[::1]:23000")->host(), "::1");
  for (const char* wrong : {"", "10.0.0.1", "10.0.0.1:", "10.0.0.1:0", "10.0.0.1:65536",
                            "10.0.0.1:1x", "host.example:1"}) {
    EXPECT_FALSE(SocketAddress::parse_with_port(wrong)) << wrong;
  }
}

std::string congestion_control(int socket) {
  char name[16] = "";
  socklen_t length = sizeof name;
  EXPECT_EQ(::getsockopt(socket, IPPROTO_TCP, TCP_CONGESTION, name, &length), 0);
  return {name, strnlen(name, length)};
}

TEST(SocketTest, IsNotPacedByBbr) {
  for (const std::string chosen : {"", "reno", "bbr"}) {
    const Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
    // Not every system has, or allows, bbr: its default is looked at then.
    if (!chosen.empty()) ::setsockopt(socket.get(), IPPROTO_TCP, TCP_CONGESTION, chosen.data(), static_cast<socklen_t>(chosen.size()));
    const std::string before = congestion_control(socket.get());
    tune_socket(socket.get());
    const std::string after = congestion_control(socket.get());
    if (before == "bbr") {
      EXPECT_THAT(after, testing::AnyOf("cubic", "reno"));
    } else {
      EXPECT_EQ(after, before);
    }
  }
}

TEST(ListenTest, TakesTheNextFreePortOfTheRange) {
  const Fd first = listen_on("127.0.0.1", 0, 0, 1);
  const std::string text = SocketAddress::local_of(first.get()).text();
  const int taken = std::stoi(text.substr(text.rfind(':') + 1));
  if (taken == 65535) GTEST_SKIP() << "no port above";
  const Fd second = listen_on("127.0.0.1", taken, std::min(65535, taken + 20), 1);
  EXPECT_NE(SocketAddress::local_of(second.get()).text(), text);
  try {
    listen_on("127.0.0.1", taken, taken, 1);
    ADD_FAILURE();
  } catch (const CommError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("no free port on 127.0.0.1"));
  }
}

TEST(InterfaceTest, LoopbackIsThereAndOthersAreNamed) {
  EXPECT_EQ(interface_address("lo"), "127.0.0.1");
  try {
    interface_address("no-such-interface");
    ADD_FAILURE();
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("lo (127.0.0.1)"));
  }
}

}  // namespace
}  // namespace tutti
