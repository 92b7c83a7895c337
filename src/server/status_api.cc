#include "server/status_api.h"

#include <fmt/format.h>

#include <charconv>

#include "base/error.h"
#include "server/openai_response.h"

namespace tutti {
namespace {

constexpr auto kPoll = std::chrono::milliseconds(20);

// "?timeout=2.5", in seconds.
Clock::duration timeout_of(const HttpRequest& request, double fallback) {
  double seconds = fallback;
  if (const auto text = request.query_param("timeout")) {
    const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), seconds);
    if (error != std::errc() || end != text->data() + text->size() || !(seconds > 0 && seconds <= 300)) {
      throw InvalidRequest("`timeout` must be seconds, above 0 and up to 300", "timeout");
    }
  }
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

}  // namespace

void StatusApi::add_routes(Router& router) {
  constexpr auto kOpen = Router::Access::kOpen;
  router.add(
      "GET", "/health", [this](const Exchange& e) { health(e); }, kOpen);
  router.add(
      "GET", "/ready", [this](const Exchange& e) { ready(e); }, kOpen);
  router.add("GET", "/health_generate", [this](const Exchange& e) { health_generate(e); });
  router.add("GET", "/load", [this](const Exchange& e) { load(e); });
  router.add("GET", "/version", [this](const Exchange& e) {
    e->respond(json_response({{"version", context_.config.version}}));
  });
  router.add("GET", "/metrics", [this](const Exchange& e) {
    e->respond({.content_type = Metrics::kContentType, .body = metrics_.render(context_.engine.stats())});
  });
}

// The process and its engine; with ?deep also that steps are made while there is work.
void StatusApi::health(const Exchange& exchange) const {
  const EngineStats stats = context_.engine.stats();
  if (!stats.healthy) {
    exchange->respond(error_response(503, "the engine has failed: " + stats.error));
  } else if (!exchange->request().query_param("deep")) {
    exchange->respond(json_response({{"status", "ok"}}));
  } else {
    wait_for_step(exchange, stats.steps, Clock::now() + timeout_of(exchange->request(), 10.0));
  }
}

void StatusApi::wait_for_step(const Exchange& exchange, int64_t steps_before,
                              Clock::time_point deadline) const {
  const EngineStats stats = context_.engine.stats();
  const int64_t open = context_.engine.num_open();
  if (!stats.healthy) {
    exchange->respond(error_response(503, "the engine has failed: " + stats.error));
  } else if (open == 0 || stats.steps != steps_before) {
    exchange->respond(json_response({{"status", "ok"}, {"steps", stats.steps}, {"requests", open}}));
  } else if (Clock::now() >= deadline) {
    exchange->respond(error_response(
        503, fmt::format("the engine is stuck: {} requests are open and step {} is still the last", open,
                         stats.steps)));
  } else {
    exchange->loop().post_after(
        kPoll, [this, exchange, steps_before, deadline] { wait_for_step(exchange, steps_before, deadline); });
  }
}

// One token through the whole cluster.
void StatusApi::health_generate(const Exchange& exchange) const {
  EngineRequest request;
  request.id = context_.engine.next_id();
  request.prompt_token_ids = {context_.tokenizer.bos_id().value_or(0)};
  request.sampling.temperature = 0.0;
  request.sampling.max_tokens = 1;
  request.sampling.ignore_eos = true;
  request.deadline = Clock::now() + timeout_of(exchange->request(), 20.0);
  request.cache_salt = "health";
  const RequestId id = request.id;
  const Clock::time_point deadline = *request.deadline;
  const auto begin = Clock::now();
  const auto admission = context_.engine.submit(
      std::move(request), 1, exchange->loop(), [exchange, begin](const TokenOutput& output) {
        if (exchange->started()) return;
        if (output.finish_reason == FinishReason::kError || output.finish_reason == FinishReason::kAbort) {
          exchange->respond(error_response(503, "no token could be generated: " + output.error));
        } else if (output.finish_reason != FinishReason::kNone) {
          const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
          exchange->respond(json_response({{"status", "ok"}, {"seconds", seconds}}));
        }
      });
  if (admission != AsyncEngine::Admission::kAccepted) {
    exchange->respond(error_response(503, "the engine takes no request"));
    return;
  }
  exchange->on_disconnect([this, id] { context_.engine.end(id, FinishReason::kAbort); });
  // An engine that is stuck does not look at deadlines. The exchange lives as long as its handlers are called.
  exchange->on_deadline(deadline, [this, id, e = exchange.get()] {
    if (e->started()) return;
    context_.engine.end(id, FinishReason::kAbort);
    e->respond(error_response(503, fmt::format("no token came in time: {} requests are open and step {} is still the last",
                                               context_.engine.num_open(), context_.engine.stats().steps)));
  });
}

void StatusApi::ready(const Exchange& exchange) const {
  if (context_.engine.draining()) {
    exchange->respond(error_response(503, "the server is shutting down"));
  } else if (const EngineStats stats = context_.engine.stats(); !stats.healthy) {
    exchange->respond(error_response(503, "the engine has failed: " + stats.error));
  } else {
    exchange->respond(json_response({{"status", "ready"}}));
  }
}

void StatusApi::load(const Exchange& exchange) const {
  const EngineStats stats = context_.engine.stats();
  exchange->respond(json_response({{"server_load", context_.engine.num_open()},
                                   {"running", stats.num_running},
                                   {"waiting", stats.num_waiting},
                                   {"kv_blocks_used", stats.kv_blocks_used},
                                   {"kv_blocks_total", stats.kv_blocks_total}}));
}

}  // namespace tutti
