// What the server needs to know: filled by apps/ from the command line and the model's files, const
// afterwards.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"

namespace tutti {

// Cross-origin requests of browsers; refused unless origins are given.
struct CorsConfig {
  std::vector<std::string> allowed_origins;  // "*" = any; empty = CORS off
  std::vector<std::string> allowed_methods = {"*"};
  std::vector<std::string> allowed_headers = {"*"};
  bool allow_credentials = false;
};

struct TlsConfig {
  std::string key_file;   // --ssl-keyfile; empty = no TLS
  std::string cert_file;  // --ssl-certfile
  std::string ca_certs;   // --ssl-ca-certs
  int cert_reqs = 0;      // --ssl-cert-reqs: 0 none, 1 optional, 2 required client certificates
  std::string ciphers;    // --ssl-ciphers

  bool enabled() const { return !cert_file.empty(); }
};

// Sockets, limits and deadlines.
struct HttpConfig {
  std::string host = "127.0.0.1";
  int port = 8000;  // 0 = any free one, see Server::port()
  std::string uds;  // a Unix socket in place of host and port
  TlsConfig tls;
  int io_threads = 1;
  int max_connections = 16384;
  uint32_t max_head_bytes = 64 * 1024;                   // 431 above
  uint64_t max_body_bytes = 32ull * 1024 * 1024;         // 413 above
  uint64_t max_arriving_bytes = 1ull << 30;              // of all large bodies that are not complete: 503 above
  std::chrono::milliseconds head_timeout{10'000};        // first byte to end of head: 408
  std::chrono::milliseconds body_timeout{30'000};        // plus one second for every 16 KiB received: 408
  std::chrono::milliseconds idle_timeout{75'000};        // between two requests of a connection
  std::chrono::milliseconds write_timeout{60'000};       // a client that takes nothing for so long is gone
  std::chrono::milliseconds keep_alive_comment{10'000};  // ": keep-alive" in a silent event stream
};

struct ServerConfig {
  HttpConfig http;
  CorsConfig cors;
  std::vector<std::string> api_keys;  // empty = open
  std::string root_path;              // prefix that a proxy in front strips or keeps, "/llm"
  std::vector<std::string> metrics_prefixes = {"tutti:", "vllm:"};

  std::string response_role = "assistant";
  Json default_chat_template_kwargs = Json::object();
  bool trust_request_chat_template = false;
  bool enable_auto_tool_choice = false;
  std::string tool_call_parser;  // a name of ToolParser::names()
  bool return_tokens_as_token_ids = false;
  bool enable_request_id_headers = false;
  bool enable_force_include_usage = false;
  bool enable_prompt_tokens_details = false;
  bool log_requests = false;     // --enable-log-requests
  bool log_outputs = false;      // --enable-log-outputs
  int64_t max_log_len = -1;      // characters of a prompt or an answer in the log; -1 = all
  int stream_interval = 1;       // tokens per streamed chunk, after the first
  int64_t max_logprobs = 20;     // -1 = no limit
  bool priority_policy = false;  // requests may carry `priority`
  std::optional<std::chrono::milliseconds> request_timeout;  // for every request that states none
  bool keep_alive_on_engine_failure = false;                 // go on answering 503 in place of ending
  std::string version;                                       // of the program, for /version
};

// Sampling defaults that a model brings in generation_config.json.
struct GenerationDefaults {
  std::optional<double> temperature;
  std::optional<double> top_p;
  std::optional<int32_t> top_k;
  std::optional<double> min_p;
  std::optional<double> repetition_penalty;
  std::optional<int32_t> max_tokens;  // "max_new_tokens": also a ceiling

  // From generation_config.json or --override-generation-config. Throws ConfigError naming the key.
  static GenerationDefaults from_json(const Json& config, const std::string& source);
};

// The model that is served, as the API shows it.
struct ModelInfo {
  std::vector<std::string> served_names;  // the first is the reported one
  std::string root;                       // path
  int64_t max_model_len = 0;
  int64_t vocab_size = 0;
  std::vector<int32_t> eos_token_ids;
  GenerationDefaults defaults;
};

}  // namespace tutti
