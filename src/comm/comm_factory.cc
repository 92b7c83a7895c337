#include "comm/comm_factory.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <set>

#include "base/check.h"
#include "base/error.h"
#include "comm/group_communicator.h"
#include "comm/hierarchical_transport.h"
#include "comm/shm_transport.h"
#include "comm/tcp_transport.h"
#include "comm/tcp_wire.h"
#include "comm/ucx_wire.h"

namespace tutti {
namespace {

constexpr std::chrono::nanoseconds kSpin = std::chrono::microseconds(100);
constexpr int kWireSpin = 10;

// What a container may use at most: its quota of processor time, "max 100000" or "250000 100000".
// Rounded down, as a rank that spins beyond its quota is stopped for the rest of the period.
int processors_of_quota() {
  std::ifstream file("/sys/fs/cgroup/cpu.max");
  double quota = 0, period = 0;
  if (!(file >> quota >> period) || period <= 0) return std::numeric_limits<int>::max();
  return static_cast<int>(quota / period);
}

int usable_processors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  const int allowed = ::sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
  return std::min(allowed, processors_of_quota());
}

}  // namespace

CommOptions complete(CommOptions o) {
  const auto size = static_cast<size_t>(o.size);
  if (o.size < 1 || o.rank < 0 || o.rank >= o.size) {
    throw ConfigError(fmt::format("group {}: rank {} of {} ranks", o.group_name, o.rank, o.size));
  }
  if (o.nodes.empty()) o.nodes.assign(size, "");
  for (int r = static_cast<int>(o.labels.size()); r < o.size; ++r)
    o.labels.push_back(fmt::format("rank {}", r));
  if (o.nodes.size() != size || o.labels.size() != size) {
    throw ConfigError(fmt::format("group {}: {} nodes and {} labels for {} ranks", o.group_name,
                                  o.nodes.size(), o.labels.size(), o.size));
  }
  if (o.tcp_streams < 1 || o.tcp_streams > 64) {
    throw ConfigError(
        fmt::format("{} TCP streams between two ranks; 1 to 64 are possible", o.tcp_streams));
  }
  const bool any_port = o.port_min == 0 && o.port_max == 0;
  if (!any_port && (o.port_min < 1 || o.port_max > 65535 || o.port_min > o.port_max)) {
    throw ConfigError(fmt::format("data ports from {} to {}: expected a range inside 1 to 65535",
                                  o.port_min, o.port_max));
  }
  if (o.ranks_on_node == 0) {
    o.ranks_on_node = static_cast<int>(
        std::count(o.nodes.begin(), o.nodes.end(), o.nodes[static_cast<size_t>(o.rank)]));
  }
  if (o.spin < std::chrono::nanoseconds(0)) {
    o.spin = o.ranks_on_node <= usable_processors() ? kSpin : std::chrono::nanoseconds(0);
  }
  return o;
}

