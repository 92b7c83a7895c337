// Bodies of the API: any bytes become a request whose values are in range, or an InvalidRequest.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "base/error.h"
#include "server/openai_types.h"

using namespace tutti;

namespace {

void check(const ApiRequest& request, const ModelInfo& model) {
  const SamplingParams& s = request.sampling;
  CHECK(s.temperature >= 0.0 && s.top_p > 0.0 && s.top_p <= 1.0 && s.min_p >= 0.0 && s.min_p <= 1.0);
  CHECK_GE(s.top_k, 0);
  CHECK(s.repetition_penalty > 0.0);
  CHECK(request.n >= 1 && request.n <= 128);
  CHECK(!request.max_tokens || *request.max_tokens >= 1);
  for (const int32_t id : s.stop_token_ids) CHECK(id >= 0 && id < model.vocab_size);
  for (const auto& [id, bias] : s.logit_bias) CHECK(id >= 0 && id < model.vocab_size && bias >= -100 && bias <= 100);
  for (const PromptInput& prompt : request.prompts) {
    const auto* ids = std::get_if<std::vector<int32_t>>(&prompt);
    for (size_t i = 0; ids != nullptr && i < ids->size(); ++i) CHECK((*ids)[i] >= 0 && (*ids)[i] < model.vocab_size);
  }
  CHECK(request.prompts.empty() == request.chat.has_value());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view body(reinterpret_cast<const char*>(data), size);
  ServerConfig config;
  config.trust_request_chat_template = true;
  ModelInfo model;
  model.served_names = {"m"};
  model.max_model_len = 1024;
  model.vocab_size = 1000;
  for (const auto parse : {parse_completion_request, parse_chat_request}) {
    try {
      check(parse(parse_request_body(body), config, model), model);
    } catch (const InvalidRequest& e) {
      CHECK(e.what()[0] != '\0');
    }
  }
  return 0;
}
