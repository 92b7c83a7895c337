// Decomposition, canonical or of compatibility, and composition (UAX 15).
#include <algorithm>
#include <iterator>
#include <span>
#include <unordered_map>
#include <vector>

#include "text/unicode.h"
#include "text/unicode_folding.h"

namespace tutti {
namespace {

#include "text/normalization_tables.inc"

// Hangul syllables are computed, not listed.
constexpr char32_t kHangulBase = 0xac00, kLBase = 0x1100, kVBase = 0x1161, kTBase = 0x11a7;
constexpr char32_t kVCount = 21, kTCount = 28, kHangulCount = 11172, kLCount = 19;

struct Tables {
  std::unordered_map<char32_t, std::pair<char32_t, char32_t>> decompose;
  std::unordered_map<uint64_t, char32_t> compose;
  std::unordered_map<char32_t, std::span<const uint32_t>> compatibility;
  // Characters that NFC may change or join to the one before them.
  std::vector<bool> unsafe = std::vector<bool>(0x110000, false);

  static const Tables& get() {
    static const Tables tables;
    return tables;
  }

 private:
  Tables() {
    for (size_t i = 0; i < std::size(kDecompositions); i += 3) {
      const uint32_t cp = kDecompositions[i], first = kDecompositions[i + 1], second = kDecompositions[i + 2];
      decompose.emplace(cp, std::pair(first, second));
      const bool excluded =
          std::binary_search(std::begin(kCompositionExclusions), std::end(kCompositionExclusions), cp);
      if (second != 0 && !excluded) compose.emplace(uint64_t{first} << 32 | second, cp);
      unsafe[second == 0 || excluded ? cp : second] = true;
    }
    for (size_t i = 0; i < std::size(kCompatibilityDecompositions);) {
      const uint32_t cp = kCompatibilityDecompositions[i], count = kCompatibilityDecompositions[i + 1];
      compatibility.emplace(cp, std::span(kCompatibilityDecompositions + i + 2, count));
      i += 2 + count;
    }
    for (size_t i = 0; i < std::size(kCombiningRuns); ++i) {
      if ((kCombiningRuns[i] & 0xff) == 0) continue;
      for (uint32_t cp = kCombiningRuns[i] >> 8; cp < kCombiningRuns[i + 1] >> 8; ++cp) unsafe[cp] = true;
    }
    for (char32_t cp = kVBase; cp < kVBase + kVCount; ++cp) unsafe[cp] = true;
    for (char32_t cp = kTBase + 1; cp < kTBase + kTCount; ++cp) unsafe[cp] = true;
  }
};

// The value of the run that `cp` lies in.
template <size_t N>
uint8_t run_value(const uint32_t (&runs)[N], char32_t cp) {
  const uint32_t key = static_cast<uint32_t>(cp) << 8 | 0xff;
  return *(std::upper_bound(std::begin(runs), std::end(runs), key) - 1) & 0xff;
}

uint8_t combining_class(char32_t cp) { return run_value(kCombiningRuns, cp); }

enum class Form : uint8_t { kCanonical, kCompatibility };

void decompose_to(char32_t cp, const Tables& tables, Form form, std::u32string& out) {
  if (cp >= kHangulBase && cp < kHangulBase + kHangulCount) {
    const char32_t s = cp - kHangulBase;
    out.push_back(kLBase + s / (kVCount * kTCount));
    out.push_back(kVBase + s / kTCount % kVCount);
    if (s % kTCount != 0) out.push_back(kTBase + s % kTCount);
    return;
  }
  if (form == Form::kCompatibility) {
    if (const auto it = tables.compatibility.find(cp); it != tables.compatibility.end()) {
      for (const uint32_t part : it->second) decompose_to(part, tables, form, out);
      return;
    }
  }
  const auto it = tables.decompose.find(cp);
  if (it == tables.decompose.end()) {
    out.push_back(cp);
    return;
  }
  decompose_to(it->second.first, tables, form, out);
  if (it->second.second != 0) decompose_to(it->second.second, tables, form, out);
}

std::u32string decomposed(std::string_view text, Form form) {
  const Tables& tables = Tables::get();
  std::u32string out;
  out.reserve(text.size());
  for (size_t pos = 0; pos < text.size();) {
    size_t length;
    decompose_to(decode_utf8(text, pos, length), tables, form, out);
    pos += length;
  }
  // Marks of one base character go in the order of their classes.
  for (size_t i = 0; i < out.size();) {
    if (out[i] < 0x300 || combining_class(out[i]) == 0) {
      ++i;
      continue;
    }
    size_t end = i;
    while (end < out.size() && combining_class(out[end]) != 0) ++end;
    std::stable_sort(out.begin() + i, out.begin() + end,
                     [](char32_t a, char32_t b) { return combining_class(a) < combining_class(b); });
    i = end;
  }
  return out;
}

// The composite of two neighbours, 0 when there is none.
char32_t composite(char32_t first, char32_t second, const Tables& tables) {
  if (first >= kLBase && first < kLBase + kLCount && second >= kVBase && second < kVBase + kVCount) {
    return kHangulBase + ((first - kLBase) * kVCount + (second - kVBase)) * kTCount;
  }
  if (first >= kHangulBase && first < kHangulBase + kHangulCount && (first - kHangulBase) % kTCount == 0 &&
      second > kTBase && second < kTBase + kTCount) {
    return first + (second - kTBase);
  }
  const auto it = tables.compose.find(uint64_t{first} << 32 | second);
  return it == tables.compose.end() ? 0 : it->second;
}

std::string to_utf8(const std::u32string& text) {
  std::string out;
  out.reserve(text.size() * 2);
  for (const char32_t cp : text) append_utf8(out, cp);
  return out;
}

// NFC or NFKC of a stretch that begins with a character which does not join the one before it.
std::string compose_segment(std::string_view text, Form form) {
  const Tables& tables = Tables::get();
  const std::u32string in = decomposed(text, form);
  std::u32string out;
  out.reserve(in.size());
  size_t starter = std::u32string::npos;  // position in `out` of the last character of class 0
  int last_class = 0;
  for (const char32_t cp : in) {
    const int cls = combining_class(cp);
    if (starter != std::u32string::npos) {
      const bool blocked = out.size() - 1 != starter && (last_class >= cls || last_class == 0);
      const char32_t joined = blocked ? 0 : composite(out[starter], cp, tables);
      if (joined != 0) {
        out[starter] = joined;
        continue;
      }
    }
    if (cls == 0) starter = out.size();
    last_class = cls;
    out.push_back(cp);
  }
  return to_utf8(out);
}

}  // namespace

std::string to_nfd(std::string_view text) { return to_utf8(decomposed(text, Form::kCanonical)); }
std::string to_nfkd(std::string_view text) { return to_utf8(decomposed(text, Form::kCompatibility)); }
std::string to_nfkc(std::string_view text) { return compose_segment(text, Form::kCompatibility); }

std::string without_marks(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t pos = 0, length; pos < text.size(); pos += length) {
    if (run_value(kMarkRuns, decode_utf8(text, pos, length)) == 0) out.append(text, pos, length);
  }
  return out;
}

std::string to_nfc(std::string_view text) {
  const Tables& tables = Tables::get();
  std::string out;
  out.reserve(text.size());
  size_t copied = 0;      // text before this is in `out`
  size_t last_safe = 0;   // start of the last safe character
  for (size_t pos = 0; pos < text.size();) {
    size_t length;
    const char32_t cp = decode_utf8(text, pos, length);
    if (cp < 0x300 || !tables.unsafe[cp]) {
      last_safe = pos;
      pos += length;
      continue;
    }
    size_t end = pos + length;
    while (end < text.size() && tables.unsafe[decode_utf8(text, end, length)]) end += length;
    const size_t begin = std::max(last_safe, copied);
    out.append(text.substr(copied, begin - copied));
    out.append(compose_segment(text.substr(begin, end - begin), Form::kCanonical));
    copied = last_safe = pos = end;
  }
  out.append(text.substr(copied));
  return out;
}

}  // namespace tutti
