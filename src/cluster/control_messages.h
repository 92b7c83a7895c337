// What the head and the nodes say to each other, as plain values; control.proto is the same on the wire.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "cluster/model_files.h"
#include "cluster/node_facts.h"
#include "protocol/channel.h"

namespace tutti {

struct RankFrame {
  int64_t epoch = 0;
  int rank = 0;
  Frame frame;
};

// A node introduces itself.
struct NodeHello {
  std::string name;
  std::string address;
  std::string machine;  // what reaches itself through 127.0.0.1: tells two nodes with one address apart
  int node_rank = -1;   // --node-rank, -1 = any
  int first_rank = -1;  // RANK of the environment, -1 = any
  int num_ranks = 0;    // 0 = as many as the head gives
  int cores = 0;
  std::string processor;
  double memory_gib = 0;
  std::vector<Fact> facts;
  std::vector<Fact> flags;
};

struct NodeModelFiles {
  std::vector<ModelFile> files;
  std::string error;
};

struct RankStarted {
  int64_t epoch = 0;
  int rank = 0;
  pid_t pid = 0;
};

struct RankExit {
  int64_t epoch = 0;
  int rank = 0;
  std::string how;
};

struct NodeHeartbeat {
  std::vector<std::pair<int, char>> states;  // rank, the kernel's state letter
};

struct Leaving {
  std::string reason;
};

using NodeMessage =
    std::variant<std::monostate, NodeHello, NodeModelFiles, RankFrame, RankStarted, RankExit, NodeHeartbeat, Leaving>;

struct Welcome {
  std::string cluster_id;
  std::string head_name;
  std::string node_name;
  std::vector<int> ranks;
  std::string model;
  std::string model_path;
  double shutdown_timeout_s = 0;  // what running requests get when a node wants to leave
};

struct Refusal {
  std::string reason;
  std::vector<std::string> table;
  bool retry = false;
};

struct StartRanks {
  int64_t epoch = 0;
  std::vector<std::pair<int, std::string>> ranks;  // rank, configuration
};

struct StopRanks {
  int64_t epoch = 0;
  std::string reason;
  bool leave = false;
  bool failed = false;
};

struct HeadHeartbeat {};

using HeadMessage = std::variant<std::monostate, Welcome, Refusal, StartRanks, StopRanks, RankFrame, HeadHeartbeat>;

}  // namespace tutti
