#include "grammar/ebnf.h"

#include <fmt/format.h>

#include <string>
#include <unordered_map>

#include "grammar/scanner.h"

namespace tutti::grammar {
namespace {

constexpr int kMaxNesting = 64;
constexpr std::string_view kRoot = "root";

bool is_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
}

class EbnfParser {
 public:
  explicit EbnfParser(std::string_view text) : in_(text) { rule(std::string(kRoot), 0); }

  Rules parse() {
    skip_space();
    while (!in_.at_end()) definition();
    for (const auto& [name, r] : by_name_) {
      if (rules_.body(static_cast<size_t>(r.number)) != nullptr) continue;
      if (name == kRoot) throw InvalidGrammar("there is no rule `root`: the grammar begins with `root ::= ...`");
      in_.fail_at(fmt::format("the rule `{}` is used, but not defined", name), r.used_at);
    }
    return std::move(rules_);
  }

 private:
  struct Rule {
    int number;
    size_t used_at;
  };

  int rule(const std::string& name, size_t at) {
    const auto found = by_name_.find(name);
    if (found != by_name_.end()) return found->second.number;
    return by_name_.emplace(name, Rule{rules_.declare(name), at}).first->second.number;
  }

  void skip_space() {
    while (true) {
      const char c = in_.peek();
      if (c == ' ' || c == '\t' || c == '\r' || c == '\n') {
        in_.skip();
      } else if (c == '#') {
        while (!in_.at_end() && in_.peek() != '\n') in_.skip();
      } else {
        return;
      }
    }
  }

  std::string name() {
    std::string out;
    for (; is_name(in_.peek()); in_.skip()) out += in_.peek();
    return out;
  }

  // A name and `::=` begin the next rule: the one before ends here.
  bool at_definition() {
    const size_t begin = in_.position();
    const bool found = !name().empty() && (skip_space(), in_.looking_at("::="));
    in_.go_to(begin);
    return found;
  }

  void definition() {
    const size_t begin = in_.position();
    const std::string lhs = name();
    if (lhs.empty()) in_.fail("the name of a rule is expected: `name ::= ...`");
    skip_space();
    if (!in_.take("::=")) {
      const bool lark = in_.looking_at(":");
      in_.fail(fmt::format("`::=` is expected behind the rule's name `{}`{}", lhs,
                           lark ? " (grammars of Lark are not supported)" : ""));
    }
    const int number = rule(lhs, begin);
    if (rules_.body(static_cast<size_t>(number)) != nullptr)
      in_.fail_at(fmt::format("the rule `{}` is defined twice", lhs), begin);
    rules_.define(number, alternatives(0));
    if (!in_.at_end() && !at_definition()) in_.fail(fmt::format("`{}` is not expected here", in_.peek()));
  }

  ExprPtr alternatives(int depth) {
    if (depth > kMaxNesting) in_.fail(fmt::format("groups are nested deeper than {} levels", kMaxNesting));
    std::vector<ExprPtr> all;
    do {
      all.push_back(alternative(depth));
    } while (in_.take("|"));
    return all.size() == 1 ? all.front() : choice(std::move(all));
  }

  ExprPtr alternative(int depth) {
    std::vector<ExprPtr> parts;
    for (skip_space(); at_item(); skip_space()) {
      ExprPtr part = item(depth);
      skip_space();
      parts.push_back(in_.repeated(std::move(part)));
    }
    return sequence(std::move(parts));
  }

  bool at_item() {
    const char c = in_.peek();
    return c == '"' || c == '\'' || c == '[' || c == '(' || c == '.' || (is_name(c) && !at_definition());
  }

  ExprPtr item(int depth) {
    const char c = in_.peek();
    if (c == '"' || c == '\'') return quoted(c);
    if (c == '[') return one_of(char_class());
    if (c == '.') {
      in_.skip();
      return one_of(CharSet({{'\n', '\n'}, {'\r', '\r'}}).complement());
    }
    if (c == '(') {
      const size_t begin = in_.position();
      in_.skip();
      if (in_.looking_at("=")) in_.fail_at("look-ahead `(=` is not supported", begin);
      ExprPtr inside = alternatives(depth + 1);
      if (!in_.take(")")) in_.fail_at("there is a `(` without its `)`", begin);
      return inside;
    }
    const size_t at = in_.position();
    return call(rule(name(), at));
  }

  ExprPtr quoted(char quote) {
    const size_t begin = in_.position();
    in_.skip();
    std::string out;
    while (in_.peek() != quote) {
      if (in_.at_end() || in_.peek() == '\n') in_.fail_at("a text has no closing quote", begin);
      out += encode_utf8(escaped_character());
    }
    in_.skip();
    return text(std::move(out));
  }

  uint32_t escaped_character() {
    if (in_.peek() != '\\') return in_.character();
    const size_t begin = in_.position();
    in_.skip();
    const uint32_t c = in_.character();
    switch (c) {
      case 'n': return '\n';
      case 'r': return '\r';
      case 't': return '\t';
      case 'f': return '\f';
      case 'v': return '\v';
      case 'b': return '\b';
      case '0': return 0;
      case 'x': return in_.hex(2);
      case 'u': return code_point(in_.hex(4), begin);
      case 'U': return code_point(in_.hex(8), begin);
      default:
        if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '1' && c <= '9')) {
          in_.fail_at(fmt::format("the escape \\{} is not known", static_cast<char>(c)), begin);
        }
        return c;
    }
  }

  uint32_t code_point(uint32_t code, size_t begin) const {
    if (code > CharSet::kLast || (code >= 0xD800 && code <= 0xDFFF)) in_.fail_at("an escape is no code point", begin);
    return code;
  }

  CharSet char_class() {
    const size_t begin = in_.position();
    in_.skip();
    const bool negated = in_.take("^");
    std::vector<CodeRange> ranges;
    while (in_.peek() != ']') {
      if (in_.at_end()) in_.fail_at("there is a `[` without its `]`", begin);
      const size_t item = in_.position();
      const uint32_t low = escaped_character();
      uint32_t high = low;
      if (in_.peek() == '-' && in_.peek(1) != ']') {
        in_.skip();
        high = escaped_character();
      }
      if (high < low) in_.fail_at("a range of a class counts down", item);
      ranges.push_back({low, high});
      if (ranges.size() > 4096) in_.fail("a class of more than 4096 parts");
    }
    in_.skip();
    const CharSet set(std::move(ranges));
    return negated ? set.complement() : set;
  }

  Scanner in_;
  Rules rules_;
  std::unordered_map<std::string, Rule> by_name_;
};

}  // namespace

Rules parse_ebnf(std::string_view text) { return EbnfParser(text).parse(); }

}  // namespace tutti::grammar
