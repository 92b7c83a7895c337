#include "text/word_scanner.h"

#include <array>
#include <utility>

#include "text/unicode.h"

namespace tutti {
namespace {

using namespace char_class;

// The text of one part with the class of the character at a position.
class Cursor {
 public:
  Cursor(std::string_view text) : text_(text), classes_(CharClasses::get()) {}

  size_t size() const { return text_.size(); }
  char byte(size_t pos) const { return text_[pos]; }
  bool is(size_t pos, char c) const { return pos < text_.size() && text_[pos] == c; }

  // 0 (no class) at the end of the text.
  uint8_t at(size_t pos, size_t& length) const {
    if (pos >= text_.size()) {
      length = 0;
      return 0;
    }
    return classes_[decode_utf8(text_, pos, length)];
  }

  // End of the run of characters that have a class of `mask`.
  size_t run(size_t pos, uint8_t mask) const {
    size_t length;
    while (pos < text_.size() && (classes_[decode_utf8(text_, pos, length)] & mask)) pos += length;
    return pos;
  }
  // End of the run of characters that have none.
  size_t run_without(size_t pos, uint8_t mask) const {
    size_t length;
    while (pos < text_.size() && !(classes_[decode_utf8(text_, pos, length)] & mask)) pos += length;
    return pos;
  }
  size_t run_newlines(size_t pos, bool slash) const {
    while (pos < text_.size() && (text_[pos] == '\n' || text_[pos] == '\r' || (slash && text_[pos] == '/'))) ++pos;
    return pos;
  }

  // 's 't 're 've 'm 'll 'd at pos; returns their end or `pos`. With `any_case` also 'S and 'ſ, which folds to s.
  size_t contraction(size_t pos, bool any_case) const {
    if (!is(pos, '\'') || pos + 1 >= size()) return pos;
    const auto letter = [&](size_t i) -> char {
      if (i >= size()) return 0;
      const char c = text_[i];
      return any_case && c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
    };
    const char a = letter(pos + 1), b = letter(pos + 2);
    if (a == 's' || a == 't' || a == 'm' || a == 'd') return pos + 2;
    if ((a == 'r' || a == 'v') && b == 'e') return pos + 3;
    if (a == 'l' && b == 'l') return pos + 3;
    if (any_case && text_.substr(pos + 1, 2) == "\xc5\xbf") return pos + 3;
    return pos;
  }

  // \s*[\r\n]+ (if `newlines`), \s+(?!\S), \s+: in this order.
  size_t whitespace(size_t pos, bool newlines) const {
    size_t end = pos, last = pos, after_newline = 0, length;
    while (end < size()) {
      const uint8_t cls = at(end, length);
      if (!(cls & kSpace)) break;
      last = end;
      end += length;
      if (cls & kNewline) after_newline = end;
    }
    if (newlines && after_newline != 0) return after_newline;
    return end == size() || last == pos ? end : last;  // the last space goes to the next word
  }

 private:
  std::string_view text_;
  const CharClasses& classes_;
};

struct Gpt2 {
  // 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
  size_t operator()(const Cursor& c, size_t pos) const {
    const size_t after = c.contraction(pos, false);
    if (after != pos) return after;
    size_t length;
    size_t start = pos;
    uint8_t cls = c.at(pos, length);
    if (c.byte(pos) == ' ' && pos + 1 < c.size()) {
      const uint8_t next = c.at(pos + 1, length);
      if (!(next & kSpace)) {
        start = pos + 1;
        cls = next;
      }
    }
    if (cls & kLetter) return c.run(start + length, kLetter);
    if (cls & kNumber) return c.run(start + length, kNumber);
    if (!(cls & kSpace)) return c.run_without(start + length, kSpace | kLetter | kNumber);
    return c.whitespace(pos, false);
  }
};

size_t take_digits(const Cursor& c, size_t pos, int most) {
  size_t length;
  for (int i = 0; i < most && (c.at(pos, length) & kNumber); ++i) pos += length;
  return pos;
}

// (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,D}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
// where kWord may be \p{L} or [\p{L}\p{M}].
template <int kDigits, uint8_t kWord>
struct Cl100k {
  size_t operator()(const Cursor& c, size_t pos) const {
    const size_t after = c.contraction(pos, true);
    if (after != pos) return after;
    size_t length, next_length = 0;
    const uint8_t cls = c.at(pos, length);
    if (cls & kWord) return c.run(pos + length, kWord);
    if (cls & kNumber) return take_digits(c, pos, kDigits);
    const uint8_t next = c.at(pos + length, next_length);
    if (!(cls & kNewline) && (next & kWord)) return c.run(pos + length + next_length, kWord);
    constexpr uint8_t kNotOther = kSpace | kWord | kNumber;
    const bool spaced = c.byte(pos) == ' ' && next_length != 0 && !(next & kNotOther);
    if (spaced || !(cls & kSpace)) {
      return c.run_newlines(c.run_without(pos + length, kNotOther), false);
    }
    return c.whitespace(pos, true);
  }
};

// A = [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}], B = [\p{Ll}\p{Lm}\p{Lo}\p{M}], C = (?i:'s|'t|'re|'ve|'m|'ll|'d)? or nothing:
// [^\r\n\p{L}\p{N}]?A*B+C|[^\r\n\p{L}\p{N}]?A+B*C|\p{N}{1,D}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+
template <int kDigits, bool kContractions>
struct O200k {
  size_t operator()(const Cursor& c, size_t pos) const {
    size_t length, next_length = 0;
    const uint8_t cls = c.at(pos, length);
    if (!(cls & (kLetter | kNumber | kNewline))) {
      // A mark may stand before a word or be one: the second goes before A+B* behind it.
      const size_t end = word(c, pos + length, !(cls & kMark));
      if (end != 0) return end;
    }
    if (cls & (kLetter | kMark)) return word(c, pos, true);
    if (cls & kNumber) return take_digits(c, pos, kDigits);
    const uint8_t next = c.at(pos + length, next_length);
    constexpr uint8_t kNotOther = kSpace | kLetter | kNumber;
    const bool spaced = c.byte(pos) == ' ' && next_length != 0 && !(next & kNotOther);
    if (spaced || !(cls & kSpace)) return c.run_newlines(c.run_without(pos + length, kNotOther), true);
    return c.whitespace(pos, true);
  }

