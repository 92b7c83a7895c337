#include "protocol/channel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <thread>

#include "base/error.h"

namespace tutti {
namespace {

using std::chrono::milliseconds;

Deadline soon() { return Deadline::after(std::chrono::seconds(5)); }

TEST(FrameChannel, CarriesFramesInOrderAndInAnySize) {
  const auto [a, b] = make_socket_pair();
  FrameChannel left(a);
  FrameChannel right(b);
  const std::string large(3u << 20, 'x');  // far beyond the socket's buffer
  std::thread sender([&] {
    left.send(FrameType::kStep, "first", soon());
    left.send(FrameType::kOutput, large, soon());
    left.send(FrameType::kEnd, "", soon());
  });
  const auto first = right.receive(soon());
  const auto second = right.receive(soon());
  const auto third = right.receive(soon());
  sender.join();
  ASSERT_TRUE(first && second && third);
  EXPECT_EQ(first->type, FrameType::kStep);
  EXPECT_EQ(first->payload, "first");
  EXPECT_EQ(second->payload, large);
  EXPECT_EQ(third->type, FrameType::kEnd);
  EXPECT_EQ(third->payload, "");
}

TEST(FrameChannel, ReceiveReturnsNothingAtTheDeadline) {
  const auto [a, b] = make_socket_pair();
  FrameChannel left(a);
  FrameChannel right(b);
  EXPECT_FALSE(right.receive(Deadline::after(milliseconds(20))));
}

TEST(FrameChannel, AGoneProcessIsACommError) {
  const auto [a, b] = make_socket_pair();
  FrameChannel right(b);
  ::close(a);
  EXPECT_THROW(right.receive(soon()), CommError);
  EXPECT_THROW(
      {
        right.send(FrameType::kStep, "x", soon());
        right.send(FrameType::kStep, "x", soon());
      },
      CommError);
}

TEST(FrameChannel, AProcessThatDoesNotReadIsACommErrorAtTheDeadline) {
  const auto [a, b] = make_socket_pair();
  FrameChannel left(a);
  FrameChannel right(b);
  const std::string large(16u << 20, 'x');
  EXPECT_THROW(left.send(FrameType::kStep, large, Deadline::after(milliseconds(50))), CommError);
}

TEST(FrameChannel, AnImpossibleLengthIsAnIoError) {
  const auto [a, b] = make_socket_pair();
  FrameChannel right(b);
  const uint32_t length = 0xffffffff;
  char header[5] = {};
  std::memcpy(header, &length, sizeof length);
  ASSERT_EQ(::send(a, header, sizeof header, 0), 5);
  EXPECT_THROW(right.receive(soon()), IoError);
  ::close(a);
}

TEST(FrameChannel, ShutDownEndsAWaitOfAnotherThread) {
  const auto [a, b] = make_socket_pair();
  FrameChannel left(a);
  FrameChannel right(b);
  std::thread waiter([&] { EXPECT_THROW(right.receive(soon()), CommError); });
  std::this_thread::sleep_for(milliseconds(10));
  right.shut_down();
  waiter.join();
}

TEST(PackPair, RoundTripsAndRefusesALyingLength) {
  const auto [key, value] = unpack_pair(pack_pair("key", std::string("v\0lue", 5)));
  EXPECT_EQ(key, "key");
  EXPECT_EQ(value, std::string("v\0lue", 5));
  EXPECT_THROW(unpack_pair("abc"), IoError);
  EXPECT_THROW(unpack_pair(std::string("\xff\xff\xff\xff", 4) + "key"), IoError);
}

}  // namespace
}  // namespace tutti
