#include "grammar/regex.h"

#include <fmt/format.h>

#include <utility>

#include "grammar/scanner.h"

namespace tutti::grammar {
namespace {

constexpr int kMaxNesting = 64;

const CharSet& digits() {
  static const CharSet set({{'0', '9'}});
  return set;
}
const CharSet& word() {
  static const CharSet set({{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}});
  return set;
}
const CharSet& space() {
  static const CharSet set({{'\t', '\r'}, {' ', ' '}});
  return set;
}
const CharSet& line_ends() {
  static const CharSet set({{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}});
  return set;
}

class RegexParser {
 public:
  RegexParser(std::string_view pattern, RegexMatch match, Encoding encoding) : in_(pattern), match_(match), encoding_(encoding) {}

  ExprPtr parse() {
    ExprPtr all = alternatives(/*outermost=*/true, 0);
    if (!in_.at_end()) in_.fail("there is a `)` without its `(`");
    return all;
  }

 private:
  ExprPtr alternatives(bool outermost, int depth) {
    if (depth > kMaxNesting) in_.fail(fmt::format("groups are nested deeper than {} levels", kMaxNesting));
    std::vector<ExprPtr> all;
    do {
      all.push_back(alternative(outermost, depth));
    } while (in_.take("|"));
    return all.size() == 1 ? all.front() : choice(std::move(all));
  }

  ExprPtr alternative(bool outermost, int depth) {
    std::vector<ExprPtr> parts;
    const bool searches = outermost && match_ == RegexMatch::kSearch;
    const bool from_begin = outermost && in_.take("^");
    if (searches && !from_begin) parts.push_back(anything());
    bool to_end = false;
    while (!in_.at_end() && in_.peek() != '|' && in_.peek() != ')') {
      if (outermost && in_.peek() == '$' && (in_.peek(1) == '|' || in_.at_last())) {
        in_.skip();
        to_end = true;
        break;
      }
      parts.push_back(quantified(depth));
    }
    if (searches && !to_end) parts.push_back(anything());
    return parts.size() == 1 ? parts.front() : sequence(std::move(parts));
  }

  ExprPtr anything() const { return repeat(one_of(CharSet::all(), encoding_), 0); }

  ExprPtr quantified(int depth) {
    ExprPtr part = in_.repeated(atom(depth));
    if (in_.take("?")) return part;  // lazy: finds another match, but in the same texts
    if (in_.looking_at("+")) in_.fail("possessive quantifiers are not supported");
    if (in_.looking_at("*")) in_.fail("a quantifier follows a quantifier");
    return part;
  }

  ExprPtr atom(int depth) {
    const char c = in_.peek();
    if (c == '(') return group(depth);
    if (c == '[') return one_of(char_class(), encoding_);
    if (c == '.') {
      in_.skip();
      return one_of(line_ends().complement(), encoding_);
    }
    if (c == '^' || c == '$')
      in_.fail(
          fmt::format("`{}` is supported only at the {} of the pattern or of an alternative", c, c == '^' ? "begin" : "end"));
    if (c == '*' || c == '+' || c == '?') in_.fail(fmt::format("there is nothing before `{}` to repeat", c));
    if (c == '\\') return one_of(escape(/*in_class=*/false), encoding_);
    const uint32_t literal = in_.character();
    return one_of(CharSet({{literal, literal}}), encoding_);
  }

  ExprPtr group(int depth) {
    const size_t begin = in_.position();
    in_.skip();
    if (in_.take("?")) {
      if (in_.looking_at("=") || in_.looking_at("!")) in_.fail_at("look-ahead `(?=` and `(?!` is not supported", begin);
      if (in_.looking_at("<=") || in_.looking_at("<!")) in_.fail_at("look-behind `(?<=` and `(?<!` is not supported", begin);
      if (in_.looking_at("P=")) in_.fail_at("back-references are not supported", begin);
      if (in_.take("P<") || in_.take("<")) {
        while (!in_.at_end() && in_.peek() != '>') in_.skip();
        if (!in_.take(">")) in_.fail_at("the name of a group has no `>`", begin);
      } else if (!in_.take(":")) {
        in_.fail_at(fmt::format("`(?{}` is not supported", in_.peek() == '\0' ? ' ' : in_.peek()), begin);
      }
    }
    ExprPtr inside = alternatives(/*outermost=*/false, depth + 1);
    if (!in_.take(")")) in_.fail_at("there is a `(` without its `)`", begin);
    return inside;
  }

