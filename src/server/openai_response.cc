#include "server/openai_response.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/log.h"

namespace tutti {
namespace {

// JSON has no infinity.
double finite(float logprob) { return std::isfinite(logprob) ? logprob : -9999.0; }

const char* error_type(int status) {
  switch (status) {
    case 401:
      return "AuthenticationError";
    case 404:
      return "NotFoundError";
    case 405:
      return "MethodNotAllowedError";
    case 429:
      return "RateLimitError";
    case 500:
      return "InternalServerError";
    case 503:
      return "ServiceUnavailableError";
    case 504:
      return "TimeoutError";
    default:
      return "BadRequestError";
  }
}

int64_t count_characters(std::string_view text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; });
}

// The chosen token comes first, then the best ones in order; the chosen one may be among them.
size_t num_shown(const TokenLogprobs& token, int num_top) {
  const size_t given = token.empty() ? 0 : token.size() - 1;
  return num_top < 0 ? given : std::min(given, static_cast<size_t>(num_top));
}

}  // namespace

void append_json_string(std::string* out, std::string_view text) {
  out->push_back('"');
  size_t plain = 0;  // start of what needs no escape
  for (size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    if (c >= 0x20 && c != '"' && c != '\\') continue;
    out->append(text.substr(plain, i - plain));
    plain = i + 1;
    switch (c) {
      case '"':
        *out += "\\\"";
        break;
      case '\\':
        *out += "\\\\";
        break;
      case '\n':
        *out += "\\n";
        break;
      case '\r':
        *out += "\\r";
        break;
      case '\t':
        *out += "\\t";
        break;
      default:
        fmt::format_to(std::back_inserter(*out), "\\u{:04x}", c);
    }
  }
  out->append(text.substr(plain));
  out->push_back('"');
}

Json usage_json(const Usage& usage, bool with_details) {
  Json json = {{"prompt_tokens", usage.prompt_tokens},
               {"total_tokens", usage.prompt_tokens + usage.completion_tokens},
               {"completion_tokens", usage.completion_tokens}};
  json["prompt_tokens_details"] = nullptr;
  if (with_details) json["prompt_tokens_details"] = {{"cached_tokens", usage.cached_tokens}};
  return json;
}

Json error_json(int status, const std::string& message, const std::string& param) {
  Json error = {{"message", message}, {"type", error_type(status)}, {"param", nullptr}, {"code", status}};
  if (!param.empty()) error["param"] = param;
  return {{"error", error}};
}

HttpResponse error_response(int status, const std::string& message, const std::string& param) {
  HttpResponse response;
  response.status = status;
  response.body = dump_json(error_json(status, message, param));
  if (status == 429 || status == 503) response.headers.emplace_back("retry-after", "1");
  if (status == 401) response.headers.emplace_back("www-authenticate", "Bearer");
  return response;
}

HttpResponse json_response(const Json& body) {
  HttpResponse response;
  response.body = dump_json(body);
  return response;
}

HttpResponse current_exception_response(const HttpRequest& request) {
  try {
    throw;
  } catch (const InvalidRequest& e) {
    return error_response(e.http_status(), e.what(), e.param());
  } catch (const std::exception& e) {
    log::error("{} {}: {}", request.method, request.path, e.what());
    return error_response(500, e.what());
  }
}

std::string LogprobWriter::text(int32_t token_id) const {
  return as_ids_ ? fmt::format("token_id:{}", token_id) : tokenizer_.decode({token_id}, false);
}

Json LogprobWriter::chat_entry(const TokenLogprob& token) const {
  Json entry = {{"token", text(token.token_id)}, {"logprob", finite(token.logprob)}};
  Json bytes = Json::array();
  for (const char c : tokenizer_.token_bytes(token.token_id)) bytes.push_back(static_cast<unsigned char>(c));
  entry["bytes"] = std::move(bytes);
  return entry;
}

Json LogprobWriter::chat(const std::vector<TokenLogprobs>& tokens, int num_top) const {
  Json content = Json::array();
  for (const TokenLogprobs& token : tokens) {
    if (token.empty()) continue;
    Json entry = chat_entry(token[0]);
    Json top = Json::array();
    for (size_t i = 1; i <= num_shown(token, num_top); ++i) top.push_back(chat_entry(token[i]));
    entry["top_logprobs"] = std::move(top);
    content.push_back(std::move(entry));
  }
  return {{"content", std::move(content)}};
}

Json LogprobWriter::completion(const std::vector<int32_t>& ids, const std::vector<TokenLogprobs>& tokens,
                               int num_top, int64_t* offset) const {
  Json out = {{"text_offset", Json::array()},
              {"token_logprobs", Json::array()},
              {"tokens", Json::array()},
              {"top_logprobs", Json::array()}};
  for (size_t i = 0; i < ids.size(); ++i) {
    const std::string token = text(ids[i]);
    out["text_offset"].push_back(*offset);
    out["tokens"].push_back(token);
    *offset += count_characters(token);
    if (i >= tokens.size() || tokens[i].empty()) {
      out["token_logprobs"].push_back(nullptr);
      out["top_logprobs"].push_back(nullptr);
      continue;
    }
    const TokenLogprobs& given = tokens[i];
    out["token_logprobs"].push_back(finite(given[0].logprob));
    // The chosen token is shown even when it is not among the best.
    Json top = Json::object();
    for (size_t k = 1; k <= num_shown(given, num_top); ++k)
      top[text(given[k].token_id)] = finite(given[k].logprob);
    top[token] = finite(given[0].logprob);
    out["top_logprobs"].push_back(std::move(top));
  }
  return out;
}

Json LogprobWriter::prompt(const std::vector<TokenLogprobs>& tokens) const {
  Json out = Json::array();
  for (const TokenLogprobs& token : tokens) {
    if (token.empty()) {
      out.push_back(nullptr);
      continue;
    }
    Json entry = Json::object();
    for (const TokenLogprob& t : token) {
      entry[std::to_string(t.token_id)] = {{"logprob", finite(t.logprob)},
                                           {"rank", t.rank},
                                           {"decoded_token", tokenizer_.decode({t.token_id}, false)}};
    }
    out.push_back(std::move(entry));
  }
  return out;
}

}  // namespace tutti
