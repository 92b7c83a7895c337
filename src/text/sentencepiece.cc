#include "text/sentencepiece.h"

#include <algorithm>
#include <map>

#include "base/error.h"
#include "text/normalizer.h"
#include "text/pipeline_tokenizer.h"
#include "text/unicode.h"

namespace tutti {
namespace {

using Model = SentencePieceModel;
using PieceType = Model::PieceType;

std::vector<std::string> texts_of(const Model& model) {
  std::vector<std::string> out;
  out.reserve(model.pieces.size());
  for (const Model::Piece& piece : model.pieces) out.push_back(piece.text);
  return out;
}

int hex_digit(char c) {
  return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

// "<0x41>" -> 0x41.
int byte_of(const std::string& piece, const std::string& source) {
  const bool shaped = piece.size() == 6 && piece.starts_with("<0x") && piece.back() == '>';
  const int high = shaped ? hex_digit(piece[3]) : -1, low = shaped ? hex_digit(piece[4]) : -1;
  if (high < 0 || low < 0) throw ConfigError(source + ": byte piece \"" + piece + "\", expected one like <0x41>");
  return high * 16 + low;
}

// Dense ranks: the highest score first.
std::map<float, uint32_t, std::greater<>> ranks_of(const Model& model) {
  std::map<float, uint32_t, std::greater<>> ranks;
  for (const Model::Piece& piece : model.pieces) ranks[piece.score] = 0;
  uint32_t next = 0;
  for (auto& [score, rank] : ranks) rank = next++;
  return ranks;
}

}  // namespace

SentencePieceTokenizer::SentencePieceTokenizer(const Model& model, bool add_bos, bool add_eos,
                                               const std::string& source)
    : tokens_(texts_of(model)),
      ids_(model.pieces.size()),
      byte_fallback_(model.byte_fallback),
      add_bos_(add_bos),
      add_eos_(add_eos) {
  byte_ids_.fill(kNoToken);
  std::vector<std::pair<std::string_view, int32_t>> user_defined;
  for (size_t i = 0; i < model.pieces.size(); ++i) {
    const Model::Piece& piece = model.pieces[i];
    const auto id = static_cast<TokenId>(i);
    ids_.insert(piece.text, id);
    unused_.push_back(piece.type == PieceType::kUnused);
    if (piece.type == PieceType::kUnknown) unknown_id_ = id;
    if (piece.type == PieceType::kByte) byte_ids_[byte_of(piece.text, source)] = id;
    if (piece.type == PieceType::kControl) controls_.add(piece.text, {.id = id, .content = piece.text, .special = true});
    if (piece.type == PieceType::kUserDefined) user_defined.emplace_back(piece.text, id);
  }
  if (byte_fallback_ && std::count(byte_ids_.begin(), byte_ids_.end(), kNoToken) != 0) {
    throw ConfigError(source + ": byte fallback, but a byte has no piece");
  }
  user_defined_ = ByteTrie(std::move(user_defined));
  normalizer_ = std::make_unique<SentencePieceNormalizer>(model, user_defined_, source);
  if (model.algorithm == Model::Algorithm::kBpe) {
    build_bpe(model);
  } else {
    unigram_ = std::make_unique<SentencePieceUnigram>(model);
  }
  build_decoder(model);
  const auto special = [&](TokenId id) {
    const bool exists = id >= 0 && static_cast<size_t>(id) < model.pieces.size();
    return exists ? std::optional(id) : std::nullopt;
  };
  bos_id_ = special(model.bos_id);
  eos_id_ = special(model.eos_id);
}

// Any two neighbours join whose concatenation is a piece, the highest score first. Characters without a piece of their
// own take part as symbols behind the vocabulary (BpeModel's kept unknowns).
void SentencePieceTokenizer::build_bpe(const Model& model) {
  std::vector<std::string> tokens(model.pieces.size());
  TokenMap parts(model.pieces.size() * 2);
  BpeModel::Options options;
  options.bytes = false;
  options.keep_unknown = true;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const PieceType type = model.pieces[i].type;
    if (type != PieceType::kNormal && type != PieceType::kUnused) continue;
    tokens[i] = model.pieces[i].text;
    parts.insert(tokens[i], static_cast<TokenId>(i));
    if (type == PieceType::kUnused) options.unused.push_back(static_cast<TokenId>(i));
  }
  for (const std::string& token : tokens) {
    if (!valid_utf8(token)) continue;
    for (size_t pos = 0, length; pos < token.size(); pos += length) {
      const char32_t cp = decode_utf8(token, pos, length);
      parts.insert(std::string_view(token).substr(pos, length), static_cast<TokenId>(tokens.size() + cp));
    }
  }
  const auto ranks = ranks_of(model);
  MergeTable merges = merges_from_ranks(tokens, parts, [&](TokenId id) { return ranks.at(model.pieces[id].score); });
  bpe_ = std::make_unique<BpeModel>(tokens, std::move(merges), options);
}

void SentencePieceTokenizer::build_decoder(const Model& model) {
  TokenDecoder::Rules rules;
  rules.invalid = TokenDecoder::InvalidBytes::kByteReplaced;
  rules.leading_spaces = model.add_dummy_prefix || model.remove_extra_whitespaces ? 1 : 0;
  rules.leading_spaces_again = model.remove_extra_whitespaces;
  std::vector<TokenDecoder::Token> decoded;
  decoded.reserve(model.pieces.size());
  for (const Model::Piece& piece : model.pieces) {
    TokenDecoder::Token token;
    token.special = piece.type == PieceType::kControl;
    token.byte = piece.type == PieceType::kByte;
    if (token.byte) {
      token.text = std::string(1, static_cast<char>(byte_of(piece.text, "tokenizer")));
    } else if (piece.type == PieceType::kUnknown) {
      token.text = model.unknown_surface;
      token.unknown = true;
    } else {
      token.text = token.special ? piece.text : replace_all(piece.text, kMetaspace, " ");
    }
    decoded.push_back(std::move(token));
  }
  decoder_ = std::make_unique<TokenDecoder>(decoded, rules);
}

std::vector<TokenId> SentencePieceTokenizer::encode(std::string_view text, const EncodeOptions& options) const {
  std::string repaired;
  text = checked_text(text, repaired);
  std::vector<TokenId> ids;
  ids.reserve(text.size() / 3 + 8);
  if (options.add_special_tokens && add_bos_ && bos_id_) ids.push_back(*bos_id_);
  if (options.parse_special_tokens) {
    controls_.split(
        text, true, [&](size_t begin, size_t end) { encode_part(text.substr(begin, end - begin), ids); },
        [&](TokenId id) { ids.push_back(id); });
  } else {
    encode_part(text, ids);
  }
  if (options.add_special_tokens && add_eos_ && eos_id_) ids.push_back(*eos_id_);
  return ids;
}

void SentencePieceTokenizer::encode_part(std::string_view text, std::vector<TokenId>& out) const {
  const std::string normalized = normalizer_->apply(text);
  if (bpe_) return encode_bpe(normalized, out);
  bool after_unknown = false;
  for (const UnigramSegment& s : unigram_->segment(normalized)) {
    if (s.id == unknown_id_) {
      add_unknown(std::string_view(normalized).substr(s.begin, s.end - s.begin), out, after_unknown);
    } else {
      out.push_back(s.id);
      after_unknown = false;
    }
  }
}

void SentencePieceTokenizer::encode_bpe(std::string_view normalized, std::vector<TokenId>& out) const {
  std::vector<TokenId> symbols;  // ids, and characters without one behind the vocabulary
  symbols.reserve(normalized.size() / 3 + 8);
  size_t begin = 0;
  for (size_t pos = 0; !user_defined_.empty() && pos < normalized.size();) {
    int32_t id = kNoToken;
    const size_t length = user_defined_.longest_prefix(normalized, pos, id);
    if (length == 0) {
      pos += utf8_length(normalized[pos]);
      continue;
    }
    bpe_->encode(normalized.substr(begin, pos - begin), symbols);
    symbols.push_back(id);
    begin = pos += length;
  }
  bpe_->encode(normalized.substr(begin), symbols);
  bool after_unknown = false;
  for (const TokenId symbol : symbols) {
    if (symbol >= static_cast<TokenId>(tokens_.size())) {
      std::string character;
      append_utf8(character, static_cast<char32_t>(symbol - tokens_.size()));
      add_unknown(character, out, after_unknown);
    } else if (unused_[symbol]) {
      add_unknown(tokens_[symbol], out, after_unknown);
    } else {
      out.push_back(symbol);
      after_unknown = false;
    }
  }
}

void SentencePieceTokenizer::add_unknown(std::string_view text, std::vector<TokenId>& out, bool& after_unknown) const {
  if (byte_fallback_) {
    for (const char c : text) out.push_back(byte_ids_[static_cast<uint8_t>(c)]);
    return;
  }
  if (!after_unknown) out.push_back(unknown_id_);
  after_unknown = true;
}

std::string SentencePieceTokenizer::decode(const std::vector<TokenId>& ids, bool skip_special_tokens) const {
  return decoder_->decode(ids, skip_special_tokens);
}

std::optional<TokenId> SentencePieceTokenizer::token_id(std::string_view token) const {
  const TokenId id = ids_.find(token);
  return id == kNoToken ? std::nullopt : std::optional(id);
}

}  // namespace tutti
