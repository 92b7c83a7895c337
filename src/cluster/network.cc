#include "cluster/network.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <vector>

#include "base/error.h"

namespace tutti {
namespace {

using AddressList = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

AddressList resolve(const std::string& address, int port, int socket_type, std::string* reason) {
  addrinfo hints{};
  hints.ai_socktype = socket_type;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(address.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (error != 0) {
    *reason = std::string("cannot resolve the name: ") + ::gai_strerror(error);
    found = nullptr;
  }
  return AddressList(found, &::freeaddrinfo);
}

std::string lower_first(std::string text) {
  if (!text.empty()) text[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(text[0])));
  return text;
}

std::string system_reason(int error) { return lower_first(std::strerror(error)); }

std::string to_text(const sockaddr* address) {
  char text[INET6_ADDRSTRLEN] = "";
  if (address->sa_family == AF_INET) {
    ::inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(address)->sin_addr, text, sizeof text);
  } else if (address->sa_family == AF_INET6) {
    ::inet_ntop(AF_INET6, &reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr, text, sizeof text);
  }
  return text;
}

// Addresses of the interfaces that are up, link-local IPv6 left out.
std::vector<LocalAddress> local_addresses() {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) throw IoError("cannot list network interfaces: " + system_reason(errno));
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(list, &::freeifaddrs);
  std::vector<LocalAddress> found;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || (entry->ifa_flags & IFF_UP) == 0) continue;
    const std::string text = to_text(entry->ifa_addr);
    if (text.empty() || text.starts_with("fe80:")) continue;
    found.push_back({text, entry->ifa_name});
  }
  return found;
}

// True when `address` lies in `cidr` ("10.0.0.0/24"). False for other families and malformed text.
bool in_network(const std::string& address, const std::string& cidr) {
  const size_t slash = cidr.find('/');
  unsigned char a[16];
  unsigned char b[16];
  const std::string base = cidr.substr(0, slash);
  const int family = base.find(':') == std::string::npos ? AF_INET : AF_INET6;
  if (::inet_pton(family, base.c_str(), a) != 1 || ::inet_pton(family, address.c_str(), b) != 1) return false;
  const int bits = std::atoi(cidr.c_str() + slash + 1);
  for (int bit = 0; bit < bits && bit < (family == AF_INET ? 32 : 128); ++bit) {
    const int mask = 0x80 >> (bit % 8);
    if ((a[bit / 8] & mask) != (b[bit / 8] & mask)) return false;
  }
  return true;
}

// The address that --network-interface asks for.
LocalAddress forced_address(const std::string& wanted) {
  const bool cidr = wanted.find('/') != std::string::npos;
  const std::vector<LocalAddress> all = local_addresses();
  for (const LocalAddress& local : all) {
    if (cidr ? in_network(local.address, wanted) : local.interface == wanted) return local;
  }
  std::string have;
  for (const LocalAddress& local : all) have += (have.empty() ? "" : ", ") + local.interface + " " + local.address;
  throw ConfigError("--network-interface " + wanted + " matches no address of this node (it has " + have + ")");
}

std::string interface_of(const std::string& address) {
  for (const LocalAddress& local : local_addresses()) {
    if (local.address == address) return local.interface;
  }
  return "?";
}

// The source address the kernel would use towards `peer`; no packet is sent. "" without a route.
std::string routed_source(const std::string& peer, std::string* reason) {
  const AddressList targets = resolve(peer, 9, SOCK_DGRAM, reason);
  for (const addrinfo* target = targets.get(); target != nullptr; target = target->ai_next) {
    const Fd socket(::socket(target->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (!socket || ::connect(socket.get(), target->ai_addr, target->ai_addrlen) != 0) {
      *reason = system_reason(errno);
      continue;
    }
    sockaddr_storage own{};
    socklen_t size = sizeof own;
    if (::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&own), &size) == 0) {
      return to_text(reinterpret_cast<sockaddr*>(&own));
    }
  }
  return "";
}

