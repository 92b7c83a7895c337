#include "text/tiktoken.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <vector>

#include "base/error.h"
#include "text/base64.h"
#include "text/bpe.h"
#include "text/gguf_pre_tokenizers.h"
#include "text/json_fields.h"
#include "text/pipeline_tokenizer.h"
#include "text/tiktoken_models.h"

namespace tutti {
namespace {

using Parts = PipelineTokenizer::Parts;

struct RankLine {
  std::string token;
  int64_t rank;
};

std::optional<RankLine> parse_line(std::string_view line) {
  const size_t space = line.find(' ');
  if (space == 0 || space == std::string_view::npos) return std::nullopt;
  std::optional<std::string> token = decode_base64(line.substr(0, space));
  int64_t rank = -1;
  const char* end = line.data() + line.size();
  const auto [stop, error] = std::from_chars(line.data() + space + 1, end, rank);
  if (!token || token->empty() || error != std::errc() || stop != end || rank < 0) return std::nullopt;
  return RankLine{std::move(*token), rank};
}

std::string_view take_line(std::string_view& rest) {
  const size_t newline = rest.find('\n');
  std::string_view line = rest.substr(0, newline);
  rest.remove_prefix(newline == std::string_view::npos ? rest.size() : newline + 1);
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

// Sets tokens[rank]; every rank from 0 on must come once.
void set_rank(std::vector<std::string>& tokens, std::string token, int64_t rank, const std::string& where) {
  if (rank >= kMaxVocab) throw ConfigError(where + ": rank " + std::to_string(rank) + " is not below " + std::to_string(kMaxVocab));
  if (token.size() > kMaxTokenBytes) throw ConfigError(where + ": a token of " + std::to_string(token.size()) + " bytes");
  if (static_cast<size_t>(rank) >= tokens.size()) tokens.resize(rank + 1);
  if (!tokens[rank].empty()) throw ConfigError(where + ": rank " + std::to_string(rank) + " is there twice");
  tokens[rank] = std::move(token);
}

void check_complete(const std::vector<std::string>& tokens, const std::string& source) {
  TokenMap seen(tokens.size());
  for (size_t rank = 0; rank < tokens.size(); ++rank) {
    if (tokens[rank].empty()) throw ConfigError(source + ": rank " + std::to_string(rank) + " is missing");
    if (!seen.insert(tokens[rank], static_cast<TokenId>(rank))) {
      throw ConfigError(source + ": the token of rank " + std::to_string(rank) + " is there twice");
    }
  }
  for (int b = 0; b < 256; ++b) {
    const auto byte = static_cast<char>(b);
    if (seen.find({&byte, 1}) == kNoToken) throw ConfigError(source + ": byte " + std::to_string(b) + " has no rank");
  }
}

// `first` is the id of rank 0.
std::unique_ptr<BpeModel> model_of(const std::vector<std::string>& ranks, TokenId first) {
  std::vector<std::string> tokens(first);
  tokens.insert(tokens.end(), ranks.begin(), ranks.end());
  TokenMap parts(tokens.size());
  for (size_t id = first; id < tokens.size(); ++id) parts.insert(tokens[id], static_cast<TokenId>(id));
  BpeModel::Options options;
  options.ignore_merges = true;
  return std::make_unique<BpeModel>(
      tokens, merges_from_ranks(tokens, parts, [](TokenId id) { return std::optional(static_cast<uint32_t>(id)); }),
      options);
}

void add_special(Parts& parts, TokenId id, const std::string& content, bool special) {
  if (static_cast<size_t>(id) >= parts.tokens.size()) parts.tokens.resize(id + 1);
  if (static_cast<size_t>(id) >= parts.decoded.size()) parts.decoded.resize(id + 1);
  parts.tokens[id] = content;
  parts.decoded[id] = {content, special, false};
  parts.added.push_back({.id = id, .content = content, .special = special});
}

}  // namespace

bool looks_like_rank_file(std::string_view contents) {
  std::string_view rest = contents.substr(0, 2 * kMaxTokenBytes);
  return parse_line(take_line(rest)).has_value();
}

std::unique_ptr<Tokenizer> tokenizer_from_ranks(std::string_view contents, const std::string& source) {
  Parts parts;
  int64_t line_number = 0;
  for (std::string_view rest = contents; !rest.empty();) {
    const std::string_view line = take_line(rest);
    const std::string where = source + ": line " + std::to_string(++line_number);
    if (line.empty()) continue;
    std::optional<RankLine> parsed = parse_line(line);
    if (!parsed) throw IoError(where + ": expected \"base64 rank\"");
    set_rank(parts.tokens, std::move(parsed->token), parsed->rank, where);
  }
  check_complete(parts.tokens, source);
  const TiktokenModel model = tiktoken_model(parts.tokens.size(), source);
  parts.model = model_of(parts.tokens, 0);
  parts.pre_tokenizer = PreTokenizer::from_regex(model.regex);
  if (model.nfc) parts.normalizer = Normalizer(SortedJson{{"type", "NFC"}}, source);
  for (const std::string& token : parts.tokens) parts.decoded.push_back({token, false, false});
  for (const auto& [content, id] : model.specials) add_special(parts, id, content, true);
  parts.bos_id = model.bos_id;
  parts.eos_id = model.eos_id;
  if (model.add_bos && model.bos_id) parts.prefix = {*model.bos_id};
  return std::make_unique<PipelineTokenizer>(std::move(parts));
}

std::unique_ptr<Tokenizer> tokenizer_from_tekken(std::string_view contents, const std::string& source) {
  const SortedJson root = parse_sorted_json(contents, source);
  const JsonFields fields(root, source);
  const JsonFields config = fields.object("config");
  const auto first = static_cast<TokenId>(config.integer("default_num_special_tokens", 3, 100'000));
  const int64_t size = config.integer("default_vocab_size", first + 256, kMaxVocab) - first;
  Parts parts;
  std::vector<std::string> ranks;
  for (const SortedJson& item : fields.array("vocab")) {
    const JsonFields entry(item, source + ": vocab");
    const int64_t rank = entry.integer("rank", 0, kMaxVocab - 1);
    if (rank >= size) continue;
    std::optional<std::string> token = decode_base64(entry.string("token_bytes"));
    if (!token || token->empty()) entry.fail("token_bytes of rank " + std::to_string(rank) + " is not base64");
    set_rank(ranks, std::move(*token), rank, entry.where());
  }
  check_complete(ranks, source);
  parts.pre_tokenizer = PreTokenizer::from_regex(config.string("pattern"));
  parts.model = model_of(ranks, first);

  std::vector<std::string> specials = tekken_special_tokens(first);
  if (fields.has("special_tokens")) {
    for (const SortedJson& item : fields.array("special_tokens")) {
      const JsonFields entry(item, source + ": special_tokens");
      specials[entry.integer("rank", 0, first - 1)] = entry.string("token_str");
    }
  }
  for (TokenId id = 0; id < first; ++id) add_special(parts, id, specials[id], true);
  for (std::string& token : ranks) {
    parts.decoded.push_back({token, false, false});
    parts.tokens.push_back(std::move(token));
  }
  const auto find = [&](const char* name) -> std::optional<TokenId> {
    const auto it = std::find(specials.begin(), specials.end(), name);
    return it == specials.end() ? std::nullopt : std::optional(static_cast<TokenId>(it - specials.begin()));
  };
  parts.bos_id = find("<s>");
  parts.eos_id = find("</s>");
  if (parts.bos_id) parts.prefix = {*parts.bos_id};
  return std::make_unique<PipelineTokenizer>(std::move(parts));
}

}  // namespace tutti
