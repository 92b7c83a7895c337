// What the API's handlers share: const while the server runs, used on every event loop.
#pragma once

#include "server/async_engine.h"
#include "server/server_config.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace tutti {

struct ApiContext {
  const ServerConfig& config;
  const ModelInfo& model;
  const Tokenizer& tokenizer;
  const ChatTemplate& chat_template;
  AsyncEngine& engine;
};

}  // namespace tutti
