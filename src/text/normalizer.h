// The "normalizer" of a tokenizer.json: rewrites text before it is cut into words. Const and thread-safe once built.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "text/charsmap.h"
#include "text/json_fields.h"
#include "text/regex.h"

namespace tutti {

class Normalizer {
 public:
  Normalizer() = default;  // changes nothing
  // `node` may be null. Throws ConfigError for kinds that no supported model uses.
  Normalizer(const SortedJson& node, const std::string& where);

  bool identity() const { return steps_.empty(); }
  std::string apply(std::string_view text) const;

 private:
  using Rewrite = std::string (*)(std::string_view);
  struct Precompiled {  // SentencePiece's rules, tried on whole grapheme clusters before their characters
    Charsmap rules;
    Regex cluster;
  };
  struct Strip {
    bool left, right;
  };
  struct Prepend {
    std::string text;
  };
  struct ReplaceText {
    std::string from, to;
  };
  struct ReplaceRegex {
    Regex from;
    std::string to;
  };
  using Step = std::variant<Rewrite, Precompiled, Strip, Prepend, ReplaceText, ReplaceRegex>;

  void add(const JsonFields& node);
  static std::string run(const Step& step, std::string text);

  std::vector<Step> steps_;
};

// text with every `from` replaced by `to`.
std::string replace_all(std::string_view text, std::string_view from, std::string_view to);

}  // namespace tutti
