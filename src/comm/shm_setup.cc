#include "comm/shm_setup.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <openssl/crypto.h>
#include <openssl/rand.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>

#include "base/error.h"

namespace tutti {
namespace {

constexpr uint32_t kMagic = 0x74757368;
constexpr size_t kTokenBytes = 16;
using Token = std::array<unsigned char, kTokenBytes>;

struct ShmHello {
  uint32_t magic;
  int32_t rank;
  Token token;
};

[[noreturn]] void throw_errno(const char* what) {
  throw CommError(fmt::format("setting up shared memory between the ranks of this host: {}: {}",
                              what, std::strerror(errno)));
}

std::string to_hex(const Token& token) {
  std::string hex;
  for (unsigned char byte : token) hex += fmt::format("{:02x}", byte);
  return hex;
}

Token from_hex(const std::string& hex) {
  Token token{};
  for (size_t i = 0; i < kTokenBytes && 2 * i + 2 <= hex.size(); ++i) {
    std::from_chars(hex.data() + 2 * i, hex.data() + 2 * i + 2, token[i], 16);
  }
  return token;
}

Token random_token() {
  Token token;
  if (RAND_bytes(token.data(), static_cast<int>(token.size())) != 1)
    throw CommError("no random bytes from OpenSSL");
  return token;
}

// An abstract name: no file, and gone with its socket.
socklen_t abstract_address(const std::string& name, sockaddr_un& address) {
  address = {};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
}

// False when the deadline passed.
bool wait_readable(int fd, Deadline deadline) {
  pollfd entry{fd, POLLIN, 0};
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline.left()).count();
    const int ready = ::poll(&entry, 1, static_cast<int>(std::min<int64_t>(left, 1000)));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) throw_errno("poll");
    if (deadline.passed()) return false;
  }
}

void send_with_fds(int socket, const void* data, size_t bytes, const std::vector<int>& fds) {
  iovec part{const_cast<void*>(data), bytes};
  std::vector<char> control(CMSG_SPACE(fds.size() * sizeof(int)));
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(fds.size() * sizeof(int));
  std::memcpy(CMSG_DATA(header), fds.data(), fds.size() * sizeof(int));
  if (::sendmsg(socket, &message, MSG_NOSIGNAL) != static_cast<ssize_t>(bytes))
    throw_errno("sendmsg");
}

// The descriptors that came with exactly `bytes` bytes; nothing when the message is another one or
// the peer left.
std::vector<Fd> receive_with_fds(int socket, void* data, size_t bytes, size_t num_fds) {
  iovec part{data, bytes};
  std::vector<char> control(CMSG_SPACE(num_fds * sizeof(int)));
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  const ssize_t got = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  std::vector<Fd> fds;
  for (cmsghdr* h = CMSG_FIRSTHDR(&message); got >= 0 && h != nullptr;
       h = CMSG_NXTHDR(&message, h)) {
    if (h->cmsg_level != SOL_SOCKET || h->cmsg_type != SCM_RIGHTS) continue;
    std::vector<int> raw((h->cmsg_len - CMSG_LEN(0)) / sizeof(int));
    std::memcpy(raw.data(), CMSG_DATA(h), raw.size() * sizeof(int));
    for (int fd : raw) fds.emplace_back(fd);
  }
  if (got != static_cast<ssize_t>(bytes) || fds.size() != num_fds) fds.clear();
  return fds;
}

struct Lifeline {
  Fd reading;
  Fd writing;
};

Lifeline make_lifeline() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) throw_errno("pipe2");
  return {Fd(ends[0]), Fd(ends[1])};
}

std::string missing_ranks(const CommGroup& group, const std::vector<Fd>& lifelines) {
  std::string missing;
  for (int r = 0; r < group.size; ++r) {
    if (!lifelines[static_cast<size_t>(r)])
      missing += (missing.empty() ? "" : ", ") + group.label(r);
  }
  return missing;
}

// A process of this user that knows the token, or nobody.
bool is_one_of_us(int socket, const ShmHello& hello, const Token& token, int size) {
  ucred peer{};
  socklen_t length = sizeof peer;
  return ::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 &&
         peer.uid == ::geteuid() && hello.magic == kMagic && hello.rank > 0 && hello.rank < size &&
         CRYPTO_memcmp(hello.token.data(), token.data(), kTokenBytes) == 0;
}

