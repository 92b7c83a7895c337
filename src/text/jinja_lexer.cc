#include "text/jinja_lexer.h"

#include <algorithm>

#include "base/error.h"
#include "text/jinja_string_literal.h"
#include "text/jinja_unicode.h"

namespace tutti::jinja {
namespace {

constexpr size_t kNone = std::string::npos;

std::string normalized(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
      out += '\n';
    } else {
      out += source[i];
    }
  }
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

}  // namespace

LineColumn line_column(std::string_view source, size_t at) {
  const std::string_view before = source.substr(0, std::min(at, source.size()));
  const size_t line_start = before.rfind('\n') + 1;
  return {static_cast<int>(std::count(before.begin(), before.end(), '\n')) + 1,
          static_cast<int>(code_point_count(before.substr(line_start))) + 1};
}

void syntax_error(std::string_view source, size_t at, const std::string& message) {
  const LineColumn where = line_column(source, at);
  throw ConfigError("chat template, line " + std::to_string(where.line) + ", column " +
                    std::to_string(where.column) + ": " + message);
}

Lexer::Lexer(std::string_view source) : source_(normalized(source)) {
  const size_t bad = find_invalid_utf8(source_);
  if (bad != kNone) error(bad, "not valid UTF-8");
}

std::vector<Token> Lexer::run() {
  while (pos_ < source_.size()) root();
  add(Tok::kEnd, "", source_.size());
  return std::move(tokens_);
}

char Lexer::sign_at(size_t pos) const {
  return pos < source_.size() && (source_[pos] == '-' || source_[pos] == '+') ? source_[pos] : '\0';
}

size_t Lexer::skip_space(size_t pos) const {
  return pos + leading_space(std::string_view(source_).substr(pos));
}

size_t Lexer::closing(size_t pos, std::string_view mark) const {
  const char sign = sign_at(pos);
  const size_t after = pos + (sign != '\0' ? 1 : 0);
  if (!starts(after, mark)) return kNone;
  const size_t end = after + mark.size();
  if (sign == '-') return skip_space(end);
  const bool trims = sign == '\0' && mark != "}}";
  if (sign == '+' && mark == "}}") return kNone;
  return trims && end < source_.size() && source_[end] == '\n' ? end + 1 : end;
}

// Template text in front of a tag. "-" strips all space before the tag; otherwise the indentation
// of a tag that stands first on its line goes.
void Lexer::add_data(size_t begin, size_t end, char sign, bool may_lstrip) {
  std::string_view text = std::string_view(source_).substr(begin, end - begin);
  if (sign == '-') {
    text.remove_suffix(trailing_space(text));
  } else if (sign != '+' && may_lstrip) {
    const size_t newline = text.rfind('\n');
    const size_t line = newline == kNone ? 0 : newline + 1;
    const std::string_view indent = text.substr(line);
    if ((line > 0 || line_starting_) && leading_space(indent) == indent.size())
      text = text.substr(0, line);
  }
  if (!text.empty()) add(Tok::kData, std::string(text), begin);
}

// Text up to the next tag, and the tag.
void Lexer::root() {
  size_t at = pos_;
  while (at < source_.size() && !starts(at, "{{") && !starts(at, "{%") && !starts(at, "{#")) {
    at = source_.find('{', at + 1);
    if (at == kNone) at = source_.size();
  }
  if (at >= source_.size()) {
    add(Tok::kData, source_.substr(pos_), pos_);
    pos_ = source_.size();
    return;
  }
  const char kind = source_[at + 1];
  const char sign = sign_at(at + 2);
  add_data(pos_, at, sign, kind != '{');
  pos_ = at + 2 + (sign != '\0' ? 1 : 0);
  line_starting_ = false;
  if (kind == '#') {
    comment();
  } else if (kind == '{') {
    add(Tok::kVariableBegin, "", at);
    tag(false);
  } else {
    const size_t word = skip_space(pos_);
    if (starts(word, "raw")) {
      size_t end = skip_space(word + 3);
      const bool strips = end < source_.size() && source_[end] == '-';
      if (starts(end + (strips ? 1 : 0), "%}")) {
        end += strips ? 3 : 2;
        pos_ = strips ? skip_space(end) : end;
        line_starting_ = source_[pos_ - 1] == '\n';
        raw();
        return;
      }
    }
    add(Tok::kBlockBegin, "", at);
    tag(true);
  }
}

void Lexer::comment() {
  for (size_t i = pos_; i < source_.size(); ++i) {
    const size_t end = closing(i, "#}");
    if (end == kNone) continue;
    pos_ = end;
    line_starting_ = source_[end - 1] == '\n';
    return;
  }
  error(pos_, "Missing end of comment tag");
}

void Lexer::raw() {
  for (size_t at = source_.find("{%", pos_); at != kNone; at = source_.find("{%", at + 1)) {
    const char sign = sign_at(at + 2);
    const size_t word = skip_space(at + 2 + (sign != '\0' ? 1 : 0));
    if (!starts(word, "endraw")) continue;
    const size_t end = closing(skip_space(word + 6), "%}");
    if (end == kNone) continue;
    add_data(pos_, at, sign, true);
    pos_ = end;
    line_starting_ = source_[end - 1] == '\n';
    return;
  }
  error(pos_, "Missing end of raw directive");
}

