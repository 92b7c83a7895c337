#include "text/tokenizer_json.h"

#include <algorithm>

#include "text/bpe.h"
#include "text/byte_alphabet.h"
#include "text/pipeline_tokenizer.h"
#include "text/unigram.h"

namespace tutti {
namespace {

using Parts = PipelineTokenizer::Parts;

// Sets tokens[id]; ids may come in any order but not far beyond the number of tokens.
void set_token(std::vector<std::string>& tokens, const std::string& token, int64_t id, size_t expected,
               const std::string& where) {
  const int64_t limit = std::min<int64_t>(kMaxVocab, static_cast<int64_t>(expected) * 8 + 65536);
  if (id < 0 || id >= limit) {
    throw ConfigError(where + ": token \"" + token + "\" has the id " + std::to_string(id) + ", expected 0 to " +
                      std::to_string(limit - 1));
  }
  if (token.size() > kMaxTokenBytes) {
    throw ConfigError(where + ": token " + std::to_string(id) + " is " + std::to_string(token.size()) +
                      " bytes long; at most " + std::to_string(kMaxTokenBytes) + " are accepted");
  }
  if (static_cast<size_t>(id) >= tokens.size()) tokens.resize(id + 1);
  if (!tokens[id].empty() && tokens[id] != token) {
    throw ConfigError(where + ": id " + std::to_string(id) + " belongs to both \"" + tokens[id] + "\" and \"" + token +
                      "\"");
  }
  tokens[id] = token;
}

void read_vocab(const JsonFields& model, Parts& parts, TokenMap& ids) {
  const SortedJson& vocab = model.at("vocab");
  if (!vocab.is_object()) model.fail("\"vocab\" must be an object of token to id, found " + std::string(vocab.type_name()));
  for (const auto& [token, id] : vocab.items()) {
    if (!id.is_number_integer()) model.fail("vocab: the id of \"" + token + "\" is not an integer");
    const auto value = id.get<int64_t>();
    set_token(parts.tokens, token, value, vocab.size(), model.where() + ".vocab");
    ids.insert(token, static_cast<TokenId>(value));
  }
}

// "a b" or ["a", "b"].
std::pair<std::string, std::string> merge_pair(const SortedJson& merge, size_t rank, const JsonFields& model) {
  if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
    return {merge[0].get<std::string>(), merge[1].get<std::string>()};
  }
  if (merge.is_string()) {
    const auto line = merge.get<std::string>();
    const size_t space = line.find(' ');
    if (space != std::string::npos && line.find(' ', space + 1) == std::string::npos) {
      return {line.substr(0, space), line.substr(space + 1)};
    }
  }
  model.fail("merges[" + std::to_string(rank) + "] is not a pair of tokens");
}

MergeTable read_merges(const JsonFields& model, const TokenMap& ids) {
  const SortedJson& list = model.array("merges");
  MergeTable merges(list.size());
  for (size_t rank = 0; rank < list.size(); ++rank) {
    const auto [left, right] = merge_pair(list[rank], rank, model);
    const auto id_of = [&](const std::string& token) {
      const TokenId id = ids.find(token);
      if (id == kNoToken) {
        model.fail("merges[" + std::to_string(rank) + "] names \"" + token + "\", which the vocabulary does not have");
      }
      return id;
    };
    const Merge merge{static_cast<uint32_t>(rank), id_of(left + right)};
    merges.insert(id_of(left), id_of(right), merge);
  }
  return merges;
}

// A list of [token, log probability].
void read_unigram(const JsonFields& model, Parts& parts) {
  const SortedJson& vocab = model.array("vocab");
  if (vocab.empty()) model.fail("vocab is empty");
  std::vector<double> scores;
  for (size_t id = 0; id < vocab.size(); ++id) {
    const SortedJson& entry = vocab[id];
    if (!entry.is_array() || entry.size() != 2 || !entry[0].is_string() || !entry[1].is_number()) {
      model.fail("vocab[" + std::to_string(id) + "] must be [token, log probability]");
    }
    set_token(parts.tokens, entry[0].get<std::string>(), static_cast<int64_t>(id), vocab.size(), model.where() + ".vocab");
    scores.push_back(entry[1].get<double>());
  }
  const int64_t unknown = model.integer("unk_id", 0, static_cast<int64_t>(vocab.size()) - 1);
  parts.model = std::make_unique<UnigramModel>(parts.tokens, std::move(scores), static_cast<TokenId>(unknown),
                                               model.flag("byte_fallback", false));
}

void read_bpe(const JsonFields& model, Parts& parts) {
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (!model.string(key, "").empty()) model.fail(std::string(key) + " is not supported; expected it empty");
  }
  if (model.has("dropout") && model.at("dropout") != 0) model.fail("dropout is not supported; expected null");
  TokenMap ids;
  read_vocab(model, parts, ids);
  BpeModel::Options options;
  options.bytes = parts.pre_tokenizer.byte_level();
  options.ignore_merges = model.flag("ignore_merges", false);
  options.byte_fallback = model.flag("byte_fallback", false);
  options.fuse_unknown = model.flag("fuse_unk", false);
  const std::string unknown = model.string("unk_token", "");
  if (!unknown.empty()) {
    const TokenId id = ids.find(unknown);
    if (id == kNoToken) model.fail("unk_token \"" + unknown + "\" is not in the vocabulary");
    options.unknown = id;
  }
  std::vector<std::string> texts = parts.tokens;
  if (options.bytes) {
    for (std::string& text : texts) text = bytes_from_alphabet(text).value_or("");
  }
  parts.model = std::make_unique<BpeModel>(texts, read_merges(model, ids), options);
}

