#include "text/token_decoder.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>

#include "text/unicode.h"

namespace tutti {
namespace {

std::vector<std::string> texts_of(const std::vector<TokenDecoder::Token>& tokens) {
  std::vector<std::string> out;
  out.reserve(tokens.size());
  for (const TokenDecoder::Token& t : tokens) out.push_back(t.text);
  return out;
}

}  // namespace

TokenDecoder::TokenDecoder(const std::vector<Token>& tokens, const Rules& rules)
    : texts_(texts_of(tokens)), rules_(rules) {
  flags_.reserve(tokens.size());
  for (const Token& t : tokens) {
    flags_.push_back((t.special ? kSpecial : 0) | (t.byte ? kByte : 0) | (t.unknown ? kUnknown : 0));
  }
}

int TokenDecoder::leading_spaces() const {
  if (rules_.first_without_spaces) return 1;
  return rules_.leading_spaces_again ? std::numeric_limits<int>::max() : rules_.leading_spaces;
}

std::string TokenDecoder::decode(const std::vector<TokenId>& ids, bool skip_special) const {
  std::string out;
  out.reserve(ids.size() * 5);
  std::string run;          // bytes of byte tokens, not yet in `out`
  bool first = true;
  const bool strip_whole = rules_.invalid == InvalidBytes::kRunReplaced;
  bool at_start = rules_.leading_spaces > 0 && !strip_whole;
  for (const TokenId id : ids) {
    if (!in_range(id)) continue;
    const uint8_t flags = flags_[id];
    if (skip_special && (flags & kSpecial)) {
      // A control piece has no text, but SentencePiece joins no bytes across it.
      if (rules_.invalid == InvalidBytes::kByteReplaced) flush_bytes(run, out);
      continue;
    }
    std::string_view text = texts_[id];
    if ((flags & kByte) && rules_.invalid != InvalidBytes::kReplaced) {
      run += text;
      continue;
    }
    flush_bytes(run, out);
    at_start = at_start && out.empty();
    const bool strips = at_start && !(flags & kUnknown);
    for (int i = 0; strips && i < rules_.leading_spaces && text.starts_with(' '); ++i) {
      text.remove_prefix(1);
      at_start = rules_.leading_spaces_again;
    }
    if (!first && rules_.spaces_between) out += ' ';
    if (first && rules_.first_without_spaces) {
      std::copy_if(text.begin(), text.end(), std::back_inserter(out), [](char c) { return c != ' '; });
    } else {
      out += text;
    }
    first = false;
  }
  flush_bytes(run, out);
  if (strip_whole) out.erase(0, std::min<size_t>(rules_.leading_spaces, out.find_first_not_of(' ')));
  if (rules_.invalid == InvalidBytes::kReplaced && !valid_utf8(out)) return repair_utf8(out);
  return out;
}

void TokenDecoder::flush_bytes(std::string& run, std::string& out) const {
  if (run.empty()) return;
  const std::string bytes = std::exchange(run, {});
  if (valid_utf8(bytes)) {
    out += bytes;
    return;
  }
  for (size_t pos = 0, length; pos < bytes.size(); pos += length) {
    const bool whole = classify_utf8(bytes, pos, length) == Utf8Kind::kCharacter;
    if (whole && rules_.invalid == InvalidBytes::kByteReplaced) {
      out.append(bytes, pos, length);
    } else {
      length = 1;
      out += kReplacement;
    }
  }
}

}  // namespace tutti
