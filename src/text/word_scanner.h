// Hand-written equivalents of the regular expressions that well-known models cut their text into words with. Regexes
// that are not among them run in PCRE2 (regex.h). Stateless and thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace tutti {

// One piece of a text, as byte offsets.
struct Piece {
  uint32_t begin;
  uint32_t end;
  uint32_t size() const { return end - begin; }
};

enum class ScannerKind : uint8_t {
  kGpt2,        // GPT-2, SmolLM2 (after its digit split)
  kLlama3,      // Llama 3, cl100k: contractions of any case, up to three digits
  kQwen2,       // the same with single digits
  kQwen35,      // Qwen 3.5: words include marks
  kO200k,       // GPT-4o, gpt-oss, Llama 4: words split where lower case turns into upper case
  kTekken,      // the same without contractions, single digits
  kDeepSeekV3,  // after its digit and CJK splits
  kNumber,      // every \p{N} alone
  kNumbers,     // runs of \p{N}
  kNumber3,     // \p{N}{1,3}
  kCjkRun,      // [一-龥぀-ゟ゠-ヿ]+
};

// The scanner of a regex as model files spell it, none when there is no hand-written one.
std::optional<ScannerKind> scanner_for_regex(std::string_view pattern);

// Appends the pieces of text[part] to `out`: every match is one, and so is every stretch between matches. Valid UTF-8
// only; nothing outside `part` is looked at.
void scan_words(ScannerKind kind, std::string_view text, Piece part, std::vector<Piece>& out);

}  // namespace tutti