  CharSet escape(bool in_class) {
    const size_t begin = in_.position();
    in_.skip();
    const uint32_t c = in_.character();
    const auto one = [](uint32_t code) { return CharSet({{code, code}}); };
    switch (c) {
      case 'd': return digits();
      case 'D': return digits().complement();
      case 'w': return word();
      case 'W': return word().complement();
      case 's': return space();
      case 'S': return space().complement();
      case 't': return one('\t');
      case 'n': return one('\n');
      case 'r': return one('\r');
      case 'f': return one('\f');
      case 'v': return one('\v');
      case 'x': return one(in_.hex(2));
      case 'u': return one(unicode(begin));
      case 'b':
        if (in_class) return one('\b');
        [[fallthrough]];
      case 'B': in_.fail_at("word boundaries (\\b, \\B) are not supported", begin);
      case 'A':
      case 'z':
      case 'Z': in_.fail_at(fmt::format("\\{} is not supported: use ^ and $", static_cast<char>(c)), begin);
      case 'p':
      case 'P': in_.fail_at("Unicode properties (\\p, \\P) are not supported", begin);
      case 'k': in_.fail_at("back-references are not supported", begin);
      case '0': return one(0);
      default: break;
    }
    if (c >= '1' && c <= '9') in_.fail_at("back-references are not supported", begin);
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'))
      in_.fail_at(fmt::format("the escape \\{} is not supported", static_cast<char>(c)), begin);
    return one(c);
  }

  // `begin`: of the escape.
  uint32_t unicode(size_t begin) {
    if (!in_.take("{")) return in_.hex(4);
    uint32_t code = 0;
    while (!in_.at_end() && in_.peek() != '}' && code <= CharSet::kLast) code = code * 16 + in_.hex(1);
    if (!in_.take("}") || code > CharSet::kLast) in_.fail_at("\\u{...} is no code point", begin);
    return code;
  }

  CharSet char_class() {
    const size_t begin = in_.position();
    in_.skip();
    const bool negated = in_.take("^");
    std::vector<CodeRange> ranges;
    for (bool first = true; first || in_.peek() != ']'; first = false) {
      if (in_.at_end()) in_.fail_at("there is a `[` without its `]`", begin);
      if (first && in_.peek() == ']') break;  // as JavaScript: [] matches nothing, [^] everything
      const size_t item = in_.position();
      const CharSet low = class_item();
      const bool single = low.ranges().size() == 1 && low.ranges()[0].first == low.ranges()[0].last;
      if (single && in_.peek() == '-' && in_.peek(1) != ']' && in_.peek(1) != '\0') {
        in_.skip();
        const CharSet high = class_item();
        if (high.ranges().size() != 1 || high.ranges()[0].first != high.ranges()[0].last)
          in_.fail_at("a range of a class ends with a class", item);
        if (high.ranges()[0].first < low.ranges()[0].first) in_.fail_at("a range of a class counts down", item);
        ranges.push_back({low.ranges()[0].first, high.ranges()[0].first});
      } else {
        ranges.insert(ranges.end(), low.ranges().begin(), low.ranges().end());
      }
      if (ranges.size() > 4096) in_.fail("a class of more than 4096 parts");
    }
    in_.skip();
    const CharSet set(std::move(ranges));
    return negated ? set.complement() : set;
  }

  CharSet class_item() {
    if (in_.peek() == '\\') return escape(/*in_class=*/true);
    if (in_.looking_at("[:")) in_.fail("classes like [:alpha:] are not supported");
    const uint32_t c = in_.character();
    return CharSet({{c, c}});
  }

  Scanner in_;
  const RegexMatch match_;
  const Encoding encoding_;
};

}  // namespace

ExprPtr parse_regex(std::string_view pattern, RegexMatch match, Encoding encoding) {
  return RegexParser(pattern, match, encoding).parse();
}

}  // namespace tutti::grammar