ShmLink host_segment(const CommGroup& group, Store& store, Deadline deadline) {
  const Token name = random_token();
  const Token token = random_token();
  Fd listener(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!listener) throw_errno("socket");
  sockaddr_un address;
  const socklen_t length = abstract_address("tutti-" + to_hex(name), address);
  if (::bind(listener.get(), reinterpret_cast<sockaddr*>(&address), length) != 0)
    throw_errno("bind");
  if (::listen(listener.get(), group.size) != 0) throw_errno("listen");
  store.set(group.key() + "/shm", to_hex(name) + to_hex(token));

  ShmLink link;
  link.segment = ShmSegment::create(group.size);
  link.lifelines.resize(static_cast<size_t>(group.size));
  Lifeline own = make_lifeline();
  link.own_lifeline = std::move(own.writing);
  link.lifelines[0] = std::move(own.reading);
  std::vector<Fd> sockets;
  while (sockets.size() + 1 < static_cast<size_t>(group.size)) {
    if (!wait_readable(listener.get(), deadline)) {
      throw CommError(fmt::format(
          "shared memory between the ranks of this host: {} did not come within the deadline",
          missing_ranks(group, link.lifelines)));
    }
    Fd socket(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    ShmHello hello{};
    // Our own ranks send at once; a stranger may not hold up the others.
    if (!socket || !wait_readable(socket.get(), Deadline::after(std::chrono::seconds(2)))) continue;
    std::vector<Fd> fds = receive_with_fds(socket.get(), &hello, sizeof hello, 1);
    if (fds.empty() || !is_one_of_us(socket.get(), hello, token, group.size)) continue;
    Fd& lifeline = link.lifelines[static_cast<size_t>(hello.rank)];
    if (lifeline)
      throw CommError(fmt::format("two processes say that they are {}", group.label(hello.rank)),
                      hello.rank);
    lifeline = std::move(fds[0]);
    sockets.push_back(std::move(socket));
  }
  std::vector<int> fds{link.segment->fd()};
  for (const Fd& lifeline : link.lifelines) fds.push_back(lifeline.get());
  for (const Fd& socket : sockets) send_with_fds(socket.get(), &kMagic, sizeof kMagic, fds);
  return link;
}

ShmLink join_segment(const CommGroup& group, Store& store, Deadline deadline) {
  const std::string found = store.get(group.key() + "/shm", deadline);
  const std::string name = found.substr(0, std::min(found.size(), 2 * kTokenBytes));
  Fd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (!socket) throw_errno("socket");
  sockaddr_un address;
  const socklen_t length = abstract_address("tutti-" + name, address);
  if (::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), length) != 0) {
    throw CommError(fmt::format("shared memory with {}: connect: {}. Both must run in one network "
                                "namespace; ranks that "
                                "do not are two nodes",
                                group.label(0), std::strerror(errno)),
                    0);
  }
  ShmLink link;
  Lifeline own = make_lifeline();
  link.own_lifeline = std::move(own.writing);
  const ShmHello hello{kMagic, group.rank, from_hex(found.substr(name.size()))};
  send_with_fds(socket.get(), &hello, sizeof hello, {own.reading.get()});
  if (!wait_readable(socket.get(), deadline)) {
    throw CommError(
        fmt::format(
            "shared memory between the ranks of this host: {} did not answer within the deadline "
            "(it waits for all {} ranks)",
            group.label(0), group.size),
        0);
  }
  uint32_t magic = 0;
  std::vector<Fd> fds =
      receive_with_fds(socket.get(), &magic, sizeof magic, static_cast<size_t>(group.size) + 1);
  if (fds.empty() || magic != kMagic) {
    throw CommError(
        fmt::format("shared memory between the ranks of this host: {} gave up or refused us",
                    group.label(0)),
        0);
  }
  link.segment = ShmSegment::attach(std::move(fds[0]), group.size);
  for (size_t r = 0; r < static_cast<size_t>(group.size); ++r)
    link.lifelines.push_back(std::move(fds[r + 1]));
  return link;
}

}  // namespace

ShmLink share_between_processes(const CommGroup& group, Store& store, Deadline deadline) {
  return group.rank == 0 ? host_segment(group, store, deadline)
                         : join_segment(group, store, deadline);
}

ShmLink share_between_threads(const CommGroup& group, InMemoryStore& store, Deadline deadline) {
  const std::string key = group.key() + "/in_process";
  if (group.rank == 0) store.share(key, ShmSegment::create_private(group.size));
  return {std::static_pointer_cast<ShmSegment>(store.shared(key, deadline)), {}, {}};
}

}  // namespace tutti
