// What only the folding normalisers of a tokenizer.json ask for: compatibility forms (UAX 15), marks. Unicode 9, as the
// tokenizers package. Const and thread-safe.
#pragma once

#include <string>
#include <string_view>

namespace tutti {

std::string to_nfkd(std::string_view text);
std::string to_nfkc(std::string_view text);
// `text` without its marks (general category M).
std::string without_marks(std::string_view text);

}  // namespace tutti
