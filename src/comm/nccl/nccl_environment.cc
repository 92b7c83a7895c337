#include "comm/nccl/nccl_environment.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <system_error>

#include "base/log.h"

namespace tutti::nccl {
namespace {

constexpr const char* kRdmaDevices = "/sys/class/infiniband";

std::string boot_id() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(file, id);
  return id;
}

struct PlaceMessage {
  std::array<char, 192> node;
  std::array<char, 64> machine;
};

template <size_t N>
void put(std::array<char, N>& to, const std::string& text) {
  to.fill('\0');
  std::copy_n(text.begin(), std::min(text.size(), N - 1), to.begin());
}

}  // namespace

Settings settings_for(const std::vector<RankPlace>& places, int rank, const std::string& interface) {
  const RankPlace& own = places[static_cast<size_t>(rank)];
  bool other_nodes = false, node_shares_machine = false;
  for (const RankPlace& place : places) {
    if (place.node == own.node) continue;
    other_nodes = true;
    node_shares_machine |= place.machine == own.machine;
  }
  Settings settings;
  if (!other_nodes) return settings;
  settings.emplace_back("NCCL_HOSTID", own.node);
  if (!interface.empty()) settings.emplace_back("NCCL_SOCKET_IFNAME", "=" + interface);
  if (node_shares_machine) {
    settings.emplace_back("NCCL_P2P_DISABLE", "1");
    settings.emplace_back("NCCL_SHM_DISABLE", "1");
  }
  return settings;
}

std::string apply(const Settings& settings) {
  std::string done;
  for (const auto& [name, value] : settings) {
    if (std::getenv(name.c_str()) != nullptr) continue;
    ::setenv(name.c_str(), value.c_str(), /*overwrite=*/0);
    done += fmt::format("{}{}={}", done.empty() ? "" : ", ", name, value);
  }
  return done;
}

std::vector<RankPlace> gather_places(Communicator& control, const std::string& node) {
  PlaceMessage own;
  put(own.node, node);
  put(own.machine, boot_id());
  std::vector<PlaceMessage> all(static_cast<size_t>(control.size()));
  control.all_gather(&own, all.data(), sizeof own);
  std::vector<RankPlace> places;
  for (const PlaceMessage& message : all) places.push_back({message.node.data(), message.machine.data()});
  return places;
}

namespace {

std::string data_interface(const CommOptions& o) { return o.interface.empty() ? interface_of(o.bind_address) : o.interface; }

}  // namespace

void prepare(Communicator& control, const CommOptions& group) {
  const CommOptions o = complete(group);
  const auto places = gather_places(control, o.nodes[static_cast<size_t>(o.rank)]);
  const std::string set = apply(settings_for(places, o.rank, data_interface(o)));
  if (!set.empty()) log::fact("nccl", "set for this start: {}", set);
}

bool p2p_is_off() {
  const char* value = std::getenv("NCCL_P2P_DISABLE");
  return value != nullptr && std::string(value) != "0" && *value != '\0';
}

void warn_of_sockets(const CommOptions& world) {
  const bool one_node = std::set<std::string>(world.nodes.begin(), world.nodes.end()).size() <= 1;
  std::error_code none;
  const bool rdma = std::filesystem::directory_iterator(kRdmaDevices, none) != std::filesystem::directory_iterator();
  if (one_node || rdma || world.rank != 0) return;
  const std::string interface = data_interface(world);
  log::warning("GPU traffic between the nodes goes over TCP sockets{}: this node has no RDMA device ({})",
               interface.empty() ? "" : " of " + interface, kRdmaDevices);
}

std::string interface_of(const std::string& address) {
  in_addr v4{};
  in6_addr v6{};
  const bool is_v4 = ::inet_pton(AF_INET, address.c_str(), &v4) == 1;
  if (!is_v4 && ::inet_pton(AF_INET6, address.c_str(), &v6) != 1) return "";
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return "";
  std::string name;
  for (const ifaddrs* entry = list; entry != nullptr && name.empty(); entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || (entry->ifa_flags & IFF_LOOPBACK) != 0) continue;
    if (is_v4 && entry->ifa_addr->sa_family == AF_INET) {
      const auto* in = reinterpret_cast<const sockaddr_in*>(entry->ifa_addr);
      if (in->sin_addr.s_addr == v4.s_addr) name = entry->ifa_name;
    } else if (!is_v4 && entry->ifa_addr->sa_family == AF_INET6) {
      const auto* in = reinterpret_cast<const sockaddr_in6*>(entry->ifa_addr);
      if (std::memcmp(&in->sin6_addr, &v6, sizeof v6) == 0) name = entry->ifa_name;
    }
  }
  ::freeifaddrs(list);
  return name;
}

}  // namespace tutti::nccl
