// Reads a pattern or a written grammar character by character.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "grammar/expression.h"

namespace tutti::grammar {

class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text) {}

  bool at_end() const { return at_ == text_.size(); }
  bool at_last() const { return at_ + 1 == text_.size(); }
  size_t position() const { return at_; }
  bool looking_at(std::string_view what) const { return text_.substr(at_).starts_with(what); }
  bool take(std::string_view what) {
    if (!looking_at(what)) return false;
    at_ += what.size();
    return true;
  }
  // The next byte, 0 at the end.
  char peek(size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }
  void skip() { ++at_; }
  void go_to(size_t position) { at_ = position; }

  // The next code point. Throws InvalidGrammar at the end.
  uint32_t character();
  // Hexadecimal digits: exactly `digits` of them.
  uint32_t hex(int digits);
  // A decimal number; nothing when there is none. Numbers beyond 10^9 are 10^9.
  std::optional<int64_t> number();
  // "*", "+", "?", "{2}", "{2,}", "{2,5}" or "{,5}" behind `part`, or `part` itself. A "{" of another form is left alone.
  ExprPtr repeated(ExprPtr part);

  [[noreturn]] void fail(const std::string& what) const { fail_at(what, at_); }
  // `position` is where the fault begins, which may lie before what has been read.
  [[noreturn]] void fail_at(const std::string& what, size_t position) const;

 private:
  std::string_view text_;
  size_t at_ = 0;
};

// UTF-8 of a code point.
std::string encode_utf8(uint32_t character);

}  // namespace tutti::grammar
