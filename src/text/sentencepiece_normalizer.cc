#include "text/sentencepiece_normalizer.h"

#include "text/unicode.h"

namespace tutti {
SentencePieceNormalizer::SentencePieceNormalizer(const SentencePieceModel& model, const ByteTrie& user_defined,
                                                 const std::string& source)
    : add_dummy_prefix_(model.add_dummy_prefix),
      remove_extra_whitespaces_(model.remove_extra_whitespaces),
      escape_whitespaces_(model.escape_whitespaces),
      whitespace_as_suffix_(model.whitespace_as_suffix),
      user_defined_(user_defined),
      charsmap_(model.charsmap, source) {}

SentencePieceNormalizer::Step SentencePieceNormalizer::step(std::string_view text, size_t pos) const {
  int32_t id;
  const size_t defined = user_defined_.longest_prefix(text, pos, id);
  if (defined > 0) return {text.substr(pos, defined), defined};
  Step longest{{}, 0};
  charsmap_.for_each_rule(text, pos, [&](size_t length, std::string_view becomes) { longest = {becomes, length}; });
  if (longest.consumed > 0) return longest;
  const size_t length = utf8_length(text[pos]);
  return {text.substr(pos, length), length};
}

std::string SentencePieceNormalizer::apply(std::string_view text) const {
  size_t pos = 0;
  while (remove_extra_whitespaces_ && pos < text.size()) {
    const Step s = step(text, pos);
    if (s.text != " ") break;
    pos += s.consumed;
  }
  std::string out;
  if (pos == text.size()) return out;
  out.reserve(text.size() + text.size() / 2 + 8);
  const std::string_view space = escape_whitespaces_ ? kMetaspace : std::string_view(" ");
  if (add_dummy_prefix_ && !whitespace_as_suffix_) out += space;
  bool after_space = remove_extra_whitespaces_;
  while (pos < text.size()) {
    // Plain ASCII without rules is the usual case.
    Step s = step(text, pos);
    pos += s.consumed;
    while (after_space && s.text.starts_with(' ')) s.text.remove_prefix(1);
    if (s.text.empty()) continue;
    for (const char c : s.text) {
      if (c == ' ') {
        out += space;
      } else {
        out += c;
      }
    }
    after_space = remove_extra_whitespaces_ && s.text.ends_with(' ');
  }
  while (remove_extra_whitespaces_ && out.ends_with(space)) out.resize(out.size() - space.size());
  if (add_dummy_prefix_ && whitespace_as_suffix_) out += space;
  return out;
}

}  // namespace tutti
