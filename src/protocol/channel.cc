#include "protocol/channel.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace tutti {
namespace {

constexpr size_t kHeaderBytes = 5;          // length of the payload (u32), type
constexpr size_t kReadBytes = 256u << 10;   // asked of the kernel at once

int poll_timeout_ms(Deadline deadline) {
  const auto ms = std::chrono::ceil<std::chrono::milliseconds>(deadline.left()).count();
  return static_cast<int>(std::min<int64_t>(ms, 1'000'000'000));
}

// True when `fd` is ready for `events`, false at the deadline.
bool wait_ready(int fd, short events, Deadline deadline) {
  while (true) {
    pollfd entry{fd, events, 0};
    const int n = ::poll(&entry, 1, poll_timeout_ms(deadline));
    if (n > 0) return true;
    if (n < 0 && errno != EINTR) throw IoError(std::string("poll failed: ") + std::strerror(errno));
    if (n == 0 && deadline.passed()) return false;
  }
}

}  // namespace

FrameChannel::FrameChannel(int fd) : fd_(fd) {
  ::fcntl(fd_, F_SETFL, ::fcntl(fd_, F_GETFL) | O_NONBLOCK);
}

FrameChannel::~FrameChannel() { ::close(fd_); }

void FrameChannel::shut_down() { ::shutdown(fd_, SHUT_RDWR); }

void FrameChannel::send(FrameType type, std::string_view payload, Deadline deadline) {
  if (payload.size() > kMaxPayload) {
    throw IoError("a message of " + std::to_string(payload.size()) + " bytes between a rank and its parent, at most " +
                  std::to_string(kMaxPayload) + " fit");
  }
  char header[kHeaderBytes];
  const auto length = static_cast<uint32_t>(payload.size());
  std::memcpy(header, &length, sizeof length);
  header[4] = static_cast<char>(type);

  std::lock_guard lock(send_mutex_);
  size_t done = 0;
  const size_t total = kHeaderBytes + payload.size();
  while (done < total) {
    iovec parts[2];
    int count = 0;
    if (done < kHeaderBytes) parts[count++] = {header + done, kHeaderBytes - done};
    const size_t from = done > kHeaderBytes ? done - kHeaderBytes : 0;
    if (from < payload.size()) parts[count++] = {const_cast<char*>(payload.data()) + from, payload.size() - from};
    msghdr message{};
    message.msg_iov = parts;
    message.msg_iovlen = static_cast<size_t>(count);
    const ssize_t n = ::sendmsg(fd_, &message, MSG_NOSIGNAL);
    if (n >= 0) {
      done += static_cast<size_t>(n);
    } else if (errno == EAGAIN) {
      if (!wait_ready(fd_, POLLOUT, deadline)) throw CommError("the other process does not read its messages");
    } else if (errno != EINTR) {
      throw CommError(std::string("the other process is gone: ") + std::strerror(errno));
    }
  }
}

std::optional<Frame> FrameChannel::take_frame() {
  const size_t available = received_.size() - consumed_;
  if (available < kHeaderBytes) return std::nullopt;
  uint32_t length = 0;
  std::memcpy(&length, received_.data() + consumed_, sizeof length);
  if (length > kMaxPayload) {
    throw IoError("a frame of " + std::to_string(length) + " bytes between a rank and its parent, at most " +
                  std::to_string(kMaxPayload) + " are allowed");
  }
  if (available - kHeaderBytes < length) return std::nullopt;
  Frame frame;
  frame.type = static_cast<FrameType>(received_[consumed_ + 4]);
  frame.payload.assign(received_, consumed_ + kHeaderBytes, length);
  consumed_ += kHeaderBytes + length;
  if (consumed_ == received_.size()) {
    received_.clear();
    consumed_ = 0;
  } else if (consumed_ > kReadBytes) {
    received_.erase(0, consumed_);
    consumed_ = 0;
  }
  return frame;
}

std::optional<Frame> FrameChannel::receive(Deadline deadline) {
  while (true) {
    if (auto frame = take_frame()) return frame;
    const size_t size = received_.size();
    received_.resize(size + kReadBytes);
    const ssize_t n = ::recv(fd_, received_.data() + size, kReadBytes, 0);
    const int error = errno;
    received_.resize(size + (n > 0 ? static_cast<size_t>(n) : 0));
    if (n == 0) throw CommError("the other process is gone: it closed its end");
    if (n > 0 || error == EINTR) continue;
    if (error != EAGAIN) throw CommError(std::string("the other process is gone: ") + std::strerror(error));
    if (!wait_ready(fd_, POLLIN, deadline)) return std::nullopt;
  }
}

std::pair<int, int> make_socket_pair() {
  int fds[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0) {
    throw IoError(std::string("cannot create a socket pair: ") + std::strerror(errno));
  }
  return {fds[0], fds[1]};
}

std::string pack_pair(std::string_view key, std::string_view value) {
  const auto length = static_cast<uint32_t>(key.size());
  std::string payload(reinterpret_cast<const char*>(&length), sizeof length);
  payload.append(key).append(value);
  return payload;
}

std::pair<std::string, std::string> unpack_pair(std::string_view payload) {
  uint32_t length = 0;
  if (payload.size() < sizeof length) throw IoError("a store message of " + std::to_string(payload.size()) + " bytes");
  std::memcpy(&length, payload.data(), sizeof length);
  payload.remove_prefix(sizeof length);
  if (length > payload.size()) {
    throw IoError("a store message with a key of " + std::to_string(length) + " bytes where " +
                  std::to_string(payload.size()) + " are left");
  }
  return {std::string(payload.substr(0, length)), std::string(payload.substr(length))};
}

}  // namespace tutti
