// UTF-8, general categories (Unicode 14) and canonical normalisation (Unicode 9, as the tokenizers package). Everything is
// const and thread-safe; used by the tokenizers on the caller's thread.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tutti {

// In the order of the generated table (python/generate_unicode_tables.py).
enum class Category : uint8_t {
  kLu, kLl, kLt, kLm, kLo, kMn, kMc, kMe, kNd, kNl, kNo, kPc, kPd, kPs, kPe, kPi, kPf, kPo, kSm, kSc, kSk, kSo,
  kZs, kZl, kZp, kCc, kCf, kCs, kCo, kCn
};

Category category(char32_t cp);

// What the word scanners ask of a code point, as a set of bits.
namespace char_class {
inline constexpr uint8_t kLetter = 1;       // \p{L}
inline constexpr uint8_t kNumber = 2;       // \p{N}
inline constexpr uint8_t kSpace = 4;        // \s: White_Space
inline constexpr uint8_t kMark = 8;         // \p{M}
inline constexpr uint8_t kUpperLike = 16;   // Lu Lt Lm Lo M
inline constexpr uint8_t kLowerLike = 32;   // Ll Lm Lo M
inline constexpr uint8_t kPunctuation = 64; // \p{P} \p{S}
inline constexpr uint8_t kNewline = 128;    // \r \n
}  // namespace char_class

// Code point -> char_class bits. One shared immutable table; scanners keep the reference.
class CharClasses {
 public:
  static const CharClasses& get();
  uint8_t operator[](char32_t cp) const { return blocks_[(size_t{index_[cp >> 8]} << 8) | (cp & 0xff)]; }

 private:
  CharClasses();
  std::array<uint16_t, 0x1100> index_{};
  std::vector<uint8_t> blocks_;
};

// Decodes the character at text[pos] of valid UTF-8; sets `length` to its bytes.
inline char32_t decode_utf8(std::string_view text, size_t pos, size_t& length) {
  const auto byte = [&](size_t i) { return static_cast<char32_t>(static_cast<uint8_t>(text[pos + i])); };
  const char32_t b0 = byte(0);
  if (b0 < 0x80) {
    length = 1;
    return b0;
  }
  if (b0 < 0xe0) {
    length = 2;
    return (b0 & 0x1f) << 6 | (byte(1) & 0x3f);
  }
  if (b0 < 0xf0) {
    length = 3;
    return (b0 & 0x0f) << 12 | (byte(1) & 0x3f) << 6 | (byte(2) & 0x3f);
  }
  length = 4;
  return (b0 & 0x07) << 18 | (byte(1) & 0x3f) << 12 | (byte(2) & 0x3f) << 6 | (byte(3) & 0x3f);
}

// Bytes of the character that starts with `lead`, in valid UTF-8.
inline size_t utf8_length(char lead) {
  const auto b = static_cast<uint8_t>(lead);
  return b < 0x80 ? 1 : b < 0xe0 ? 2 : b < 0xf0 ? 3 : 4;
}

void append_utf8(std::string& out, char32_t cp);

// What stands at text[pos] of any bytes: a whole character, the beginning of one that the end of the text cuts off, or
// bytes that are none (`length` is then the longest part that a decoder replaces by one U+FFFD).
enum class Utf8Kind : uint8_t { kCharacter, kCutOff, kInvalid };
Utf8Kind classify_utf8(std::string_view text, size_t pos, size_t& length);

bool valid_utf8(std::string_view text);
// Every invalid part becomes one U+FFFD (a cut-off character at the end too).
std::string repair_utf8(std::string_view text);

std::string to_nfd(std::string_view text);
std::string to_nfc(std::string_view text);

inline constexpr std::string_view kReplacement = "\xef\xbf\xbd";
inline constexpr std::string_view kMetaspace = "\xe2\x96\x81";  // "▁", a space in vocabularies of the SentencePiece kind

}  // namespace tutti
