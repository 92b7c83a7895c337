#include "text/charsmap.h"

#include <cstring>

#include "base/error.h"
#include "text/unicode.h"

namespace tutti {

Charsmap::Charsmap(std::string_view data, const std::string& source) {
  if (data.empty()) return;
  uint32_t trie_size = 0;
  if (data.size() >= sizeof trie_size) std::memcpy(&trie_size, data.data(), sizeof trie_size);
  if (data.size() <= sizeof trie_size || trie_size == 0 || trie_size % sizeof(uint32_t) != 0 ||
      trie_size >= data.size() - sizeof trie_size) {
    throw ConfigError(source + ": precompiled_charsmap of " + std::to_string(data.size()) +
                      " bytes is damaged: its trie is said to be " + std::to_string(trie_size) + " bytes");
  }
  units_.resize(trie_size / sizeof(uint32_t));
  std::memcpy(units_.data(), data.data() + sizeof trie_size, trie_size);
  replacements_ = data.substr(sizeof trie_size + trie_size);
  if (replacements_.back() != '\0' || !valid_utf8(replacements_)) {
    throw ConfigError(source + ": precompiled_charsmap is damaged: its results are not UTF-8 that ends with a NUL");
  }
}

}  // namespace tutti
