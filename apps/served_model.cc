#include "apps/served_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <numeric>

#include "apps/model_path.h"
#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "cluster/units.h"
#include "runtime/model_source.h"
#include "runtime/rank_memory.h"

namespace tutti {
namespace {

namespace fs = std::filesystem;

constexpr double kGiB = 1 << 30;

std::string folder_of(const std::string& path) {
  return fs::is_directory(path) ? path : fs::path(path).parent_path().string();
}

// --chat-template is a file or the template itself; else the model's own; else ChatML.
std::unique_ptr<ChatTemplate> make_chat_template(const ServeOptions& options, const ModelSource& source) {
  std::string text;
  if (!options.chat_template.empty()) {
    text = file_exists(options.chat_template) ? read_file(options.chat_template) : options.chat_template;
    if (text == options.chat_template && text.find('{') == std::string::npos) {
      throw ConfigError("--chat-template " + text + ": neither a file nor a template");
    }
  } else {
    if (source.checkpoint != nullptr && source.checkpoint->is_gguf()) {
      text = source.checkpoint->metadata().value("tokenizer.chat_template", std::string());
    }
    if (text.empty()) text = ChatTemplate::source_from_folder(folder_of(source.path));
    if (text.empty()) {
      log::note("the model brings no chat template: chats use ChatML. --chat-template FILE sets another");
      text = ChatTemplate::chatml();
    }
  }
  return std::make_unique<ChatTemplate>(text);
}

std::unique_ptr<Tokenizer> make_tokenizer(const ServeOptions& options, const ModelSource& source) {
  if (!options.tokenizer.empty()) return Tokenizer::from_folder(find_model(options.tokenizer, "", "--tokenizer"));
  if (source.checkpoint != nullptr && source.checkpoint->is_gguf()) return Tokenizer::from_gguf(source.checkpoint->metadata());
  return Tokenizer::from_folder(folder_of(source.path));
}

GenerationDefaults sampling_defaults(const ServeOptions& options, const std::string& model_path, ModelInfo& info) {
  Json json = Json::object();
  std::string source = "--override-generation-config";
  if (options.generation_config != "vllm") {
    const std::string folder = options.generation_config == "auto" ? folder_of(model_path) : options.generation_config;
    const std::string file = folder + "/generation_config.json";
    if (file_exists(file)) {
      json = read_json_file(file);
      source = file;
    } else if (options.generation_config != "auto") {
      throw ConfigError("--generation-config " + folder + ": it has no generation_config.json");
    }
  }
  if (json.contains("eos_token_id")) {
    const Json& eos = json["eos_token_id"];
    for (const Json& id : eos.is_array() ? eos : Json::array({eos})) {
      if (id.is_number_integer()) info.eos_token_ids.push_back(id.get<int32_t>());
    }
  }
  json.update(options.override_generation_config);
  return GenerationDefaults::from_json(json, source);
}

void settle_max_model_len(EngineConfig& engine, const ModelConfig& config) {
  int64_t& length = engine.scheduler.max_model_len;
  const int64_t most = config.max_position_embeddings;
  if (length == 0) length = most;
  if (length == -1) {
    engine.scheduler.fit_max_model_len = true;  // once ranks know what they have left
    length = most;
  }
  if (length < 1 || (most > 0 && length > most)) {
    throw ConfigError(fmt::format("--max-model-len {}: the model was trained for {} positions", length, most));
  }
}

// A prompt that may not be cut has to find room in one step.
void settle_whole_prompts(const ServeOptions& options, SchedulerConfig& scheduler) {
  if (scheduler.enable_chunked_prefill || scheduler.max_num_batched_tokens >= scheduler.max_model_len) return;
  if (options.step_size_given) {
    throw ConfigError(fmt::format("--no-enable-chunked-prefill with --max-num-batched-tokens {0}: a prompt of up to --max-model-len {1} tokens "
                                  "has no room in one step. Say --max-num-batched-tokens {1}, --max-model-len {0}, or leave "
                                  "--no-enable-chunked-prefill out",
                                  scheduler.max_num_batched_tokens, scheduler.max_model_len));
  }
  scheduler.max_num_batched_tokens = scheduler.max_model_len;
}

// On GPUs each rank looks at its own, whose memory only its process can see for free.
void say_fit(const ModelSource& source, const EngineConfig& engine, int local_ranks) {
  if (engine.device != "cpu") return;
  std::vector<int> ranks(static_cast<size_t>(local_ranks));
  std::iota(ranks.begin(), ranks.end(), 0);
  const int64_t available = available_memory();
  check_fits(source, engine, ranks, available);
  int64_t weights = 0;
  for (const RankMemory& rank : estimate_memory(source, engine)) weights = std::max(weights, rank.weights);
  log::fact("fit", "yes, on {} ({}): weights about {:.2f} GiB each; this node has {:.1f} GiB free",
            count_of(engine.parallel.world_size(), "rank"), engine.parallel.describe(), static_cast<double>(weights) / kGiB,
            static_cast<double>(available) / kGiB);
}

}  // namespace

void fit_max_model_len(SchedulerConfig& scheduler, int64_t kv_tokens) {
  if (!scheduler.fit_max_model_len) return;
  scheduler.fit_max_model_len = false;
  const int64_t most = scheduler.max_model_len;
  scheduler.max_model_len = std::min(most, kv_tokens);
  log::note("--max-model-len -1: {} tokens of the model's {}", scheduler.max_model_len, most);
}

ServedModel open_served_model(ServeOptions& options, int local_ranks) {
  EngineConfig& engine = options.engine;
  engine.model_path = find_model(engine.model, options.revision);
  if (!options.revision.empty() && fs::exists(engine.model)) {
    log::note("--revision {} has no effect: {} is a path, not a name in the Hugging Face cache", options.revision, engine.model);
  }
  const ModelSource source = open_model(engine);
  ServedModel model;
  model.config = source.config;
  settle_max_model_len(engine, source.config);
  settle_whole_prompts(options, engine.scheduler);
  log::fact("model", "{}: {}, {} layers of {}, {} heads ({} KV)", fs::path(engine.model).filename().string(),
            source.describe(), source.config.num_layers, source.config.hidden_size, source.config.num_heads,
            source.config.num_kv_heads);
  model.info.served_names = engine.served_model_names.empty() ? std::vector<std::string>{engine.model}
                                                              : engine.served_model_names;
  model.info.root = engine.model_path;
  model.info.max_model_len = engine.scheduler.max_model_len;
  model.info.vocab_size = source.config.vocab_size;
  model.info.eos_token_ids = source.config.eos_token_ids;
  model.info.defaults = sampling_defaults(options, engine.model_path, model.info);
  model.tokenizer = make_tokenizer(options, source);
  if (model.info.eos_token_ids.empty() && model.tokenizer->eos_id()) {
    model.info.eos_token_ids.push_back(*model.tokenizer->eos_id());
  }
  model.chat_template = make_chat_template(options, source);
  model.files = list_model_files(engine.model_path);
  say_fit(source, engine, local_ranks);
  return model;
}

}  // namespace tutti