void read_model(const JsonFields& model, Parts& parts) {
  const std::string type = model.string("type", "BPE");
  if (type == "BPE") return read_bpe(model, parts);
  if (type == "Unigram") return read_unigram(model, parts);
  model.fail("type \"" + type + "\" is not supported; known: BPE, Unigram");
}

void read_added_tokens(const JsonFields& root, Parts& parts) {
  if (!root.has("added_tokens")) return;
  const SortedJson& list = root.array("added_tokens");
  TokenMap ids(parts.tokens.size());
  for (size_t id = 0; id < parts.tokens.size(); ++id) {
    if (!parts.tokens[id].empty()) ids.insert(parts.tokens[id], static_cast<TokenId>(id));
  }
  const size_t expected = parts.tokens.size() + list.size();
  for (size_t i = 0; i < list.size(); ++i) {
    const JsonFields node(list[i], root.where() + ".added_tokens[" + std::to_string(i) + "]");
    AddedToken token;
    token.id = static_cast<TokenId>(node.integer("id", 0, kMaxVocab - 1));
    token.content = node.string("content");
    token.special = node.flag("special", false);
    token.normalized = node.flag("normalized", !token.special);
    token.single_word = node.flag("single_word", false);
    token.lstrip = node.flag("lstrip", false);
    token.rstrip = node.flag("rstrip", false);
    const TokenId known = ids.find(token.content);
    if (known != kNoToken && known != token.id) {
      node.fail("\"" + token.content + "\" has the id " + std::to_string(token.id) + ", but the vocabulary gives it " +
                std::to_string(known));
    }
    if (!token.content.empty()) set_token(parts.tokens, token.content, token.id, expected, node.where());
    parts.added.push_back(std::move(token));
  }
}

// The ids around a text: what a TemplateProcessing, BertProcessing or RobertaProcessing adds.
void read_post_processor(const SortedJson& value, const std::string& where, Parts& parts) {
  if (value.is_null()) return;
  const JsonFields node(value, where);
  const std::string type = node.string("type");
  if (type == "ByteLevel") return;
  if (type == "Sequence") {
    const SortedJson& list = node.array("processors");
    for (size_t i = 0; i < list.size(); ++i) {
      read_post_processor(list[i], where + ".processors[" + std::to_string(i) + "]", parts);
    }
    return;
  }
  if (type == "BertProcessing" || type == "RobertaProcessing") {
    for (const char* key : {"cls", "sep"}) {
      const SortedJson& pair = node.array(key);
      if (pair.size() != 2 || !pair[1].is_number_integer()) node.fail(std::string(key) + " must be [token, id]");
      (*key == 'c' ? parts.prefix : parts.suffix).push_back(pair[1].get<TokenId>());
    }
    return;
  }
  if (type != "TemplateProcessing") {
    node.fail("post-processor \"" + type +
              "\" is not supported; known: TemplateProcessing, ByteLevel, Sequence, BertProcessing, RobertaProcessing");
  }
  const JsonFields specials = node.object("special_tokens");
  bool after_text = false;
  for (const SortedJson& item : node.array("single")) {
    const JsonFields step(item, where + ".single");
    if (step.has("Sequence")) {
      after_text = true;
      continue;
    }
    const std::string name = step.object("SpecialToken").string("id");
    for (const SortedJson& id : specials.object(name.c_str()).array("ids")) {
      if (!id.is_number_integer()) node.fail("special_tokens: ids of \"" + name + "\" must be integers");
      (after_text ? parts.suffix : parts.prefix).push_back(id.get<TokenId>());
    }
  }
}

// What a "decoder" does to one token and to the whole.
struct DecoderSteps {
  bool byte_level = false;
  bool byte_fallback = false;
  std::vector<std::pair<std::string, std::string>> replace;
  TokenDecoder::Rules rules;
};

