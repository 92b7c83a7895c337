#include "text/pipeline_tokenizer.h"

#include "base/error.h"
#include "text/unicode.h"

namespace tutti {

namespace {

// Positions are 32-bit, also after a pre-tokenizer has put spaces between.
void check_length(size_t bytes, const char* what) {
  constexpr size_t kMaxText = size_t{1} << 29;
  if (bytes <= kMaxText) return;
  throw InvalidRequest(std::string(what) + " of " + std::to_string(bytes) + " bytes: at most " +
                       std::to_string(kMaxText) + " can be tokenised");
}

}  // namespace

std::string_view checked_text(std::string_view text, std::string& storage) {
  check_length(text.size(), "text");
  if (valid_utf8(text)) return text;
  storage = repair_utf8(text);
  return storage;
}

PipelineTokenizer::PipelineTokenizer(Parts parts)
    : tokens_(parts.tokens),
      ids_(parts.tokens.size()),
      normalizer_(std::move(parts.normalizer)),
      pre_tokenizer_(std::move(parts.pre_tokenizer)),
      model_(std::move(parts.model)),
      prefix_(std::move(parts.prefix)),
      suffix_(std::move(parts.suffix)),
      decoder_(parts.decoded, parts.decode_rules) {
  bos_id_ = parts.bos_id;
  eos_id_ = parts.eos_id;
  for (size_t id = 0; id < parts.tokens.size(); ++id) {
    if (!parts.tokens[id].empty()) ids_.insert(parts.tokens[id], static_cast<TokenId>(id));
  }
  for (AddedToken& token : parts.added) {
    if (token.normalized) {
      normalized_added_.add(normalizer_.apply(token.content), token);
    } else {
      raw_added_.add(token.content, token);
    }
  }
}

std::vector<TokenId> PipelineTokenizer::encode(std::string_view text, const EncodeOptions& options) const {
  std::string repaired;
  text = checked_text(text, repaired);
  std::vector<TokenId> ids;
  ids.reserve(text.size() / 4 + prefix_.size() + suffix_.size() + 8);
  if (options.add_special_tokens) ids.insert(ids.end(), prefix_.begin(), prefix_.end());
  PreTokenized work;
  const auto on_token = [&](TokenId id) { ids.push_back(id); };
  const auto on_raw_text = [&](size_t begin, size_t end) {
    std::string_view part = text.substr(begin, end - begin);
    std::string normalized;
    if (!normalizer_.identity()) {
      normalized = normalizer_.apply(part);
      check_length(normalized.size(), "normalised text");
      part = normalized;
    }
    normalized_added_.split(
        part, options.parse_special_tokens,
        [&](size_t b, size_t e) { encode_words(part.substr(b, e - b), begin == 0 && b == 0, work, ids); }, on_token);
  };
  raw_added_.split(text, options.parse_special_tokens, on_raw_text, on_token);
  if (options.add_special_tokens) ids.insert(ids.end(), suffix_.begin(), suffix_.end());
  return ids;
}

void PipelineTokenizer::encode_words(std::string_view text, bool at_start, PreTokenized& work,
                                     std::vector<TokenId>& out) const {
  pre_tokenizer_.apply(text, at_start, work);
  for (size_t i = 0; i < work.pieces.size(); ++i) model_->encode(work[i], out);
}

std::string PipelineTokenizer::decode(const std::vector<TokenId>& ids, bool skip_special_tokens) const {
  return decoder_.decode(ids, skip_special_tokens);
}

std::optional<TokenId> PipelineTokenizer::token_id(std::string_view token) const {
  const TokenId id = ids_.find(token);
  return id == kNoToken ? std::nullopt : std::optional(id);
}

}  // namespace tutti
