// The routes of the OpenAI API and those beside it: completions, chat completions, models, tokenize,
// detokenize. Each handler runs on its connection's loop; what is slow for large bodies runs in the
// background and comes back.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "server/api_context.h"
#include "server/background.h"
#include "server/prompt_builder.h"
#include "server/router.h"

namespace tutti {

class OpenAiApi {
 public:
  // All outlive this object, and this object the event loops.
  OpenAiApi(const ApiContext& context, Background& background);
  void add_routes(Router& router);

 private:
  struct Prepared;
  using Exchange = std::shared_ptr<HttpExchange>;

  void generate(const Exchange& exchange, bool chat);
  Prepared prepare(const std::string& body, bool chat) const;
  void start(const Exchange& exchange, Prepared prepared) const;
  // Runs `work` where its size allows and then `done` on the exchange's loop; errors become the answer.
  void run_sized(const Exchange& exchange, std::function<std::function<void()>()> work);
  void check_model(const std::string& model) const;
  void models(const Exchange& exchange) const;
  Json model_card(const std::string& name) const;
  HttpResponse tokenize(const std::string& body) const;
  HttpResponse detokenize(const std::string& body) const;
  std::string request_id(const HttpRequest& request, const ApiRequest& api) const;

  const ApiContext& context_;
  Background& background_;
  PromptBuilder prompts_;
  const int64_t created_;
};

}  // namespace tutti