// Waits for a non-blocking connect. "" when connected, else the reason.
std::string finish_connect(int fd, Deadline deadline) {
  pollfd entry{fd, POLLOUT, 0};
  int n = 0;
  do {  // a signal that interrupts the wait says nothing about the connection
    const auto ms = std::chrono::ceil<std::chrono::milliseconds>(deadline.left()).count();
    n = ::poll(&entry, 1, static_cast<int>(std::min<int64_t>(ms, 600'000)));
  } while (n < 0 && errno == EINTR);
  if (n == 0) return "no answer";
  int error = 0;
  socklen_t size = sizeof error;
  ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
  return error == 0 ? "" : system_reason(error);
}

}  // namespace

Fd connect_tcp(const std::string& address, int port, Deadline deadline, std::string* reason) {
  const AddressList targets = resolve(address, port, SOCK_STREAM, reason);
  for (const addrinfo* target = targets.get(); target != nullptr; target = target->ai_next) {
    Fd socket(::socket(target->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!socket) {
      *reason = system_reason(errno);
      continue;
    }
    if (::connect(socket.get(), target->ai_addr, target->ai_addrlen) == 0) return socket;
    *reason = errno == EINPROGRESS ? finish_connect(socket.get(), deadline) : system_reason(errno);
    if (reason->empty()) return socket;
  }
  return Fd();
}

LocalAddress local_address_towards(const std::string& peer, const std::string& wanted) {
  if (!wanted.empty()) return forced_address(wanted);
  std::string reason = "no route";
  const std::string source = routed_source(peer, &reason);
  if (source.empty()) throw IoError("no route from this node to " + peer + ": " + reason);
  return {source, interface_of(source)};
}

LocalAddress default_local_address(const std::string& wanted) {
  if (!wanted.empty()) return forced_address(wanted);
  std::string reason;
  // Any address beyond the default gateway asks the routing table for the default route; nothing is sent there.
  const std::string source = routed_source("192.0.2.1", &reason);
  if (!source.empty()) return {source, interface_of(source)};
  for (const LocalAddress& local : local_addresses()) {
    if (local.address != "::1" && !local.address.starts_with("127.")) return local;
  }
  return {"127.0.0.1", "lo"};
}

bool is_local_address(const std::string& address) {
  std::string reason;
  const AddressList targets = resolve(address, 9, SOCK_DGRAM, &reason);
  const std::vector<LocalAddress> own = local_addresses();
  for (const addrinfo* target = targets.get(); target != nullptr; target = target->ai_next) {
    const std::string text = to_text(target->ai_addr);
    if (text.starts_with("127.") || text == "::1") return true;
    if (std::any_of(own.begin(), own.end(), [&](const LocalAddress& l) { return l.address == text; })) return true;
  }
  return false;
}

bool port_is_free(const std::string& address, int port) {
  std::string reason;
  const AddressList targets = resolve(address, port, SOCK_STREAM, &reason);
  if (targets == nullptr) throw ConfigError("cannot listen on " + address + ": " + reason);
  const Fd socket(::socket(targets->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int one = 1;
  ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  if (::bind(socket.get(), targets->ai_addr, targets->ai_addrlen) == 0 && ::listen(socket.get(), 1) == 0) return true;
  if (errno == EADDRINUSE) return false;
  throw ConfigError("cannot listen on " + address + " port " + std::to_string(port) + ": " + system_reason(errno));
}

std::pair<std::string, int> split_address(const std::string& text, int default_port) {
  const size_t colon = text.rfind(':');
  const bool ipv6_without_port = text.find(':') != colon && !text.starts_with("[");
  if (colon == std::string::npos || ipv6_without_port) return {text, default_port};
  std::string host = text.substr(0, colon);
  if (host.starts_with("[") && host.ends_with("]")) host = host.substr(1, host.size() - 2);
  const std::string port = text.substr(colon + 1);
  const bool digits = !port.empty() && port.size() <= 5 && port.find_first_not_of("0123456789") == std::string::npos;
  if (!digits || std::stoi(port) > 65535) throw ConfigError("\"" + text + "\" is not an address of the form host:port");
  return {host, std::stoi(port)};
}

}  // namespace tutti
