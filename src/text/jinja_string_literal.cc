#include "text/jinja_string_literal.h"

#include "text/jinja_unicode.h"

namespace tutti::jinja {
namespace {

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  c = static_cast<char>(c | 0x20);
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

std::string hex(uint32_t c, int digits) {
  static constexpr char kHex[] = "0123456789abcdef";
  std::string out;
  for (int i = digits - 1; i >= 0; --i) out += kHex[(c >> (4 * i)) & 15];
  return out;
}

class Unescaper {
 public:
  Unescaper(std::string_view body, std::string& out) : body_(body), out_(out) {}

  std::optional<std::string> run() {
    while (pos_ < body_.size()) {
      const char c = body_[pos_++];
      if (c != '\\') {
        out_ += c;
      } else if (auto problem = escape()) {
        return problem;
      }
    }
    return std::nullopt;
  }

 private:
  std::optional<std::string> escape() {
    const char c = body_[pos_];
    static constexpr std::string_view kNames = "abfnrtv\\'\"", kChars = "\a\b\f\n\r\t\v\\'\"";
    if (const size_t simple = kNames.find(c); simple != std::string_view::npos) {
      out_ += kChars[simple];
      ++pos_;
      return std::nullopt;
    }
    if (c >= '0' && c <= '7') {
      octal();
      return std::nullopt;
    }
    switch (c) {
      case '\n':
        ++pos_;
        return std::nullopt;
      case 'x':
        return code_point(2);
      case 'u':
        return code_point(4);
      case 'U':
        return code_point(8);
      case 'N':
        return "\\N{...} escapes are not supported; write the character itself";
      default:
        return unknown();
    }
  }

  void octal() {
    uint32_t value = 0;
    for (int i = 0; i < 3 && pos_ < body_.size() && body_[pos_] >= '0' && body_[pos_] <= '7'; ++i) {
      value = value * 8 + (body_[pos_++] - '0');
    }
    append_code_point(out_, value);
  }

  std::optional<std::string> code_point(int digits) {
    const char kind = body_[pos_++];
    uint32_t value = 0;
    for (int i = 0; i < digits; ++i) {
      const int digit = pos_ < body_.size() ? hex_digit(body_[pos_]) : -1;
      if (digit < 0) return std::string("truncated \\") + kind + " escape";
      value = value << 4 | static_cast<uint32_t>(digit);
      ++pos_;
    }
    if (value > 0x10FFFF) return "illegal Unicode character";
    if (value >= 0xD800 && value < 0xE000) return "a surrogate escape cannot be written as UTF-8";
    append_code_point(out_, value);
    return std::nullopt;
  }

  // An unknown escape keeps its backslash. Python sees characters beyond ASCII as escapes of their
  // own by then, so that a backslash before one leaves the digits of its code point.
  std::optional<std::string> unknown() {
    out_ += '\\';
    const uint32_t c = next_code_point(body_, pos_);
    if (c < 128) {
      out_ += static_cast<char>(c);
    } else {
      out_ += c <= 0xFF ? "x" + hex(c, 2) : c <= 0xFFFF ? "u" + hex(c, 4) : "U" + hex(c, 8);
    }
    return std::nullopt;
  }

  std::string_view body_;
  std::string& out_;
  size_t pos_ = 0;
};

}  // namespace

std::optional<std::string> unescape(std::string_view body, std::string& out) {
  return Unescaper(body, out).run();
}

}  // namespace tutti::jinja
