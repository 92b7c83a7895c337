// The flags of the API: who may ask, over what, and what is counted.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>

#include "apps/environment.h"
#include "apps/serve_values.h"
#include "base/error.h"

namespace tutti {

void check_range(const char* flag, double value, double least, double most) {
  if (value >= least && value <= most) return;
  throw ConfigError(fmt::format("{} {:.12g}: expected {:.12g} to {:.12g}", flag, value, least, most));
}

Json parse_object(const std::string& text, const std::string& flag) {
  Json json = parse_json(text, flag);
  if (!json.is_object()) throw ConfigError(flag + ": expected a JSON object, got " + text);
  return json;
}

namespace {

// A JSON list of strings, or one plain string.
std::vector<std::string> parse_string_list(const std::string& text, const std::string& flag) {
  if (!text.starts_with("[")) return {text};
  std::vector<std::string> values;
  for (const Json& item : parse_json(text, flag)) {
    if (!item.is_string()) throw ConfigError(flag + ": expected a JSON list of strings, got " + text);
    values.push_back(item.get<std::string>());
  }
  return values;
}

// Half a TLS configuration must not end in a server without TLS.
void check_tls(const TlsConfig& tls) {
  check_range("--ssl-cert-reqs", tls.cert_reqs, 0, 2);
  const std::pair<const char*, bool> given[] = {{"--ssl-keyfile", !tls.key_file.empty()},
                                                {"--ssl-ca-certs", !tls.ca_certs.empty()},
                                                {"--ssl-cert-reqs", tls.cert_reqs > 0},
                                                {"--ssl-ciphers", !tls.ciphers.empty()}};
  for (const auto& [flag, is_given] : given) {
    if (is_given && !tls.enabled()) {
      throw ConfigError(std::string(flag) + " without --ssl-certfile: the API would be served without TLS");
    }
  }
  if (tls.cert_reqs > 0 && tls.ca_certs.empty()) {
    throw ConfigError(fmt::format("--ssl-cert-reqs {} without --ssl-ca-certs: who signs the clients' certificates?", tls.cert_reqs));
  }
}

// A name that Prometheus reads: letters, digits, `_` and `:`, no digit first.
void check_metrics_prefix(const std::string& prefix) {
  const auto fits = [](unsigned char c) { return (std::isalnum(c) && c < 128) || c == '_' || c == ':'; };
  if (prefix.empty() || (std::all_of(prefix.begin(), prefix.end(), fits) && !std::isdigit(static_cast<unsigned char>(prefix[0])))) return;
  throw ConfigError("--metrics-prefix " + Json(prefix).dump(-1, ' ', false, Json::error_handler_t::replace) +
                    ": expected letters, digits, _ and :, and no digit first, as in vllm:");
}

}  // namespace

void settle_server(ServeOptions& o, const RawValues& raw) {
  ServerConfig& s = o.server;
  if (s.api_keys.empty()) {
    if (const std::string key = environment("VLLM_API_KEY"); !key.empty()) s.api_keys.push_back(key);
    if (const std::string key = environment("TUTTI_API_KEY"); !key.empty()) s.api_keys.push_back(key);
  }
  if (std::find(s.api_keys.begin(), s.api_keys.end(), "") != s.api_keys.end()) {
    throw ConfigError("--api-key \"\": an empty key would let everybody in; leave the flag out for a server without keys");
  }
  o.host = raw.host;
  // Without a key the API is for this machine only, unless somebody says otherwise.
  s.http.host = !raw.host.empty() ? raw.host : s.api_keys.empty() ? "127.0.0.1" : "0.0.0.0";
  if (s.http.port < 0 || s.http.port > 65535) throw ConfigError(fmt::format("--port {}: expected 0 to 65535", s.http.port));
  check_tls(s.http.tls);
  check_range("--request-timeout", raw.request_timeout, 0, 86400);
  if (raw.request_timeout > 0) s.request_timeout = std::chrono::milliseconds(std::llround(std::ceil(raw.request_timeout * 1e3)));
  check_range("--stream-interval", s.stream_interval, 1, 1 << 20);
  check_range("--max-logprobs", static_cast<double>(s.max_logprobs), -1, 1 << 30);
  s.cors.allowed_origins = parse_string_list(raw.allowed_origins, "--allowed-origins");
  s.cors.allowed_methods = parse_string_list(raw.allowed_methods, "--allowed-methods");
  s.cors.allowed_headers = parse_string_list(raw.allowed_headers, "--allowed-headers");
  s.default_chat_template_kwargs = parse_object(raw.chat_template_kwargs, "--default-chat-template-kwargs");
  s.priority_policy = o.engine.scheduler.priority_policy;
  s.version = build_id();
  check_metrics_prefix(raw.metrics_prefix);
  if (raw.metrics_prefix == "tutti:") {
    s.metrics_prefixes = {"tutti:"};
  } else if (!raw.metrics_prefix.empty()) {
    s.metrics_prefixes = {"tutti:", raw.metrics_prefix};
  }
  if (o.engine.served_model_names.empty()) o.engine.served_model_names = {o.engine.model};
}

}  // namespace tutti
