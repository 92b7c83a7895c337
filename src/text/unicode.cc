#include "text/unicode.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <map>

namespace tutti {
namespace {

#include "text/unicode_tables.inc"

uint8_t class_bits(char32_t cp, Category c) {
  using namespace char_class;
  uint8_t bits = 0;
  if (c <= Category::kLo) bits |= kLetter;
  if (c >= Category::kMn && c <= Category::kMe) bits |= kMark | kUpperLike | kLowerLike;
  if (c >= Category::kNd && c <= Category::kNo) bits |= kNumber;
  if (c >= Category::kPc && c <= Category::kSo) bits |= kPunctuation;
  if (c == Category::kLu || c == Category::kLt) bits |= kUpperLike;
  if (c == Category::kLl) bits |= kLowerLike;
  if (c == Category::kLm || c == Category::kLo) bits |= kUpperLike | kLowerLike;
  const bool separator = c >= Category::kZs && c <= Category::kZp;
  if (separator || (cp >= 9 && cp <= 13) || cp == 0x85) bits |= kSpace;
  if (cp == '\r' || cp == '\n') bits |= kNewline;
  return bits;
}

}  // namespace

Category category(char32_t cp) {
  const uint32_t key = static_cast<uint32_t>(cp) << 8 | 0xff;
  const uint32_t* run = std::upper_bound(std::begin(kCategoryRuns), std::end(kCategoryRuns), key) - 1;
  return static_cast<Category>(*run & 0xff);
}

const CharClasses& CharClasses::get() {
  static const CharClasses table;
  return table;
}

CharClasses::CharClasses() {
  std::map<std::array<uint8_t, 256>, uint16_t> seen;
  size_t run = 0;
  for (char32_t block = 0; block < index_.size(); ++block) {
    std::array<uint8_t, 256> bits;
    for (char32_t i = 0; i < 256; ++i) {
      const char32_t cp = block << 8 | i;
      while (run + 1 < std::size(kCategoryRuns) && (kCategoryRuns[run + 1] >> 8) <= cp) ++run;
      bits[i] = class_bits(cp, static_cast<Category>(kCategoryRuns[run] & 0xff));
    }
    const auto [entry, is_new] = seen.emplace(bits, static_cast<uint16_t>(seen.size()));
    if (is_new) blocks_.insert(blocks_.end(), bits.begin(), bits.end());
    index_[block] = entry->second;
  }
}

void append_utf8(std::string& out, char32_t cp) {
  const auto put = [&](char32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (cp < 0x80) {
    put(cp);
  } else if (cp < 0x800) {
    put(0xc0 | cp >> 6);
    put(0x80 | (cp & 0x3f));
  } else if (cp < 0x10000) {
    put(0xe0 | cp >> 12);
    put(0x80 | (cp >> 6 & 0x3f));
    put(0x80 | (cp & 0x3f));
  } else {
    put(0xf0 | cp >> 18);
    put(0x80 | (cp >> 12 & 0x3f));
    put(0x80 | (cp >> 6 & 0x3f));
    put(0x80 | (cp & 0x3f));
  }
}

// The second byte's range depends on the first (no overlong forms, no surrogates, nothing above U+10FFFF), so the
// longest valid beginning ends where the first byte is out of range.
Utf8Kind classify_utf8(std::string_view text, size_t pos, size_t& length) {
  const auto b0 = static_cast<uint8_t>(text[pos]);
  length = 1;
  if (b0 < 0x80) return Utf8Kind::kCharacter;
  if (b0 < 0xc2 || b0 > 0xf4) return Utf8Kind::kInvalid;
  const size_t want = b0 < 0xe0 ? 2 : b0 < 0xf0 ? 3 : 4;
  uint8_t low = b0 == 0xe0 ? 0xa0 : b0 == 0xf0 ? 0x90 : 0x80;
  uint8_t high = b0 == 0xed ? 0x9f : b0 == 0xf4 ? 0x8f : 0xbf;
  while (length < want) {
    if (pos + length >= text.size()) return Utf8Kind::kCutOff;
    const auto b = static_cast<uint8_t>(text[pos + length]);
    if (b < low || b > high) return Utf8Kind::kInvalid;
    low = 0x80;
    high = 0xbf;
    ++length;
  }
  return Utf8Kind::kCharacter;
}

bool valid_utf8(std::string_view text) {
  size_t pos = 0;
  while (pos < text.size()) {
    uint64_t eight;
    if (pos + 8 <= text.size()) {
      std::memcpy(&eight, text.data() + pos, 8);
      if ((eight & 0x8080808080808080ull) == 0) {
        pos += 8;
        continue;
      }
    }
    size_t length;
    if (classify_utf8(text, pos, length) != Utf8Kind::kCharacter) return false;
    pos += length;
  }
  return true;
}

std::string repair_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size() + 8);
  for (size_t pos = 0; pos < text.size();) {
    size_t length;
    if (classify_utf8(text, pos, length) == Utf8Kind::kCharacter) {
      out.append(text.substr(pos, length));
    } else {
      out.append(kReplacement);
    }
    pos += length;
  }
  return out;
}

}  // namespace tutti
