#include "text/tokenizer.h"

#include <cstdlib>
#include <filesystem>

#include "base/error.h"
#include "base/file.h"
#include "text/sentencepiece.h"
#include "text/tiktoken.h"
#include "text/tokenizer_json.h"

namespace tutti {
namespace {

// The one *.tiktoken file of the folder; "" when there is none.
std::string tiktoken_file(const std::string& folder) {
  std::vector<std::string> found;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    if (entry.path().extension() == ".tiktoken") found.push_back(entry.path().string());
  }
  if (error) throw IoError("cannot list " + folder + ": " + error.message());
  if (found.size() > 1) {
    throw ConfigError(folder + " holds " + std::to_string(found.size()) + " *.tiktoken files, expected one");
  }
  return found.empty() ? "" : found.front();
}

// A model file has no place for tokens beyond its pieces; leaving them out would give other ids than the model saw.
void check_added_tokens(const SortedJson& config, int64_t num_pieces, const std::string& path) {
  const auto added = config.is_object() ? config.find("added_tokens_decoder") : config.end();
  if (added == config.end() || !added->is_object()) return;
  for (const auto& [id, token] : added->items()) {
    if (std::strtoll(id.c_str(), nullptr, 10) < num_pieces) continue;
    throw ConfigError("tokenizer_config.json adds token " + id + " to the " + std::to_string(num_pieces) + " pieces of " +
                      path + ": that needs a tokenizer.json beside it (save the fast tokenizer)");
  }
}

std::unique_ptr<Tokenizer> from_model_file(const std::string& path, const SortedJson& config) {
  const std::string contents = read_file(path);
  if (looks_like_rank_file(contents)) return tokenizer_from_ranks(contents, path);
  const auto flag = [&](const char* key, bool otherwise) {
    return config.is_null() ? otherwise : JsonFields(config, "tokenizer_config.json").flag(key, otherwise);
  };
  const SentencePieceModel model = SentencePieceModel::parse(contents, path);
  check_added_tokens(config, static_cast<int64_t>(model.pieces.size()), path);
  return std::make_unique<SentencePieceTokenizer>(model, flag("add_bos_token", true), flag("add_eos_token", false),
                                                  path);
}

}  // namespace

std::unique_ptr<Tokenizer> Tokenizer::from_folder(const std::string& folder) {
  const auto path = [&](const char* name) { return folder + "/" + name; };
  SortedJson config;
  const std::string config_path = path("tokenizer_config.json");
  if (file_exists(config_path)) config = parse_sorted_json(read_file(config_path), config_path);
  if (const std::string json = path("tokenizer.json"); file_exists(json)) {
    return tokenizer_from_json(parse_sorted_json(read_file(json), json), config, json);
  }
  if (const std::string model = path("tokenizer.model"); file_exists(model)) return from_model_file(model, config);
  if (const std::string tekken = path("tekken.json"); file_exists(tekken)) {
    return tokenizer_from_tekken(read_file(tekken), tekken);
  }
  if (const std::string ranks = tiktoken_file(folder); !ranks.empty()) {
    return tokenizer_from_ranks(read_file(ranks), ranks);
  }
  throw ConfigError("no tokenizer in " + folder +
                    ": expected tokenizer.json, tokenizer.model, tekken.json or a *.tiktoken file");
}

std::vector<std::string> token_texts(const Tokenizer& tokenizer) {
  std::vector<std::string> texts;
  texts.reserve(static_cast<size_t>(tokenizer.vocab_size()));
  for (TokenId id = 0; id < tokenizer.vocab_size(); ++id) {
    texts.emplace_back(tokenizer.is_special(id) ? std::string_view() : tokenizer.token_bytes(id));
  }
  return texts;
}

}  // namespace tutti