void Lexer::tag(bool is_block) {
  open_.clear();
  while (pos_ < source_.size()) {
    if (tag_end(is_block)) return;
    const size_t next = skip_space(pos_);
    if (next > pos_) {
      pos_ = next;
    } else {
      tag_token();
    }
  }
}

bool Lexer::tag_end(bool is_block) {
  if (!open_.empty()) return false;
  const size_t end = closing(pos_, is_block ? "%}" : "}}");
  if (end == kNone) return false;
  add(is_block ? Tok::kBlockEnd : Tok::kVariableEnd, "", pos_);
  pos_ = end;
  line_starting_ = source_[end - 1] == '\n';
  return true;
}

void Lexer::tag_token() {
  const size_t start = pos_;
  const char c = source_[start];
  if (is_digit(c)) return number(start);
  if (c == '\'' || c == '"') return string_literal();
  size_t end = start;
  while (end < source_.size()) {
    size_t next = end;
    if (!has_flag(next_code_point(source_, next), kIdentifierPart)) break;
    end = next;
  }
  if (end == start) return operator_token();
  size_t first = start;
  if (!has_flag(next_code_point(source_, first), kIdentifierStart))
    error(start, "Invalid character in identifier");
  add(Tok::kName, source_.substr(start, end - start), start);
  pos_ = end;
}

// Digits with single underscores between them.
size_t Lexer::digits(size_t pos) const {
  while (pos < source_.size() && is_digit(source_[pos])) {
    ++pos;
    if (pos + 1 < source_.size() && source_[pos] == '_' && is_digit(source_[pos + 1])) ++pos;
  }
  return pos;
}

void Lexer::number(size_t start) {
  const auto at = [&](size_t i) { return i < source_.size() ? source_[i] : '\0'; };
  const auto cut = [&](Tok type, size_t end) {
    std::string text = source_.substr(start, end - start);
    std::erase(text, '_');
    add(type, std::move(text), start);
    pos_ = end;
  };
  const auto exponent = [&](size_t i) -> size_t {
    if ((at(i) | 0x20) != 'e') return i;
    const size_t first = i + 1 + (at(i + 1) == '+' || at(i + 1) == '-' ? 1 : 0);
    return is_digit(at(first)) ? digits(first) : i;
  };
  const size_t whole = digits(start);
  if (start == 0 || source_[start - 1] != '.') {
    const size_t fraction = at(whole) == '.' && is_digit(at(whole + 1)) ? digits(whole + 1) : whole;
    const size_t end = exponent(fraction);
    if (end > whole) return cut(Tok::kFloat, end);
  }
  const char base = static_cast<char>(at(start + 1) | 0x20);
  if (at(start) == '0' && (base == 'x' || base == 'o' || base == 'b')) {
    const auto fits = [&](char c) {
      if (base == 'b') return c == '0' || c == '1';
      if (base == 'o') return c >= '0' && c <= '7';
      return is_digit(c) || ((c | 0x20) >= 'a' && (c | 0x20) <= 'f');
    };
    size_t end = start + 2;
    while (fits(at(end)) || (at(end) == '_' && fits(at(end + 1)))) ++end;
    if (end > start + 2) return cut(Tok::kInteger, end);
  }
  if (at(start) != '0') return cut(Tok::kInteger, whole);
  size_t end = start + 1;
  while (at(end) == '0' || (at(end) == '_' && at(end + 1) == '0')) ++end;
  cut(Tok::kInteger, end);
}

void Lexer::string_literal() {
  const char mark = source_[pos_];
  size_t end = pos_ + 1;
  while (end < source_.size() && source_[end] != mark) end += source_[end] == '\\' ? 2 : 1;
  if (end >= source_.size())
    error(pos_, "unexpected char " + std::string(1, mark) + ": the string does not end");
  std::string value;
  if (const auto problem =
          unescape(std::string_view(source_).substr(pos_ + 1, end - pos_ - 1), value)) {
    error(pos_, *problem);
  }
  add(Tok::kString, std::move(value), pos_);
  pos_ = end + 1;
}

void Lexer::operator_token() {
  static constexpr std::string_view kTwo[] = {"//", "**", "==", "!=", ">=", "<="};
  static constexpr std::string_view kOne = "+-/*%~[](){}><=.:|,;";
  const size_t start = pos_;
  std::string text;
  for (const auto two : kTwo) {
    if (starts(start, two)) text = two;
  }
  if (text.empty()) {
    size_t end = start;
    next_code_point(source_, end);
    text = source_.substr(start, end - start);
    if (kOne.find(text) == std::string_view::npos) error(start, "unexpected character " + text);
  }
  const char c = text[0];
  if (c == '{' || c == '(' || c == '[') open_ += c == '{' ? '}' : c == '(' ? ')' : ']';
  if (c == '}' || c == ')' || c == ']') {
    if (open_.empty()) error(start, "unexpected '" + text + "'");
    if (open_.back() != c)
      error(start, "unexpected '" + text + "', expected '" + open_.back() + "'");
    open_.pop_back();
  }
  pos_ = start + text.size();
  add(Tok::kOperator, std::move(text), start);
}

}  // namespace tutti::jinja
