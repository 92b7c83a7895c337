// The head's view of a model before ranks load it: configuration, tokenizer, chat template, sampling defaults. Built on
// the main thread, const afterwards.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "apps/serve_options.h"
#include "cluster/model_files.h"
#include "config/model_config.h"
#include "server/server_config.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace tutti {

struct ServedModel {
  ModelConfig config;
  ModelInfo info;
  std::unique_ptr<Tokenizer> tokenizer;
  std::unique_ptr<ChatTemplate> chat_template;
  std::vector<ModelFile> files;
};

// Finds and opens the model, says what it is, settles what depends on it in `options` (path, max_model_len), and checks
// that the ranks of this machine fit. Throws ConfigError and IoError.
ServedModel open_served_model(ServeOptions& options, int local_ranks);

// With --max-model-len -1, when ranks have loaded: as much of the model's own length as their KV caches hold.
void fit_max_model_len(SchedulerConfig& scheduler, int64_t kv_tokens);

}  // namespace tutti
