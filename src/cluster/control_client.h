// A node's connection to the head's control port. gRPC stays behind this header.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/deadline.h"
#include "cluster/control_messages.h"
#include "cluster/tls_identity.h"

namespace tutti {

class ControlClient {
 public:
  struct Callbacks {
    std::function<void(HeadMessage message)> on_message;  // on the client's own thread
    std::function<void(std::string why)> on_gone;         // likewise, once, last
  };

  // Connects and opens the stream. Throws CommError when the head does not answer before the deadline.
  ControlClient(const std::string& address, int port, const TlsIdentity& identity, Deadline deadline,
                Callbacks callbacks);
  ~ControlClient();

  // Any thread. False when the stream is broken; on_gone() follows.
  bool send(const NodeMessage& message);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// The head's status report. Throws CommError.
std::string fetch_status(const std::string& address, int port, const TlsIdentity& identity, Deadline deadline);

}  // namespace tutti