 private:
  // A*B+C at pos or, with `upper_only`, A+B*C; 0 when neither matches. A* takes all it can and gives back to the last
  // character that is in both classes, when no B follows.
  static size_t word(const Cursor& c, size_t pos, bool upper_only) {
    size_t end = pos, both_end = 0, length;
    uint8_t cls;
    while ((cls = c.at(end, length)) & kUpperLike) {
      end += length;
      if (cls & kLowerLike) both_end = end;
    }
    if (cls & kLowerLike) {
      end = c.run(end, kLowerLike);
    } else if (both_end != 0) {
      end = both_end;
    } else if (end == pos || !upper_only) {
      return 0;
    }
    return kContractions ? c.contraction(end, true) : end;
  }
};

// [!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|
// \s*[\r\n]+|\s+(?!\S)|\s+; numbers and control characters may match nothing.
struct DeepSeekV3 {
  static bool ascii_letter(const Cursor& c, size_t pos) {
    return pos < c.size() && ((c.byte(pos) | 32) >= 'a' && (c.byte(pos) | 32) <= 'z');
  }
  size_t operator()(const Cursor& c, size_t pos) const {
    size_t length, next_length = 0;
    const uint8_t cls = c.at(pos, length);
    constexpr uint8_t kWord = kLetter | kMark;
    if (length == 1 && (cls & kPunctuation) && ascii_letter(c, pos + 1)) {
      size_t end = pos + 2;
      while (ascii_letter(c, end)) ++end;
      return end;
    }
    if (cls & kWord) return c.run(pos + length, kWord);
    const uint8_t next = c.at(pos + length, next_length);
    if (!(cls & (kNewline | kPunctuation)) && (next & kWord)) return c.run(pos + length + next_length, kWord);
    const bool spaced = c.byte(pos) == ' ' && (next & kPunctuation);
    if (spaced || (cls & kPunctuation)) return c.run_newlines(c.run(pos + length, kPunctuation), false);
    if (cls & kSpace) return c.whitespace(pos, true);
    return pos;
  }
};

template <int kMost>
struct Numbers {
  size_t operator()(const Cursor& c, size_t pos) const {
    return kMost == 0 ? c.run(pos, kNumber) : take_digits(c, pos, kMost);
  }
};

struct CjkRun {
  size_t operator()(const Cursor& c, size_t pos) const {
    while (pos + 2 < c.size() && static_cast<uint8_t>(c.byte(pos)) >= 0xe3) {
      const char bytes[3] = {c.byte(pos), c.byte(pos + 1), c.byte(pos + 2)};
      size_t length;
      const char32_t cp = utf8_length(bytes[0]) == 3 ? decode_utf8({bytes, 3}, 0, length) : 0;
      if (!((cp >= 0x4e00 && cp <= 0x9fa5) || (cp >= 0x3040 && cp <= 0x30ff))) break;
      pos += 3;
    }
    return pos;
  }
};

template <typename Scanner>
void scan(std::string_view text, Piece part, std::vector<Piece>& out) {
  const Cursor cursor(text.substr(part.begin, part.size()));
  const Scanner scanner;
  size_t gap = 0;
  for (size_t pos = 0; pos < cursor.size();) {
    const size_t end = scanner(cursor, pos);
    if (end == pos) {
      pos += utf8_length(cursor.byte(pos));
      continue;
    }
    if (gap != pos) out.push_back({part.begin + static_cast<uint32_t>(gap), part.begin + static_cast<uint32_t>(pos)});
    out.push_back({part.begin + static_cast<uint32_t>(pos), part.begin + static_cast<uint32_t>(end)});
    gap = pos = end;
  }
  if (gap != cursor.size()) out.push_back({part.begin + static_cast<uint32_t>(gap), part.end});
}

constexpr std::string_view kSpaceTail = R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kContractions = R"((?i:'s|'t|'re|'ve|'m|'ll|'d))";

std::string cl100k(std::string_view contractions, std::string_view letters, std::string_view digits) {
  const std::string in_class(letters.front() == '[' ? letters.substr(1, letters.size() - 2) : letters);
  return std::string(contractions) + R"(|[^\r\n\p{L}\p{N}]?)" + std::string(letters) + "+|" + std::string(digits) +
         R"(| ?[^\s)" + in_class + R"(\p{N}]+[\r\n]*)" + std::string(kSpaceTail);
}

std::string o200k(std::string_view contractions, std::string_view digits) {
  const std::string start = R"([^\r\n\p{L}\p{N}]?)";
  const std::string upper = R"([\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])", lower = R"([\p{Ll}\p{Lm}\p{Lo}\p{M}])";
  const std::string end(contractions);
  return start + upper + "*" + lower + "+" + end + "|" + start + upper + "+" + lower + "*" + end + "|" +
         std::string(digits) + R"(| ?[^\s\p{L}\p{N}]+[\r\n/]*)" + std::string(kSpaceTail);
}

// Every spelling of a known regex, with its scanner.
std::vector<std::pair<std::string, ScannerKind>> known_regexes() {
  using enum ScannerKind;
  const std::string gpt2 = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S))";
  const std::string optional = std::string(kContractions) + "?";
  const std::string deepseek =
      R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*)";
  return {
      {gpt2 + R"(|\s+)", kGpt2},
      {gpt2, kGpt2},  // what \s+ would match is then the stretch between matches
      {cl100k(kContractions, R"(\p{L})", R"(\p{N}{1,3})"), kLlama3},
      {cl100k(kContractions, R"(\p{L})", R"(\p{N})"), kQwen2},
      {cl100k(kContractions, R"([\p{L}\p{M}])", R"(\p{N})"), kQwen35},
      {o200k(optional, R"(\p{N}{1,3})"), kO200k},
      {o200k("", R"(\p{N})"), kTekken},
      {deepseek + std::string(kSpaceTail), kDeepSeekV3},
      {R"(\p{N})", kNumber},
      {R"(\p{N}+)", kNumbers},
      {R"(\p{N}{1,3})", kNumber3},
      {"[一-龥぀-ゟ゠-ヿ]+", kCjkRun},
  };
}

}  // namespace

