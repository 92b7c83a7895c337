// Makes the communicator of a group: chooses the transport, sets it up through the store and hands
// it over. Every rank of the group calls it, each on the thread that will use the communicator,
// with the same options but its rank.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "comm/comm_codec.h"
#include "comm/communicator.h"
#include "comm/store.h"
#include "comm/transport.h"

namespace tutti {

enum class TransportKind : uint8_t { kAuto, kInProcess, kShm, kTcp };

// What carries bytes between nodes.
enum class LinkKind : uint8_t { kTcp, kUcx };

struct CommOptions {
  int rank = 0;
  int size = 1;
  std::string group_name =
      "world";         // one name, one group: it keeps their entries in the store apart
  uint64_t epoch = 0;  // of the cluster; a rank of an earlier one is refused

  // kAuto: shared memory when all ranks are on one node, TCP when each is on its own, else both.
  // kInProcess: the ranks are threads of this process and the store is an InMemoryStore.
  TransportKind transport = TransportKind::kAuto;
  std::vector<std::string>
      nodes;  // by rank: the identity that its node joined with, never a host name, which two
              // "nodes" on one machine share; empty: all on one node
  std::vector<std::string> labels;  // by rank, for errors: "rank 3 (node2 cpu 1)"; empty: "rank 3"
  int ranks_on_node = 0;  // of the whole cluster on this node; 0: as many as of this group

  LinkKind link = LinkKind::kTcp;

  // TCP: where this rank listens (a numeric address, or the address of `interface`) and on which
  // ports.
  std::string bind_address = "127.0.0.1";
  std::string interface;
  int port_min = 0;  // 0, 0: any
  int port_max = 0;
  std::string secret;   // of the cluster; both sides of a connection prove that they know it
  int tcp_streams = 1;  // connections of a pair that share its large messages

  CommDType comm_dtype = CommDType::kFull;  // float sums may go over TCP in a smaller type
  bool measure_algorithms = true;  // once at start: which way of summing is faster at which size

  std::chrono::nanoseconds setup_timeout = std::chrono::seconds(60);
  std::chrono::nanoseconds timeout = std::chrono::seconds(10);  // of one call
  std::chrono::nanoseconds spin = kAutoSpin;  // how long a wait polls before it sleeps
  bool check_sequence = kCheckSequence;       // compare each call with the other ranks' first

  // 100 us, or nothing when this node has more ranks than processors.
  static constexpr std::chrono::nanoseconds kAutoSpin{-1};
#ifdef NDEBUG
  static constexpr bool kCheckSequence = false;
#else
  static constexpr bool kCheckSequence = true;
#endif
};

// Throws ConfigError for options that cannot work and CommError when a rank does not come.
std::unique_ptr<Communicator> make_communicator(const CommOptions& options, Store& store);

// For those who make communicators of other kinds: the options with every default filled in, and the group that they
// describe. Throws ConfigError for options that cannot work.
CommOptions complete(CommOptions options);
CommGroup whole_group(const CommOptions& complete);

// The options of the group of `ranks` (numbers in `world`, ascending, this rank among them).
CommOptions subgroup_options(const CommOptions& world, const std::string& group_name,
                             const std::vector<int>& ranks);

}  // namespace tutti
