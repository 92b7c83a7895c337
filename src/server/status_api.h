// What operators and load balancers ask: /health, /ready, /health_generate, /metrics, /load, /version.
#pragma once

#include <chrono>
#include <memory>

#include "server/api_context.h"
#include "server/router.h"

namespace tutti {

class StatusApi {
 public:
  StatusApi(const ApiContext& context, Metrics& metrics) : context_(context), metrics_(metrics) {}
  void add_routes(Router& router);

 private:
  using Exchange = std::shared_ptr<HttpExchange>;

  void health(const Exchange& exchange) const;
  // Work is waiting: healthy once the step counter has moved.
  void wait_for_step(const Exchange& exchange, int64_t steps_before, Clock::time_point deadline) const;
  void health_generate(const Exchange& exchange) const;
  void ready(const Exchange& exchange) const;
  void load(const Exchange& exchange) const;

  const ApiContext& context_;
  Metrics& metrics_;
};

}  // namespace tutti
