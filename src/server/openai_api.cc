#include "server/openai_api.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <ctime>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "server/field_reader.h"
#include "server/generation.h"
#include "server/openai_response.h"
#include "server/random_id.h"

namespace tutti {
namespace {

// Bodies up to this size are parsed and tokenised on the event loop: about a millisecond at most.
constexpr size_t kInlineBytes = 16 * 1024;
// Every sequence has tokens of its own in the engine: a small body must not become gigabytes there.
constexpr int64_t kMaxPromptTokens = 8'000'000;

// Other types are refused so that a web page cannot post here from a browser without asking (CORS).
void require_json(const HttpRequest& request) {
  const std::string* type = request.header("content-type");
  if (type != nullptr && (type->starts_with("application/json") || type->find("+json") != std::string::npos))
    return;
  throw InvalidRequest("the body must be JSON: send `Content-Type: application/json`", "", 415);
}

// "X-Request-Timeout: 2.5", in seconds from the request's arrival.
std::optional<Clock::time_point> deadline_of(const HttpRequest& request, const ServerConfig& config,
                                             Clock::time_point arrival) {
  const std::string* header = request.header("x-request-timeout");
  if (header == nullptr) {
    if (!config.request_timeout) return std::nullopt;
    return arrival + *config.request_timeout;
  }
  double seconds = 0;
  const auto [end, error] = std::from_chars(header->data(), header->data() + header->size(), seconds);
  if (error != std::errc() || end != header->data() + header->size() || !(seconds > 0 && seconds <= 86400)) {
    throw InvalidRequest("the header X-Request-Timeout must be seconds, above 0 and up to 86400", "x-request-timeout");
  }
  return arrival + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

}  // namespace

struct OpenAiApi::Prepared {
  Clock::time_point arrival;  // before anything was parsed
  ApiRequest request;
  std::vector<PreparedPrompt> prompts;
  std::vector<int32_t> max_tokens;
};

OpenAiApi::OpenAiApi(const ApiContext& context, Background& background)
    : context_(context),
      background_(background),
      prompts_(context),
      created_(static_cast<int64_t>(std::time(nullptr))) {}

void OpenAiApi::add_routes(Router& router) {
  router.add("POST", "/v1/completions", [this](const Exchange& e) { generate(e, false); });
  router.add("POST", "/v1/chat/completions", [this](const Exchange& e) { generate(e, true); });
  router.add("GET", "/v1/models", [this](const Exchange& e) { models(e); });
  router.add("GET", "/v1/models/", [this](const Exchange& e) { models(e); });
  const auto plain = [this](HttpResponse (OpenAiApi::*handler)(const std::string&) const) {
    return [this, handler](const Exchange& e) {
      require_json(e->request());
      run_sized(e, [this, e, handler]() -> std::function<void()> {
        HttpResponse response = (this->*handler)(e->request().body);
        return [e, response = std::move(response)] { e->respond(response); };
      });
    };
  };
  router.add("POST", "/tokenize", plain(&OpenAiApi::tokenize));
  router.add("POST", "/detokenize", plain(&OpenAiApi::detokenize));
}

void OpenAiApi::run_sized(const Exchange& exchange, std::function<std::function<void()>()> work) {
  if (exchange->request().body.size() <= kInlineBytes) {
    work()();
    return;
  }
  const size_t bytes = exchange->request().body.size();
  const bool taken = background_.post(bytes, [exchange, work = std::move(work)] {
    std::function<void()> done;
    try {
      done = work();
    } catch (...) {
      done = [exchange, r = current_exception_response(exchange->request())] { exchange->respond(r); };
    }
    exchange->loop().post(std::move(done));
  });
  if (!taken) exchange->respond(error_response(503, "too many large requests at once: try again later"));
}

void OpenAiApi::generate(const Exchange& exchange, bool chat) {
  require_json(exchange->request());
  run_sized(exchange, [this, exchange, chat, arrival = Clock::now()]() -> std::function<void()> {
    auto prepared = std::make_shared<Prepared>(prepare(exchange->request().body, chat));
    prepared->arrival = arrival;
    return [this, exchange, prepared] { start(exchange, std::move(*prepared)); };
  });
}

OpenAiApi::Prepared OpenAiApi::prepare(const std::string& body, bool chat) const {
  const Json json = parse_request_body(body);
  Prepared p;
  p.request = chat ? parse_chat_request(json, context_.config, context_.model)
                   : parse_completion_request(json, context_.config, context_.model);
  check_model(p.request.model);
  p.prompts = prompts_.build(&p.request);
  int64_t total = 0;
  for (const PreparedPrompt& prompt : p.prompts) {
    p.max_tokens.push_back(prompts_.max_tokens(p.request, prompt));
    total += static_cast<int64_t>(prompt.token_ids.size()) * p.request.n;
  }
  if (total > kMaxPromptTokens) {
    throw InvalidRequest(fmt::format("the prompts times n = {} are {} tokens, more than the {} of one request: send fewer at once",
                                     p.request.n, total, kMaxPromptTokens),
                         "n");
  }
  // Of thousands of requests that wait only the tokens are kept.
  p.request.prompts.clear();
  if (p.request.chat) p.request.chat->messages = Json();
  return p;
}

void OpenAiApi::start(const Exchange& exchange, Prepared prepared) const {
  try {
    HttpRequest& http = exchange->request();
    http.body = std::string();
    const std::optional<Clock::time_point> deadline = deadline_of(http, context_.config, prepared.arrival);
    const std::string id = request_id(http, prepared.request);
    if (context_.config.enable_request_id_headers) exchange->add_header("x-request-id", id);
    const std::string full_id = (prepared.request.chat ? "chatcmpl-" : "cmpl-") + id;
    if (context_.config.log_requests) {
      const std::string& text = prepared.prompts.front().text;
      const auto limit = context_.config.max_log_len;
      const size_t num = prepared.prompts.size();
      const size_t tokens = prepared.prompts.front().token_ids.size();
      log::fact("request", "{} from {}: {}{}{}{}: {}", full_id, http.peer, num > 1 ? fmt::format("{} prompts, ", num) : "",
                prepared.request.n > 1 ? fmt::format("n = {}, ", prepared.request.n) : "",
                fmt::format("{} token{}", tokens, tokens == 1 ? "" : "s"), num > 1 ? " in the first" : "",
                dump_json(limit < 0 ? text : text.substr(0, static_cast<size_t>(limit))));
    }
    if (!prepared.request.echo) {
      for (PreparedPrompt& prompt : prepared.prompts) prompt.text = std::string();
    }
    const auto generation = std::make_shared<Generation>(context_, exchange, std::move(prepared.request),
                                                         std::move(prepared.prompts), full_id,
                                                         Generation::Times{prepared.arrival, deadline});
    generation->start(prepared.max_tokens);
  } catch (...) {
    HttpResponse response = current_exception_response(exchange->request());
    if (!exchange->started()) exchange->respond(std::move(response));
  }
}

std::string OpenAiApi::request_id(const HttpRequest& request, const ApiRequest& api) const {
  if (!api.request_id.empty()) return api.request_id;
  const std::string* header = request.header("x-request-id");
  return header != nullptr && valid_request_id(*header) ? *header : random_id();
}

void OpenAiApi::check_model(const std::string& model) const {
  const auto& names = context_.model.served_names;
  if (model.empty() || std::find(names.begin(), names.end(), model) != names.end()) return;
  constexpr size_t kMost = 200;
  const std::string shown = model.size() <= kMost ? "`" + model + "`" : "of " + std::to_string(model.size()) + " bytes";
  throw InvalidRequest("The model " + shown + " does not exist; this server has `" + names.front() + "`",
                       "model", 404);
}

Json OpenAiApi::model_card(const std::string& name) const {
  return {{"id", name},
          {"object", "model"},
          {"created", created_},
          {"owned_by", "tutti"},
          {"root", context_.model.root},
          {"parent", nullptr},
          {"max_model_len", context_.model.max_model_len},
          {"permission", Json::array()}};
}

void OpenAiApi::models(const Exchange& exchange) const {
  constexpr std::string_view kRoute = "/v1/models/";
  const std::string& path = exchange->request().path;
  if (const size_t at = path.find(kRoute); at != std::string::npos && path.size() > at + kRoute.size()) {
    const std::string name = path.substr(at + kRoute.size());
    check_model(name);
    exchange->respond(json_response(model_card(name)));
    return;
  }
  Json data = Json::array();
  for (const std::string& name : context_.model.served_names) data.push_back(model_card(name));
  exchange->respond(json_response({{"object", "list"}, {"data", std::move(data)}}));
}

HttpResponse OpenAiApi::tokenize(const std::string& body) const {
  const Json json = parse_request_body(body);
  const FieldReader fields(json);
  check_model(fields.string("model").value_or(""));
  ApiRequest request;
  std::string text;
  if (fields.find("messages") != nullptr) {
    request.add_special_tokens = fields.boolean("add_special_tokens").value_or(false);
    text = prompts_.render(parse_chat_prompt(json, context_.config));
  } else {
    const auto prompt = fields.string("prompt");
    if (!prompt) throw InvalidRequest("`prompt` or `messages` is missing", "prompt");
    request.add_special_tokens = fields.boolean("add_special_tokens").value_or(true);
    text = *prompt;
  }
  const std::vector<int32_t> ids = prompts_.tokenize(text, request);
  Json out = {{"count", ids.size()}, {"max_model_len", context_.model.max_model_len}, {"tokens", ids}};
  out["token_strs"] = nullptr;
  if (fields.boolean("return_token_strs").value_or(false)) {
    out["token_strs"] = Json::array();
    for (const int32_t id : ids) out["token_strs"].push_back(context_.tokenizer.token(id));
  }
  return json_response(out);
}

HttpResponse OpenAiApi::detokenize(const std::string& body) const {
  const Json json = parse_request_body(body);
  const FieldReader fields(json);
  check_model(fields.string("model").value_or(""));
  if (fields.find("tokens") == nullptr) throw InvalidRequest("`tokens` is missing", "tokens");
  const std::vector<int32_t> ids = fields.token_ids("tokens", context_.model.vocab_size);
  return json_response({{"prompt", context_.tokenizer.decode(ids, false)}});
}

}  // namespace tutti
