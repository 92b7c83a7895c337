// Addresses: which of this node's the others should use, and how to reach theirs. Thread-safe.
#pragma once

#include <string>
#include <utility>

#include "base/deadline.h"
#include "base/fd.h"

namespace tutti {

// A connected TCP socket, or an empty Fd and the reason ("connection refused").
Fd connect_tcp(const std::string& address, int port, Deadline deadline, std::string* reason);

struct LocalAddress {
  std::string address;    // "10.0.0.2"
  std::string interface;  // "bond0"
};

// The address from which this node reaches `peer` (the kernel's routing decides), unless `wanted`, an interface name or
// a CIDR ("10.0.0.0/24"), forces another. Throws ConfigError when `wanted` matches nothing, IoError without a route.
LocalAddress local_address_towards(const std::string& peer, const std::string& wanted);

// The address that other nodes can reach this one at when there is no peer to ask the routing for: `wanted`, else the
// default route's, else 127.0.0.1.
LocalAddress default_local_address(const std::string& wanted);

// True for an address of this machine (as this network namespace sees it).
bool is_local_address(const std::string& address);

// True when this process could listen there. Throws ConfigError when `address` is not one of this machine.
bool port_is_free(const std::string& address, int port);

// "10.0.0.1:29500" or "host" to its parts.
std::pair<std::string, int> split_address(const std::string& text, int default_port);

}  // namespace tutti
