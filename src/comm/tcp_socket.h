// The few things that the mesh needs from the socket API. Addresses are numeric: who is where is
// settled before.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <optional>
#include <string>

#include "base/deadline.h"
#include "base/fd.h"

namespace tutti {

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;

  static std::optional<SocketAddress> parse(const std::string& host, int port);
  // "10.0.0.1:23000" or "[fe80::1]:23000"
  static std::optional<SocketAddress> parse_with_port(const std::string& text);
  static SocketAddress local_of(int socket);
  static SocketAddress peer_of(int socket);
  std::string host() const;
  std::string text() const;  // with the port
};

// The first IPv4 address, or else the first IPv6 address, of a network interface. Throws
// ConfigError naming the interfaces that exist.
std::string interface_address(const std::string& interface);

// A listening socket on the first free port of [port_min, port_max]; 0, 0 takes any. Throws
// CommError.
Fd listen_on(const std::string& host, int port_min, int port_max, int backlog);

// A connected, non-blocking socket. Throws CommError with `who` in front.
Fd connect_to(const SocketAddress& address, const std::string& who, Deadline deadline);

// No delay, not paced by BBR; the kernel probes a silent peer's host each second.
void tune_socket(int socket);

// Waits until `events` of poll(2) hold; false when the deadline passed first.
bool wait_for_events(int fd, short events, Deadline deadline);

}  // namespace tutti
