#include "server/server.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <optional>

#include "base/error.h"
#include "base/log.h"
#include "server/api_context.h"
#include "server/background.h"
#include "server/http_server.h"
#include "server/openai_api.h"
#include "server/status_api.h"
#include "server/tool_parser.h"

namespace tutti {
namespace {

constexpr auto kDrainPoll = std::chrono::milliseconds(20);
// For the last bytes of answers to reach their clients, at least.
constexpr auto kFlushTime = std::chrono::seconds(2);

std::string join_names(const std::vector<std::string>& names) {
  std::string out;
  for (const std::string& name : names) out += (out.empty() ? "" : " or ") + name;
  return out;
}

}  // namespace

struct Server::Impl {
  Impl(const ServerConfig& c, const ModelInfo& m, AsyncEngine& e, Metrics& metrics,
       const Tokenizer& tokenizer, const ChatTemplate& chat_template)
      : config(c),
        model(m),
        engine(e),
        context{config, model, tokenizer, chat_template, engine},
        router(config, metrics),
        openai(context, background),
        status(context, metrics),
        http(config.http, [this](std::shared_ptr<HttpExchange> exchange) { router.handle(exchange); }) {
    if (config.enable_auto_tool_choice && ToolParser::make(config.tool_call_parser) == nullptr) {
      throw ConfigError("--enable-auto-tool-choice needs a --tool-call-parser: " +
                        join_names(ToolParser::names()) + ", not \"" + config.tool_call_parser + "\"");
    }
    openai.add_routes(router);
    status.add_routes(router);
    engine.on_failure([this](const std::string& message) {
      {
        std::lock_guard lock(mutex);
        failure = message;
      }
      if (!config.keep_alive_on_engine_failure) http.stop(Deadline::after(kFlushTime));
    });
  }

  // On the first loop, until the requests have ended or may not go on.
  void poll_drain() {
    std::string why;
    {
      std::lock_guard lock(mutex);
      flushing = engine.num_open() == 0 || Clock::now() >= *drain_until;
      why = end_reason;
    }
    if (flushing) {
      // Not by the engine, which may be in the middle of a long step.
      const int64_t cut = engine.abort_all("the server is shutting down");
      num_aborted += cut;
      if (cut > 0) log::warning("{} open request{} cut off: {}", cut, cut == 1 ? " is" : "s are", why);
      engine.stop();
      flush();
    } else {
      http.loop().post_after(kDrainPoll, [this] { poll_drain(); });
    }
  }

  // Clients that read slowly have as long as requests that run.
  void flush() {
    std::lock_guard lock(mutex);
    http.stop(Deadline(std::max(*drain_until, Clock::now() + kFlushTime)));
  }

  const ServerConfig config;
  const ModelInfo model;
  AsyncEngine& engine;
  const ApiContext context;
  std::mutex mutex;
  std::optional<Clock::time_point> drain_until;
  std::string end_reason;  // why it is not later
  std::atomic<int64_t> num_aborted{0};
  std::atomic<bool> flushing{false};  // the engine has ended, answers are on their way
  std::optional<std::string> failure;
  Router router;
  OpenAiApi openai;
  StatusApi status;
  HttpServer http;
  Background background;  // ends before the loops that it posts to
};

Server::Server(const ServerConfig& config, const ModelInfo& model, AsyncEngine& engine, Metrics& metrics,
               const Tokenizer& tokenizer, const ChatTemplate& chat_template)
    : impl_(std::make_unique<Impl>(config, model, engine, metrics, tokenizer, chat_template)) {}

// The engine's thread posts to the loops: it ends before they do.
Server::~Server() { impl_->engine.shutdown(); }

int Server::port() const { return impl_->http.port(); }
std::string Server::address() const { return impl_->http.address(); }
int64_t Server::num_aborted() const { return impl_->num_aborted; }
Router& Server::router() { return impl_->router; }

void Server::run() {
  impl_->http.run();
  impl_->engine.shutdown();
  std::lock_guard lock(impl_->mutex);
  if (impl_->failure && !impl_->config.keep_alive_on_engine_failure) throw CommError(*impl_->failure);
}

void Server::drain(Deadline deadline, const std::string& why) {
  impl_->engine.drain();
  bool first = false;
  {
    std::lock_guard lock(impl_->mutex);
    first = !impl_->drain_until;
    if (first || deadline.instant() < *impl_->drain_until) {
      impl_->drain_until = deadline.instant();
      impl_->end_reason = why;
    }
  }
  if (first) impl_->http.loop().post([impl = impl_.get()] { impl->poll_drain(); });
  if (impl_->flushing) impl_->flush();
}

}  // namespace tutti
