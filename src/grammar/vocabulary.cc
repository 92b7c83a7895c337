#include "grammar/vocabulary.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>

#include "base/error.h"

namespace tutti::grammar {

Vocabulary::Vocabulary(const std::vector<std::string>& tokens) : same_bytes_(tokens.size(), -1) {
  constexpr size_t kLongest = std::numeric_limits<uint16_t>::max();
  offsets_.push_back(0);
  for (const std::string& t : tokens) {
    if (t.size() <= kLongest) text_ += t;
    offsets_.push_back(static_cast<uint32_t>(text_.size()));
  }
  std::vector<int32_t> order(tokens.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [this](int32_t a, int32_t b) {
    const int compared = bytes(a).compare(bytes(b));
    return compared != 0 ? compared < 0 : a < b;
  });
  std::vector<int32_t> path = {0};  // the nodes from the root to the last token
  nodes_.push_back({});
  const auto close = [&](size_t depth) {
    for (; path.size() > depth + 1; path.pop_back())
      nodes_[static_cast<size_t>(path.back())].end = static_cast<int32_t>(nodes_.size());
  };
  std::string_view before;
  for (const int32_t token : order) {
    const std::string_view text = bytes(token);
    if (text.empty()) continue;
    const auto common =
        static_cast<size_t>(std::mismatch(before.begin(), before.end(), text.begin(), text.end()).first - before.begin());
    close(common);
    for (size_t i = common; i < text.size(); ++i) {
      path.push_back(static_cast<int32_t>(nodes_.size()));
      nodes_.push_back({.depth = static_cast<uint16_t>(i + 1), .byte = static_cast<uint8_t>(text[i])});
    }
    Node& node = nodes_[static_cast<size_t>(path.back())];
    same_bytes_[static_cast<size_t>(token)] = node.token;
    node.token = token;
    before = text;
  }
  close(0);
  nodes_[0].end = static_cast<int32_t>(nodes_.size());
}

std::string_view Vocabulary::bytes(int32_t token) const {
  if (token < 0 || token >= size()) return {};
  const auto t = static_cast<size_t>(token);
  return std::string_view(text_).substr(offsets_[t], offsets_[t + 1] - offsets_[t]);
}

std::string Vocabulary::to_bytes(const std::vector<std::string>& tokens) {
  std::string out;
  for (const std::string& t : tokens) {
    const auto length = static_cast<uint16_t>(t.size() > std::numeric_limits<uint16_t>::max() ? 0 : t.size());
    out.append(reinterpret_cast<const char*>(&length), sizeof length);
    out.append(t, 0, length);
  }
  return out;
}

Vocabulary Vocabulary::from_bytes(std::string_view bytes) {
  std::vector<std::string> tokens;
  while (!bytes.empty()) {
    uint16_t length = 0;
    if (bytes.size() < sizeof length) throw IoError("a vocabulary that ends within a token");
    std::memcpy(&length, bytes.data(), sizeof length);
    bytes.remove_prefix(sizeof length);
    if (bytes.size() < length) throw IoError("a vocabulary that ends within a token");
    tokens.emplace_back(bytes.substr(0, length));
    bytes.remove_prefix(length);
  }
  return Vocabulary(tokens);
}

}  // namespace tutti::grammar
