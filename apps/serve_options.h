// What `tutti serve` (and `generate`, which shares the model's flags) was asked for.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "apps/flag_parser.h"
#include "base/json.h"
#include "base/log.h"
#include "cluster/launcher.h"
#include "cluster/node_facts.h"
#include "cluster/token.h"
#include "config/engine_config.h"
#include "protocol/sampling_params.h"
#include "server/server_config.h"

namespace tutti {

struct ServeOptions {
  EngineConfig engine;
  ServerConfig server;
  LaunchFlags launch;
  TokenFlags token;
  std::string interface;            // --network-interface
  std::string host;                 // "" = not given
  std::string tokenizer;            // --tokenizer, "" = the model's
  std::string revision;
  std::string chat_template;        // a file, or the template itself
  std::string generation_config = "auto";
  Json override_generation_config = Json::object();
  double ready_timeout_s = 600;
  double recovery_wait_s = 0;       // --recovery-wait
  double shutdown_timeout_s = 30;
  bool log_stats = true;
  log::Options log;
  std::vector<std::string> notes;   // of accepted hints, to be shown once the log is set up
  bool parallel_given = false;      // -tp or -pp was typed
  bool step_size_given = false;     // --max-num-batched-tokens was typed
  std::vector<Fact> cluster_flags;    // flags that must be the same on all nodes: those that were given
  std::vector<Fact> effective_flags;  // the same with defaults, which a head compares with

  // `generate` only.
  std::string prompt;
  bool chat = false;
  SamplingParams sampling;
};

// Throws ConfigError for what cannot be. `arguments` are those after the subcommand.
ServeOptions parse_serve_options(const std::vector<std::string>& arguments);
// The flags of a model and its ranks, which every command that loads one takes, besides those bound to `parser` already.
ServeOptions parse_model_options(FlagParser& parser, const std::vector<std::string>& arguments);
// The model's flags and --prompt, --max-tokens, --temperature ...
ServeOptions parse_generate_options(const std::vector<std::string>& arguments);

// --log-format, of every command that has it.
log::Format parse_log_format(const std::string& name);

// Every flag that `tutti serve` understands, for tests.
std::vector<std::string> serve_flag_names();

}  // namespace tutti