namespace {

// The ranks in `ranks` as a group of their own; `part` sets its entries in the store apart.
CommGroup part_of(const CommOptions& o, const std::vector<int>& ranks, const std::string& part) {
  CommGroup group;
  group.size = static_cast<int>(ranks.size());
  group.rank = static_cast<int>(std::find(ranks.begin(), ranks.end(), o.rank) - ranks.begin());
  group.name = o.group_name + part;
  group.epoch = o.epoch;
  group.spin = o.spin;
  for (int r : ranks) group.labels.push_back(o.labels[static_cast<size_t>(r)]);
  return group;
}

// What the transport does before the first call of its user; part of the setup and its deadline.
Call setup_call(Deadline deadline) { return {"setup", 0, Clock::now(), deadline}; }

std::unique_ptr<Transport> make_shm(const CommOptions& o, const CommGroup& group, Store& store,
                                    Deadline deadline) {
  if (group.size == 1) return make_self_transport();
  auto shm =
      std::make_unique<ShmTransport>(group, share_between_processes(group, store, deadline), "shm");
  if (o.measure_algorithms) shm->measure(setup_call(deadline));
  return shm;
}

std::unique_ptr<Transport> make_in_process(const CommGroup& group, Store& store,
                                           Deadline deadline) {
  auto* in_memory = dynamic_cast<InMemoryStore*>(&store);
  if (in_memory == nullptr)
    throw ConfigError("an in-process group needs the in-memory store of its process");
  return std::make_unique<ShmTransport>(group, share_between_threads(group, *in_memory, deadline),
                                        "in_process");
}

std::unique_ptr<Transport> make_wired(const CommOptions& o, const CommGroup& group,
                                      std::unique_ptr<Wire> wire, Deadline deadline) {
  auto transport = std::make_unique<TcpTransport>(group, std::move(wire), o.comm_dtype);
  if (o.measure_algorithms) transport->measure(setup_call(deadline));
  return transport;
}

std::unique_ptr<Transport> make_tcp(const CommOptions& o, const CommGroup& group, Store& store,
                                    Deadline deadline) {
  TcpOptions tcp;
  tcp.bind_address = o.bind_address;
  tcp.interface = o.interface;
  tcp.port_min = o.port_min;
  tcp.port_max = o.port_max;
  tcp.secret = o.secret;
  tcp.streams = o.tcp_streams;
  CommGroup polled = group;
  // A wire is worth waiting for longer than a neighbour: a sleeping thread wakes late.
  polled.spin = o.spin * kWireSpin;
  auto wire = std::make_unique<TcpWire>(polled, connect_mesh(group, store, tcp, deadline));
  return make_wired(o, group, std::move(wire), deadline);
}

std::unique_ptr<Transport> make_ucx(const CommOptions& o, const CommGroup& group, Store& store,
                                    Deadline deadline) {
  return make_wired(o, group, make_ucx_wire(group, store, deadline), deadline);
}

// Between nodes, as the options say.
std::unique_ptr<Transport> make_between_nodes(const CommOptions& o, const CommGroup& group,
                                              Store& store, Deadline deadline) {
  return o.link == LinkKind::kUcx ? make_ucx(o, group, store, deadline)
                                  : make_tcp(o, group, store, deadline);
}

std::unique_ptr<Transport> make_hierarchical(const CommOptions& o, const CommGroup& group,
                                             Store& store, Deadline deadline) {
  NodeLayout layout(o.nodes);
  const int node = layout.node_of[static_cast<size_t>(o.rank)];
  const std::vector<int>& members = layout.members[static_cast<size_t>(node)];
  HierarchicalTransport::Parts parts;
  parts.local = make_shm(o, part_of(o, members, fmt::format("/node{}", node)), store, deadline);
  if (members[0] == o.rank) {
    std::vector<int> leaders;
    for (const auto& ranks : layout.members) leaders.push_back(ranks[0]);
    parts.leaders = make_between_nodes(o, part_of(o, leaders, "/leaders"), store, deadline);
  }
  parts.direct = make_between_nodes(o, group, store, deadline);
  return std::make_unique<HierarchicalTransport>(group, std::move(layout), std::move(parts));
}

std::unique_ptr<Transport> make_transport(const CommOptions& o, const CommGroup& group,
                                          Store& store, Deadline deadline) {
  const size_t num_nodes = std::set<std::string>(o.nodes.begin(), o.nodes.end()).size();
  if (o.size == 1) return make_self_transport();
  switch (o.transport) {
    case TransportKind::kInProcess:
      return make_in_process(group, store, deadline);
    case TransportKind::kTcp:
      return make_between_nodes(o, group, store, deadline);
    case TransportKind::kShm:
      if (num_nodes > 1) {
        throw ConfigError(
            fmt::format("group {}: shared memory cannot reach over {} nodes; use auto or tcp",
                        o.group_name, num_nodes));
      }
      return make_shm(o, group, store, deadline);
    case TransportKind::kAuto:
      break;
  }
  if (num_nodes == 1) return make_shm(o, group, store, deadline);
  if (num_nodes == static_cast<size_t>(o.size)) {
    return make_between_nodes(o, group, store, deadline);
  }
  return make_hierarchical(o, group, store, deadline);
}

}  // namespace

CommGroup whole_group(const CommOptions& complete) {
  std::vector<int> all(static_cast<size_t>(complete.size));
  for (int r = 0; r < complete.size; ++r) all[static_cast<size_t>(r)] = r;
  return part_of(complete, all, "");
}

std::unique_ptr<Communicator> make_communicator(const CommOptions& options, Store& store) {
  const CommOptions o = complete(options);
  const CommGroup group = whole_group(o);
  auto transport = make_transport(o, group, store, Deadline::after(o.setup_timeout));
  return std::make_unique<GroupCommunicator>(
      group, std::move(transport), GroupCommunicator::Options{o.timeout, o.check_sequence});
}

CommOptions subgroup_options(const CommOptions& world, const std::string& group_name,
                             const std::vector<int>& ranks) {
  const CommOptions all = complete(world);
  const auto own = std::find(ranks.begin(), ranks.end(), world.rank);
  CHECK(own != ranks.end() && std::is_sorted(ranks.begin(), ranks.end()));
  CommOptions group = all;
  group.rank = static_cast<int>(own - ranks.begin());
  group.size = static_cast<int>(ranks.size());
  group.group_name = fmt::format("{}/{}{}", world.group_name, group_name, ranks[0]);
  group.nodes.clear();
  group.labels.clear();
  for (int r : ranks) {
    CHECK(r >= 0 && r < world.size);
    group.nodes.push_back(all.nodes[static_cast<size_t>(r)]);
    group.labels.push_back(all.labels[static_cast<size_t>(r)]);
  }
  return group;
}

}  // namespace tutti
