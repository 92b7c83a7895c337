#include "text/detokenizer.h"

#include <algorithm>

#include "text/unicode.h"

namespace tutti {

struct Detokenizer::State {
  const Tokenizer& tokenizer;
  Options options;
  std::string bytes;          // the beginning of a character
  std::string held;           // certain characters that are not returned yet: they may become a stop string
  std::string returned;
  std::string stop_string;
  int num_tokens = 0;
  int leading_spaces;         // still to be dropped; only at the start of a text
  bool stopped = false;
  bool finished = false;

  bool visible(TokenId id) const { return !(options.skip_special_tokens && tokenizer.is_special(id)); }
  void take_characters(bool at_end);
  std::string release(bool at_end, size_t searched);
};

Detokenizer::Detokenizer(const Tokenizer& tokenizer, const std::vector<TokenId>& prompt, Options options)
    : state_(new State{tokenizer, std::move(options)}) {
  State& s = *state_;
  std::erase(s.options.stop, std::string());
  bool any = false;
  for (const TokenId id : prompt) any = any || (s.visible(id) && !tokenizer.token_bytes(id).empty());
  s.leading_spaces = any ? 0 : tokenizer.leading_spaces_dropped();

  // A character that the prompt's last tokens began: its first bytes go before those of the first new token.
  std::string tail;
  for (auto it = prompt.rbegin(); it != prompt.rend() && tail.size() < 4; ++it) {
    if (s.visible(*it)) tail.insert(0, tokenizer.token_bytes(*it));
  }
  for (size_t pos = 0, length; pos < tail.size(); pos += length) {
    if (classify_utf8(tail, pos, length) == Utf8Kind::kCutOff) s.bytes = tail.substr(pos);
  }
}

Detokenizer::~Detokenizer() = default;

bool Detokenizer::stopped() const { return state_->stopped; }
const std::string& Detokenizer::stop_string() const { return state_->stop_string; }
const std::string& Detokenizer::text() const { return state_->returned; }

std::string Detokenizer::push(TokenId id) {
  State& s = *state_;
  if (s.stopped || s.finished) return "";
  ++s.num_tokens;
  if (!s.visible(id)) return "";
  std::string_view text = s.tokenizer.token_bytes(id);
  if (text.empty()) return "";
  // Only a space that stands for "▁" may be the one that a dummy prefix added.
  if (s.leading_spaces > 0 && text.starts_with(' ') && s.tokenizer.token(id).starts_with(kMetaspace)) {
    text.remove_prefix(1);
    --s.leading_spaces;
  }
  if (text.empty()) return "";
  s.leading_spaces = 0;
  s.bytes += text;
  const size_t searched = s.held.size();
  s.take_characters(false);
  return s.release(false, searched);
}

std::string Detokenizer::finish() {
  State& s = *state_;
  if (s.stopped || s.finished) return "";
  const size_t searched = s.held.size();
  s.take_characters(true);
  s.finished = true;
  return s.release(true, searched);
}

// Moves what can be read as characters from `bytes` to `held`.
void Detokenizer::State::take_characters(bool at_end) {
  size_t pos = 0;
  while (pos < bytes.size()) {
    size_t length;
    const Utf8Kind kind = classify_utf8(bytes, pos, length);
    if (kind == Utf8Kind::kCutOff && !at_end) break;
    if (kind == Utf8Kind::kCharacter) {
      held.append(bytes, pos, length);
    } else {
      held += kReplacement;
    }
    pos += length;
  }
  bytes.erase(0, pos);
}

// Looks for stop strings in `held`, of which the first `searched` bytes have none ending in them, and returns what
// cannot be part of one any more.
std::string Detokenizer::State::release(bool at_end, size_t searched) {
  size_t first = std::string::npos;
  if (num_tokens > options.min_tokens) {
    for (const std::string& stop : options.stop) {
      const size_t from = searched + 1 > stop.size() ? searched + 1 - stop.size() : 0;
      const size_t hit = held.find(stop, from);
      if (hit < first) {
        first = hit;
        stop_string = stop;
      }
    }
  }
  size_t keep = 0;  // bytes at the end that begin a stop string
  if (first != std::string::npos) {
    stopped = true;
    held.resize(first + (options.include_stop_str_in_output ? stop_string.size() : 0));
  } else if (!at_end) {
    for (const std::string& stop : options.stop) {
      for (size_t n = std::min(stop.size() - 1, held.size()); n > keep; --n) {
        if (std::string_view(held).ends_with(std::string_view(stop).substr(0, n))) {
          keep = n;
          break;
        }
      }
    }
  }
  std::string out = held.substr(0, held.size() - keep);
  held.erase(0, out.size());
  returned += out;
  return out;
}

}  // namespace tutti