std::optional<ScannerKind> scanner_for_regex(std::string_view pattern) {
  // Some files hold the characters that the escapes mean.
  std::string escaped;
  for (const char c : pattern) escaped += c == '\r' ? "\\r" : c == '\n' ? "\\n" : std::string(1, c);
  for (const auto& [regex, kind] : known_regexes()) {
    if (regex == escaped) return kind;
  }
  return std::nullopt;
}

void scan_words(ScannerKind kind, std::string_view text, Piece part, std::vector<Piece>& out) {
  switch (kind) {
    case ScannerKind::kGpt2: return scan<Gpt2>(text, part, out);
    case ScannerKind::kLlama3: return scan<Cl100k<3, kLetter>>(text, part, out);
    case ScannerKind::kQwen2: return scan<Cl100k<1, kLetter>>(text, part, out);
    case ScannerKind::kQwen35: return scan<Cl100k<1, kLetter | kMark>>(text, part, out);
    case ScannerKind::kO200k: return scan<O200k<3, true>>(text, part, out);
    case ScannerKind::kTekken: return scan<O200k<1, false>>(text, part, out);
    case ScannerKind::kDeepSeekV3: return scan<DeepSeekV3>(text, part, out);
    case ScannerKind::kNumber: return scan<Numbers<1>>(text, part, out);
    case ScannerKind::kNumbers: return scan<Numbers<0>>(text, part, out);
    case ScannerKind::kNumber3: return scan<Numbers<3>>(text, part, out);
    case ScannerKind::kCjkRun: return scan<CjkRun>(text, part, out);
  }
}

}  // namespace tutti
