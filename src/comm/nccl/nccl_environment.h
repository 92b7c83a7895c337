// What NCCL has to be told before it starts, through its environment: which ranks are on one host, and which interface
// leads to the others. NCCL itself takes ranks for neighbours when their machine's boot id is the same, and then goes
// through shared memory, past the link between two nodes that are namespaces of one machine.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "comm/comm_factory.h"
#include "comm/communicator.h"

namespace tutti::nccl {

struct RankPlace {
  std::string node;     // the identity that its node joined with
  std::string machine;  // its boot id
};

// {"NCCL_HOSTID", "..."} and so on, for `rank`. `interface`: the network interface of the data links, or empty.
using Settings = std::vector<std::pair<std::string, std::string>>;
Settings settings_for(const std::vector<RankPlace>& places, int rank, const std::string& interface);

// Sets what the user has not set; returns what it set, for the log: "NCCL_HOSTID=..., ...". Before NCCL is opened.
std::string apply(const Settings& settings);

// The places of all ranks, this rank's being `node` on this machine. All ranks of `control` together.
std::vector<RankPlace> gather_places(Communicator& control, const std::string& node);

// All of the above for this process, with a line of the log. Before the first group: NCCL reads its environment once. All
// ranks of `control` together.
void prepare(Communicator& control, const CommOptions& group);
// The user has: NCCL_P2P_DISABLE=1, as on machines where GPUs cannot reach each other's memory but believe they can. To be
// asked before prepare(), which may set it for NCCL alone.
bool p2p_is_off();
// One loud line where the nodes have nothing better than TCP sockets between them.
void warn_of_sockets(const CommOptions& world);

// The interface that has this address ("10.0.0.1", "fd00::1"); empty when none has or it is a loopback address.
std::string interface_of(const std::string& address);

}  // namespace tutti::nccl
