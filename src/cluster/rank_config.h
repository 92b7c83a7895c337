// What one rank's process is told by its parent, as JSON in the first frame of its channel: who it is, where the others
// are, and the engine's configuration.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"
#include "config/engine_config.h"

namespace tutti {

struct RankConfig {
  int rank = 0;
  int64_t epoch = 0;                       // raised with every forming of the cluster; names shared objects
  std::string node_name;
  std::string address;                     // of this node, for connections of the data plane
  int port_min = 0;                        // of the data plane's listening sockets; 0, 0 = any
  int port_max = 0;
  std::string secret;                      // of this epoch: both ends of a data connection prove that they know it
  std::vector<std::string> node_of_rank;   // join identity of each rank's node: equal text means the same node
  EngineConfig engine;

  int world_size() const { return static_cast<int>(node_of_rank.size()); }
  int ranks_on_node() const;
  // This rank's number among those of its node.
  int local_rank() const;
};

Json to_json(const EngineConfig& config);
// Throws ConfigError / IoError naming the field that is missing or of the wrong type.
EngineConfig engine_config_from_json(const Json& json);

std::string to_text(const RankConfig& config);
RankConfig rank_config_from_text(const std::string& text);

}  // namespace tutti
