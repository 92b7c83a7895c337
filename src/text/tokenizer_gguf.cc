// Tokenizers from GGUF metadata: the "gpt2" kind (byte-level BPE) and the "llama" kind (a SentencePiece BPE model).
#include "base/error.h"
#include "text/bpe.h"
#include "text/byte_alphabet.h"
#include "text/gguf_pre_tokenizers.h"
#include "text/pipeline_tokenizer.h"
#include "text/sentencepiece.h"

namespace tutti {
namespace {

// Values of tokenizer.ggml.token_type.
enum GgufTokenType : int64_t { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6 };

const Json* find(const Json& metadata, const std::string& key) {
  const auto it = metadata.find("tokenizer.ggml." + key);
  return it == metadata.end() ? nullptr : &*it;
}

[[noreturn]] void fail(const std::string& key, const std::string& what) {
  throw ConfigError("GGUF metadata tokenizer.ggml." + key + " " + what);
}

std::vector<std::string> strings(const Json& metadata, const std::string& key) {
  const Json* value = find(metadata, key);
  if (value == nullptr || !value->is_array()) fail(key, "is missing or is not an array");
  std::vector<std::string> out;
  out.reserve(value->size());
  for (const Json& item : *value) {
    if (!item.is_string()) fail(key, "holds a value that is not a string");
    out.push_back(item.get<std::string>());
  }
  return out;
}

std::vector<int64_t> token_types(const Json& metadata, size_t count) {
  const Json* value = find(metadata, "token_type");
  std::vector<int64_t> out(count, kNormal);
  if (value == nullptr) return out;
  if (!value->is_array() || value->size() != count) {
    fail("token_type", "does not have one entry for each of the " + std::to_string(count) + " tokens");
  }
  for (size_t i = 0; i < count; ++i) {
    if (!(*value)[i].is_number_integer()) fail("token_type", "holds a value that is not an integer");
    out[i] = (*value)[i].get<int64_t>();
  }
  return out;
}

bool flag(const Json& metadata, const std::string& key, bool otherwise) {
  const Json* value = find(metadata, key);
  if (value == nullptr) return otherwise;
  if (!value->is_boolean()) fail(key, "must be true or false");
  return value->get<bool>();
}

std::optional<TokenId> special_id(const Json& metadata, const std::string& key, size_t count) {
  const Json* value = find(metadata, key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number_integer()) fail(key, "must be an integer");
  const auto id = value->get<int64_t>();
  if (id < 0 || id >= static_cast<int64_t>(count)) {
    fail(key, "is " + std::to_string(id) + ", outside the vocabulary of " + std::to_string(count) + " tokens");
  }
  return static_cast<TokenId>(id);
}

std::string text_value(const Json& metadata, const std::string& key) {
  const Json* value = find(metadata, key);
  if (value == nullptr) return "";
  if (!value->is_string()) fail(key, "must be a string");
  return value->get<std::string>();
}

MergeTable read_merges(const Json& metadata, const TokenMap& ids) {
  const std::vector<std::string> lines = strings(metadata, "merges");
  MergeTable merges(lines.size());
  for (size_t rank = 0; rank < lines.size(); ++rank) {
    const std::string_view line = lines[rank];
    const size_t space = line.find(' ', 1);
    if (space == std::string_view::npos) fail("merges", "[" + std::to_string(rank) + "] is not a pair of tokens");
    const std::string_view left = line.substr(0, space), right = line.substr(space + 1);
    const TokenId joined = ids.find(std::string(left) + std::string(right));
    // A pair that gives no token never joins.
    if (ids.find(left) == kNoToken || ids.find(right) == kNoToken || joined == kNoToken) continue;
    merges.insert(ids.find(left), ids.find(right), {static_cast<uint32_t>(rank), joined});
  }
  return merges;
}

std::unique_ptr<Tokenizer> byte_level_bpe(const Json& metadata) {
  PipelineTokenizer::Parts parts;
  parts.tokens = strings(metadata, "tokens");
  const size_t count = parts.tokens.size();
  if (static_cast<int64_t>(count) > kMaxVocab) fail("tokens", "has over " + std::to_string(kMaxVocab) + " entries");
  const std::vector<int64_t> types = token_types(metadata, count);
  const std::string pre = text_value(metadata, "pre");
  const GgufBpeTraits traits = gguf_bpe_traits(pre);
  parts.pre_tokenizer = PreTokenizer::from_gguf_name(pre);
  if (traits.nfc) parts.normalizer = Normalizer(SortedJson{{"type", "NFC"}}, "normalizer");

  TokenMap ids(count);
  std::vector<std::string> bytes(count);
  for (size_t i = 0; i < count; ++i) {
    const auto id = static_cast<TokenId>(i);
    const std::string& token = parts.tokens[i];
    ids.insert(token, id);
    const bool found_in_text = types[i] == kControl || types[i] == kUserDefined || types[i] == kUnknown;
    std::optional<std::string> spelled = bytes_from_alphabet(token);
    // Control and user-defined tokens are written as they are, the others in the byte-level alphabet.
    parts.decoded.push_back({found_in_text ? token : spelled.value_or(token), types[i] == kControl, false});
    if (found_in_text) parts.added.push_back({.id = id, .content = token, .special = types[i] != kUserDefined});
    if (types[i] != kUnused && spelled) bytes[i] = std::move(*spelled);
  }
  BpeModel::Options options;
  options.ignore_merges = traits.ignore_merges;
  parts.model = std::make_unique<BpeModel>(bytes, read_merges(metadata, ids), options);

  parts.bos_id = special_id(metadata, "bos_token_id", count);
  parts.eos_id = special_id(metadata, "eos_token_id", count);
  if (flag(metadata, "add_bos_token", traits.add_bos) && parts.bos_id) parts.prefix = {*parts.bos_id};
  if (flag(metadata, "add_eos_token", false) && parts.eos_id) parts.suffix = {*parts.eos_id};
  return std::make_unique<PipelineTokenizer>(std::move(parts));
}

std::vector<float> scores(const Json& metadata, size_t count) {
  const Json* value = find(metadata, "scores");
  if (value == nullptr || !value->is_array() || value->size() != count) {
    fail("scores", "does not have one entry for each of the " + std::to_string(count) + " tokens");
  }
  std::vector<float> out;
  for (const Json& item : *value) {
    if (!item.is_number()) fail("scores", "holds a value that is not a number");
    out.push_back(item.get<float>());
  }
  return out;
}

std::unique_ptr<Tokenizer> sentencepiece_bpe(const Json& metadata) {
  const std::vector<std::string> tokens = strings(metadata, "tokens");
  const std::vector<int64_t> types = token_types(metadata, tokens.size());
  const std::vector<float> score = scores(metadata, tokens.size());
  SentencePieceModel model;
  model.algorithm = SentencePieceModel::Algorithm::kBpe;
  model.add_dummy_prefix = flag(metadata, "add_space_prefix", true);
  model.remove_extra_whitespaces = flag(metadata, "remove_extra_whitespaces", false);
  size_t byte_tokens = 0;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (types[i] < kNormal || types[i] > kByte) {
      fail("token_type", "holds " + std::to_string(types[i]) + ", expected 1 to 6");
    }
    byte_tokens += types[i] == kByte;
    // Padding entries have no text of their own.
    const bool empty = tokens[i].empty();
    model.pieces.push_back({empty ? "[EMPTY_" + std::to_string(i) + "]" : tokens[i], score[i],
                            empty ? SentencePieceModel::PieceType::kUnused
                                  : static_cast<SentencePieceModel::PieceType>(types[i])});
  }
  model.byte_fallback = byte_tokens != 0;
  const size_t count = tokens.size();
  model.bos_id = special_id(metadata, "bos_token_id", count).value_or(kNoToken);
  model.eos_id = special_id(metadata, "eos_token_id", count).value_or(kNoToken);
  model.check("GGUF metadata");
  return std::make_unique<SentencePieceTokenizer>(model, flag(metadata, "add_bos_token", true),
                                                  flag(metadata, "add_eos_token", false), "GGUF metadata");
}

}  // namespace

std::unique_ptr<Tokenizer> Tokenizer::from_gguf(const Json& metadata) {
  const std::string model = text_value(metadata, "model");
  if (model == "gpt2") return byte_level_bpe(metadata);
  if (model == "llama") return sentencepiece_bpe(metadata);
  fail("model", "\"" + model + "\" is not supported; known: gpt2, llama");
}

}  // namespace tutti
