// The bytes of all tokens as a trie, laid out in the order of a walk through it. Const once built; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::grammar {

class Vocabulary {
 public:
  // `tokens[id]` is what token `id` adds to a text: "" for those that add nothing (the end of a text, markers).
  explicit Vocabulary(const std::vector<std::string>& tokens);

  // For the way to the ranks. from_bytes throws IoError.
  static std::string to_bytes(const std::vector<std::string>& tokens);
  static Vocabulary from_bytes(std::string_view bytes);

  int64_t size() const { return static_cast<int64_t>(offsets_.size()) - 1; }
  // "" for ids outside the vocabulary.
  std::string_view bytes(int32_t token) const;

  // Node i's children follow it at once: i + 1 is the first, and `end` of each is the next one, up to the parent's `end`.
  struct Node {
    int32_t end = 0;     // behind the last node below this one
    int32_t token = -1;  // the first token that ends here
    uint16_t depth = 0;  // bytes from the root, which is 0
    uint8_t byte = 0;
  };
  const std::vector<Node>& nodes() const { return nodes_; }
  // The next token of the same bytes, or -1.
  int32_t same_bytes(int32_t token) const { return same_bytes_[static_cast<size_t>(token)]; }

 private:
  std::string text_;  // of all tokens
  std::vector<uint32_t> offsets_;
  std::vector<Node> nodes_;
  std::vector<int32_t> same_bytes_;
};

}  // namespace tutti::grammar
