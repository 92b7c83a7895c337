#include "comm/tcp_socket.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>
#include <string_view>

#include "base/error.h"

namespace tutti {

std::optional<SocketAddress> SocketAddress::parse(const std::string& host, int port) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  if (::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found) != 0)
    return std::nullopt;
  SocketAddress address;
  std::memcpy(&address.storage, found->ai_addr, found->ai_addrlen);
  address.length = found->ai_addrlen;
  ::freeaddrinfo(found);
  return address;
}

std::optional<SocketAddress> SocketAddress::parse_with_port(const std::string& text) {
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos) return std::nullopt;
  int port = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data() + colon + 1, end, port);
  if (error != std::errc() || stop != end || port <= 0 || port > 65535) return std::nullopt;
  std::string host = text.substr(0, colon);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']')
    host = host.substr(1, host.size() - 2);
  return parse(host, port);
}

SocketAddress SocketAddress::local_of(int socket) {
  SocketAddress address;
  address.length = sizeof address.storage;
  ::getsockname(socket, reinterpret_cast<sockaddr*>(&address.storage), &address.length);
  return address;
}

SocketAddress SocketAddress::peer_of(int socket) {
  SocketAddress address;
  address.length = sizeof address.storage;
  ::getpeername(socket, reinterpret_cast<sockaddr*>(&address.storage), &address.length);
  return address;
}

std::string SocketAddress::host() const {
  char host[NI_MAXHOST] = "unknown address";
  ::getnameinfo(reinterpret_cast<const sockaddr*>(&storage), length, host, sizeof host, nullptr, 0,
                NI_NUMERICHOST);
  return host;
}

std::string SocketAddress::text() const {
  char port[NI_MAXSERV] = "?";
  ::getnameinfo(reinterpret_cast<const sockaddr*>(&storage), length, nullptr, 0, port, sizeof port,
                NI_NUMERICSERV);
  return storage.ss_family == AF_INET6 ? fmt::format("[{}]:{}", host(), port)
                                       : fmt::format("{}:{}", host(), port);
}

std::string interface_address(const std::string& interface) {
  ifaddrs* raw = nullptr;
  if (::getifaddrs(&raw) != 0)
    throw ConfigError(fmt::format("network interfaces: {}", std::strerror(errno)));
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> list(raw, &::freeifaddrs);
  std::string existing;
  for (const int family : {AF_INET, AF_INET6}) {
    for (const ifaddrs* i = list.get(); i != nullptr; i = i->ifa_next) {
      if (i->ifa_addr == nullptr || i->ifa_addr->sa_family != family) continue;
      SocketAddress address;
      address.length = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
      std::memcpy(&address.storage, i->ifa_addr, address.length);
      if (interface == i->ifa_name) return address.host();
      if (family == AF_INET) existing += fmt::format(" {} ({})", i->ifa_name, address.host());
    }
  }
  throw ConfigError(
      fmt::format("network interface '{}' does not exist or has no address; there are:{}",
                  interface, existing));
}

Fd listen_on(const std::string& host, int port_min, int port_max, int backlog) {
  for (int port = port_min; port <= port_max; ++port) {
    const auto address = SocketAddress::parse(host, port);
    if (!address)
      throw ConfigError(fmt::format("'{}' is not a numeric IP address to listen on", host));
    Fd listener(
        ::socket(address->storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!listener) throw CommError(fmt::format("socket: {}", std::strerror(errno)));
    const int on = 1;
    ::setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (::bind(listener.get(), reinterpret_cast<const sockaddr*>(&address->storage),
               address->length) == 0 &&
        ::listen(listener.get(), backlog) == 0) {
      return listener;
    }
    if (errno != EADDRINUSE) {
      throw CommError(fmt::format("listening on {} port {}: {}", host, port, std::strerror(errno)));
    }
  }
  throw CommError(fmt::format("no free port on {} between {} and {}: widen the range with --data-ports",
                              host, port_min, port_max));
}

bool wait_for_events(int fd, short events, Deadline deadline) {
  pollfd entry{fd, events, 0};
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline.left()).count();
    const int ready = ::poll(&entry, 1, static_cast<int>(std::min<int64_t>(left, 1000)));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) throw CommError(fmt::format("poll: {}", std::strerror(errno)));
    if (deadline.passed()) return false;
  }
}

Fd connect_to(const SocketAddress& address, const std::string& who, Deadline deadline) {
  Fd socket(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) throw CommError(fmt::format("socket: {}", std::strerror(errno)));
  int error = 0;
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address.storage),
                address.length) != 0) {
    error = errno;
    if (error == EINPROGRESS) {
      if (!wait_for_events(socket.get(), POLLOUT, deadline)) {
        throw CommError(
            fmt::format("{}: no connection to {} within the deadline; is a firewall between?", who,
                        address.text()));
      }
      socklen_t length = sizeof error;
      ::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &length);
    }
  }
  if (error != 0) {
    throw CommError(
        fmt::format("{}: connecting to {}: {}", who, address.text(), std::strerror(error)));
  }
  tune_socket(socket.get());
  return socket;
}

namespace {

// BBR sends at the rate that it has measured, which ranks keep low: they send a burst, then compute. Two ranks computed a prompt at
// 0.72 of one process's speed with it, at 0.91 with CUBIC or Reno. What else an administrator has chosen stays.
void avoid_bbr(int socket) {
  char name[16] = "";
  socklen_t length = sizeof name;
  if (::getsockopt(socket, IPPROTO_TCP, TCP_CONGESTION, name, &length) != 0 || std::string_view(name, strnlen(name, length)) != "bbr") return;
  for (const std::string_view other : {"cubic", "reno"}) {  // users may choose among those that the system allows: reno always
    if (::setsockopt(socket, IPPROTO_TCP, TCP_CONGESTION, other.data(), static_cast<socklen_t>(other.size())) == 0) return;
  }
}

}  // namespace

void tune_socket(int socket) {
  const auto set = [socket](int level, int option, int value) {
    if (::setsockopt(socket, level, option, &value, sizeof value) != 0) {
      throw CommError(fmt::format("setsockopt: {}", std::strerror(errno)));
    }
  };
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  // A stopped process's kernel answers these probes, a cut link does not: this is how the two are
  // told apart.
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 1);
  set(IPPROTO_TCP, TCP_KEEPINTVL, 1);
  set(IPPROTO_TCP, TCP_KEEPCNT, 30);
  avoid_bbr(socket);
}

}  // namespace tutti