void read_decoder(const SortedJson& value, const std::string& where, DecoderSteps& steps) {
  const JsonFields node(value, where);
  const std::string type = node.string("type");
  if (type == "Sequence") {
    const SortedJson& list = node.array("decoders");
    for (size_t i = 0; i < list.size(); ++i) {
      read_decoder(list[i], where + ".decoders[" + std::to_string(i) + "]", steps);
    }
  } else if (type == "ByteLevel") {
    steps.byte_level = true;
  } else if (type == "Replace") {
    steps.replace.emplace_back(node.object("pattern").string("String"), node.string("content"));
  } else if (type == "ByteFallback") {
    steps.byte_fallback = true;
    steps.rules.invalid = TokenDecoder::InvalidBytes::kRunReplaced;
  } else if (type == "Fuse") {
    // Tokens are always written one after the other.
  } else if (type == "Strip") {
    if (node.string("content") != " ") node.fail("only spaces can be stripped, found \"" + node.string("content") + "\"");
    if (node.integer("stop", 0, 1000) != 0) node.fail("stripping the end is not supported; expected \"stop\": 0");
    steps.rules.leading_spaces = static_cast<int>(node.integer("start", 0, 1000));
  } else if (type == "Metaspace") {
    steps.replace.emplace_back(node.string("replacement"), " ");
    const std::string scheme = node.string("prepend_scheme", node.flag("add_prefix_space", true) ? "always" : "never");
    steps.rules.first_without_spaces = scheme != "never";
  } else {
    node.fail("decoder \"" + type +
              "\" is not supported; known: Sequence, ByteLevel, Replace, ByteFallback, Fuse, Strip, Metaspace");
  }
}

std::optional<char> byte_token(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token.back() != '>') return std::nullopt;
  int value = 0;
  for (const char c : token.substr(3, 2)) {
    const int digit = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                             : -1;
    if (digit < 0) return std::nullopt;
    value = value * 16 + digit;
  }
  return static_cast<char>(value);
}

void decode_tokens(const SortedJson& decoder, const std::string& where, Parts& parts) {
  DecoderSteps steps;
  if (decoder.is_null()) {
    steps.rules.spaces_between = true;
  } else {
    read_decoder(decoder, where, steps);
  }
  for (const std::string& token : parts.tokens) {
    TokenDecoder::Token out{token};
    for (const auto& [from, to] : steps.replace) {
      if (!from.empty()) out.text = replace_all(out.text, from, to);
    }
    const auto byte = steps.byte_fallback ? byte_token(out.text) : std::nullopt;
    if (byte) {
      out.text = std::string(1, *byte);
      out.byte = true;
    } else if (steps.byte_level) {
      out.text = bytes_from_alphabet(out.text).value_or(out.text);
    }
    parts.decoded.push_back(std::move(out));
  }
  for (const AddedToken& token : parts.added) parts.decoded[token.id].special = token.special;
  parts.decode_rules = steps.rules;
}

// bos_token / eos_token: a string, or an object with "content".
std::optional<TokenId> configured_token(const JsonFields& config, const char* key, const Parts& parts) {
  if (!config.has(key)) return std::nullopt;
  const SortedJson& value = config.at(key);
  const std::string text = value.is_string() ? value.get<std::string>() : config.object(key).string("content");
  const auto it = std::find(parts.tokens.begin(), parts.tokens.end(), text);
  if (it == parts.tokens.end()) return std::nullopt;
  return static_cast<TokenId>(it - parts.tokens.begin());
}

void read_config(const SortedJson& value, Parts& parts) {
  if (value.is_null()) return;
  const JsonFields config(value, "tokenizer_config.json");
  parts.bos_id = configured_token(config, "bos_token", parts);
  parts.eos_id = configured_token(config, "eos_token", parts);
  // The classes that were SentencePiece tokenizers make their own post-processor from these flags.
  const std::string type = config.string("tokenizer_class", "");
  const bool own = type.starts_with("LlamaTokenizer") || type.starts_with("CodeLlamaTokenizer") ||
                   type.starts_with("GemmaTokenizer");
  if (!own || !config.has("add_bos_token")) return;
  parts.prefix.clear();
  parts.suffix.clear();
  if (config.flag("add_bos_token", true) && parts.bos_id) parts.prefix = {*parts.bos_id};
  if (config.flag("add_eos_token", false) && parts.eos_id) parts.suffix = {*parts.eos_id};
}

const SortedJson& field_or_null(const SortedJson& root, const char* key) {
  static const SortedJson null;
  const auto it = root.find(key);
  return it == root.end() ? null : *it;
}

}  // namespace

std::unique_ptr<Tokenizer> tokenizer_from_json(const SortedJson& root, const SortedJson& config,
                                               const std::string& source) {
  const JsonFields fields(root, source);
  Parts parts;
  parts.normalizer = Normalizer(field_or_null(root, "normalizer"), source + ": normalizer");
  parts.pre_tokenizer = PreTokenizer(field_or_null(root, "pre_tokenizer"), source + ": pre_tokenizer");
  read_model(fields.object("model"), parts);
  read_added_tokens(fields, parts);
  read_post_processor(field_or_null(root, "post_processor"), source + ": post_processor", parts);
  decode_tokens(field_or_null(root, "decoder"), source + ": decoder", parts);
  read_config(config, parts);
  return std::make_unique<PipelineTokenizer>(std::move(parts));
}

}  // namespace tutti
