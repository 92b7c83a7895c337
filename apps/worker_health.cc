#include "apps/worker_health.h"

#include <fmt/format.h>

#include "base/json.h"
#include "base/log.h"
#include "cluster/membership.h"
#include "cluster/network.h"
#include "server/port_owner.h"

namespace tutti {
namespace {

constexpr int kHealthPort = 8001;

HttpResponse answer(const std::string& path, const NodeReport& report) {
  if (path == "/metrics") return {.content_type = "text/plain; version=0.0.4; charset=utf-8", .body = node_metrics(report)};
  if (path != "/health" && path != "/ready") {
    return {.status = 404, .body = dump_json({{"error", "this port has /health, /ready and /metrics; the API is on the head"}})};
  }
  const bool good = path == "/health" || report.serves;
  std::vector<int> ranks;
  for (const NodeReport::Rank& rank : report.ranks) ranks.push_back(rank.rank);
  return {.status = good ? 200 : 503,
          .body = dump_json({{"state", report.serves ? "ready" : report.joined ? "loading" : "waiting for the head"}, {"ranks", ranks}})};
}

HttpConfig http_config(const std::string& host, int port) {
  HttpConfig http;
  http.host = host;
  http.port = port;
  http.max_connections = 64;
  http.max_body_bytes = 4096;
  return http;
}

}  // namespace

int default_health_port(const std::string& host, const std::string& advice) {
  if (port_is_free(host, kHealthPort)) return kHealthPort;
  log::note("port {} is taken{}: no /health and /metrics of this node{}", kHealthPort, describe_port_owner(kHealthPort), advice);
  return 0;
}

std::string node_metrics(const NodeReport& report) {
  std::string text;
  const auto family = [&](const char* name, const char* type, const char* help) {
    text += fmt::format("# HELP {0} {1}\n# TYPE {0} {2}\n", name, help, type);
  };
  family("tutti:worker_joined", "gauge", "1 while this node belongs to a cluster.");
  text += fmt::format("tutti:worker_joined {}\n", report.joined ? 1 : 0);
  family("tutti:worker_ready", "gauge", "1 while its ranks serve.");
  text += fmt::format("tutti:worker_ready {}\n", report.serves ? 1 : 0);
  family("tutti:worker_rank_up", "gauge", "1 while the rank's process runs, 0 when it is stopped.");
  for (const auto& rank : report.ranks) {
    text += fmt::format("tutti:worker_rank_up{{rank=\"{}\"}} {}\n", rank.rank, rank.state == 'T' || rank.state == 't' ? 0 : 1);
  }
  family("tutti:worker_rank_steps_total", "counter", "Steps that the rank has answered.");
  for (const auto& rank : report.ranks) text += fmt::format("tutti:worker_rank_steps_total{{rank=\"{}\"}} {}\n", rank.rank, rank.steps);
  return text;
}

WorkerHealth::WorkerHealth(const std::string& host, int port, std::function<NodeReport()> report)
    : server_(std::make_unique<HttpServer>(http_config(host, port), [report = std::move(report)](const std::shared_ptr<HttpExchange>& e) {
        e->respond(answer(e->request().path, report()));
      })) {
  thread_ = std::thread([this] { server_->run(); });
}

WorkerHealth::~WorkerHealth() {
  server_->stop(Deadline::after(std::chrono::milliseconds(200)));
  thread_.join();
}

}  // namespace tutti
