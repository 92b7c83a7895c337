// The head's control port: accepts nodes, hands their messages to the handler, carries the handler's answers. gRPC stays
// behind this header.
#pragma once

#include <memory>
#include <string>

#include "cluster/control_messages.h"
#include "cluster/tls_identity.h"

namespace tutti {

// The head's end of one node's stream. Thread-safe.
class NodeSession {
 public:
  virtual ~NodeSession() = default;
  // False when the stream is broken; the handler's on_gone() follows.
  virtual bool send(const HeadMessage& message) = 0;
  // Sends unless another thread is sending: a busy stream needs no sign of life.
  virtual void send_if_idle(const HeadMessage& message) = 0;
  // Breaks the stream.
  virtual void end() = 0;
};

// Called on the session's own thread: on_message for each message in order, then on_gone once.
class ControlHandler {
 public:
  virtual ~ControlHandler() = default;
  virtual void on_message(const std::shared_ptr<NodeSession>& session, NodeMessage message) = 0;
  virtual void on_gone(const std::shared_ptr<NodeSession>& session) = 0;
  virtual std::string status_json() = 0;
};

class ControlServer {
 public:
  // Listens on all addresses. Throws ConfigError when the port cannot be had. `handler` outlives the server.
  ControlServer(int port, const TlsIdentity& identity, ControlHandler& handler);
  // Breaks all streams and waits for their threads.
  ~ControlServer();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tutti
