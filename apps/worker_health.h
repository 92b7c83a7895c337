// The HTTP port of a node that is not the head: /health, /ready and /metrics, for whoever watches the machine. It tells
// nothing that the API's keys protect. One thread of its own.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "cluster/node_agent.h"
#include "server/http_server.h"

namespace tutti {

class WorkerHealth {
 public:
  // `report` is called on the server's thread. Throws ConfigError when the port is taken.
  WorkerHealth(const std::string& host, int port, std::function<NodeReport()> report);
  ~WorkerHealth();
  int port() const { return server_->port(); }

 private:
  std::unique_ptr<HttpServer> server_;
  std::thread thread_;
};

// 8001, or 0 with a note when it is taken: a node works without. `advice` ends the note. Throws ConfigError when `host` is not of
// this machine.
int default_health_port(const std::string& host, const std::string& advice);

// Prometheus text.
std::string node_metrics(const NodeReport& report);

}  // namespace tutti
