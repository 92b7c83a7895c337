// Who listens on a TCP port of this machine: for the message when ours is taken.
#pragma once

#include <string>

namespace tutti {

// " by pid 4711 (vllm)", or "" when it cannot be told (another user's process, another container).
std::string describe_port_owner(int port);

}  // namespace tutti
