#include "text/jinja_format.h"

#include <algorithm>

#include "text/jinja_number_format.h"
#include "text/jinja_ops.h"
#include "text/jinja_unicode.h"

namespace tutti::jinja {
namespace {

std::string ascii(const Value& v, Runtime& rt) {
  static constexpr char kHex[] = "0123456789abcdef";
  std::string out;
  const std::string text = repr(v, rt);
  for (size_t pos = 0; pos < text.size();) {
    const uint32_t c = next_code_point(text, pos);
    if (c < 128) {
      out += static_cast<char>(c);
      continue;
    }
    const int digits = c <= 0xFF ? 2 : c <= 0xFFFF ? 4 : 8;
    out += digits == 2 ? "\\x" : digits == 4 ? "\\u" : "\\U";
    for (int i = digits - 1; i >= 0; --i) out += kHex[(c >> (4 * i)) & 15];
  }
  return out;
}

// "%..." % values, one conversion after the other.
class PercentFormatter {
 public:
  PercentFormatter(const Value& format, const Value& values, Runtime& rt)
      : format_(format.text()), markup_(format.is_markup()), values_(values), rt_(rt) {}

  std::string run() {
    while (pos_ < format_.size()) {
      const char c = format_[pos_++];
      if (c == '%') {
        conversion();
      } else {
        out_ += c;
      }
      if (out_.size() > kMaxText) rt_.text(out_.size());
    }
    const bool all_used = values_.is_tuple() ? next_ >= values_.items().size()
                                             : next_ > 0 || values_.is_dict() || values_.is_list();
    if (!all_used) fail("not all arguments converted during string formatting");
    return std::move(out_);
  }

 private:
  char peek() const { return pos_ < format_.size() ? format_[pos_] : '\0'; }

  const Value& argument() {
    if (named_) return *named_;
    if (values_.is_tuple()) {
      if (next_ >= values_.items().size()) fail("not enough arguments for format string");
      return values_.items()[next_++];
    }
    if (next_++ > 0) fail("not enough arguments for format string");
    return values_;
  }

  int64_t number() {
    if (peek() == '*') {
      ++pos_;
      const Value& v = argument();
      if (!v.is_integral()) fail("* wants int");
      return as_index(v);
    }
    int64_t n = 0;
    while (peek() >= '0' && peek() <= '9') {
      n = n * 10 + (format_[pos_++] - '0');
      if (n > INT32_MAX) fail("width too big");
    }
    return n;
  }

  void mapping_key() {
    named_.reset();
    if (peek() != '(') return;
    if (!values_.is_dict()) fail("format requires a mapping");
    int open = 1;
    const size_t start = ++pos_;
    for (; pos_ < format_.size() && open > 0; ++pos_) {
      open += format_[pos_] == '(' ? 1 : format_[pos_] == ')' ? -1 : 0;
    }
    if (open > 0) fail("incomplete format key");
    const std::string key = format_.substr(start, pos_ - 1 - start);
    const Value* found = values_.dict().find(key);
    if (found == nullptr) fail("KeyError: " + quote(key));
    named_ = *found;
  }

  void conversion() {
    mapping_key();
    FormatSpec spec;
    bool zero = false;
    for (;; ++pos_) {
      const char c = peek();
      if (c == '-')
        spec.align = '<';
      else if (c == '+')
        spec.sign = '+';
      else if (c == ' ')
        spec.sign = spec.sign == '+' ? '+' : ' ';
      else if (c == '#')
        spec.alternate = true;
      else if (c == '0')
        zero = true;
      else
        break;
    }
    spec.width = number();
    if (spec.width < 0) {
      spec.align = '<';
      spec.width = -spec.width;
    }
    if (peek() == '.') {
      ++pos_;
      spec.precision = std::max<int64_t>(0, number());
    }
    while (peek() == 'h' || peek() == 'l' || peek() == 'L') ++pos_;
    if (pos_ >= format_.size()) fail("incomplete format");
    const char type = format_[pos_++];
    if (type == '%') {
      out_ += '%';
      return;
    }
    if (zero && spec.align == 0 &&
        std::string_view("diouxXeEfFgG").find(type) != std::string_view::npos) {
      spec.fill = "0";
      spec.align = '=';
    }
    out_ += convert(type, spec);
  }

  std::string convert(char type, FormatSpec spec) {
    switch (type) {
      case 's':
      case 'r':
      case 'a': {
        const Value& v = argument();
        std::string text = type == 's'   ? to_text(v, rt_)
                           : type == 'r' ? repr(v, rt_)
                                         : ascii(v, rt_);
        if (markup_ && !v.is_markup()) text = escape_html(text);
        if (spec.precision >= 0)
          text = get_slice(Value(text), None{}, Value(spec.precision), None{}, rt_).text();
        return layout({"", text}, spec, '>', rt_);
      }
      case 'c': {
        const Value& v = argument();
        if (v.is_string() && *length(v, rt_) == 1) return layout({"", v.text()}, spec, '>', rt_);
        if (!v.is_integral() || v.as_int() < 0 || v.as_int() > 0x10FFFF)
          fail("%c requires int or char");
        std::string c;
        append_code_point(c, static_cast<uint32_t>(v.as_int()));
        return layout({"", c}, spec, '>', rt_);
      }
      case 'd':
      case 'i':
      case 'u':
      case 'o':
      case 'x':
      case 'X':
        return integer(type, spec);
      case 'e':
      case 'E':
      case 'f':
      case 'F':
      case 'g':
      case 'G': {
        const Value& v = argument();
        if (v.is_undefined()) fail(v.undefined_message());
        if (!v.is_number()) fail("must be real number, not " + v.type_name());
        return layout(float_digits(v.as_double(), type, spec, rt_), spec, '>', rt_);
      }
      default:
        fail(std::string("unsupported format character '") + type + "'");
    }
  }

  std::string integer(char type, FormatSpec spec) {
    const Value& v = argument();
    if (v.is_undefined()) fail(v.undefined_message());
    if (!v.is_integral() && !(v.is_float() && (type == 'd' || type == 'i' || type == 'u'))) {
      fail(std::string("%") + type + " format: a real number is required, not " + v.type_name());
    }
    if (v.is_float() && !(v.as_double() > -0x1p126 && v.as_double() < 0x1p126)) {
      fail("cannot convert float to integer");
    }
    const Int i = v.is_float() ? static_cast<Int>(v.as_double()) : v.as_int();
    NumberText text = integer_digits(i, type == 'i' || type == 'u' ? 'd' : type, spec);
    const auto size = static_cast<int64_t>(text.digits.size());
    if (spec.precision > size) {
      rt_.text(static_cast<size_t>(spec.precision));
      text.digits.insert(0, static_cast<size_t>(spec.precision - size), '0');
    }
    return layout(text, spec, '>', rt_);
  }

  const std::string& format_;
  bool markup_;
  const Value& values_;
  Runtime& rt_;
  size_t pos_ = 0;
  size_t next_ = 0;
  std::optional<Value> named_;
  std::string out_;
};

// "{...}".format(values).
class BraceFormatter {
 public:
  BraceFormatter(const Args& args, Runtime& rt) : args_(args), rt_(rt) {}

  std::string run(std::string_view format, int nesting) {
    if (nesting > 2) fail("Max string recursion exceeded");
    std::string out;
    for (size_t pos = 0; pos < format.size();) {
      const char c = format[pos++];
      const bool doubled = pos < format.size() && format[pos] == c;
      if ((c == '{' || c == '}') && doubled) {
        out += c;
        ++pos;
      } else if (c == '}') {
        fail("Single '}' encountered in format string");
      } else if (c == '{') {
        out += field(format, pos, nesting);
      } else {
        out += c;
      }
      if (out.size() > kMaxText) rt_.text(out.size());
    }
    return out;
  }

 private:
  // `pos` stands behind the opening brace and is moved behind the closing one.
  std::string field(std::string_view format, size_t& pos, int nesting) {
    const size_t start = pos;
    int open = 1;
    bool in_brackets = false;
    for (; pos < format.size(); ++pos) {
      const char c = format[pos];
      if (c == '[' && open == 1) in_brackets = true;
      if (c == ']') in_brackets = false;
      if (in_brackets) continue;
      open += c == '{' ? 1 : c == '}' ? -1 : 0;
      if (open == 0) break;
    }
    if (open > 0)
      fail(start == format.size() ? "Single '{' encountered in format string"
                                  : "expected '}' before end of string");
    const std::string_view body = format.substr(start, pos - start);
    ++pos;
    const size_t name_end = end_of_name(body);
    Value v = lookup(body.substr(0, name_end));
    std::string_view rest = body.substr(name_end);
    if (rest.starts_with('!')) {
      if (rest.size() < 2) fail("end of string while looking for conversion specifier");
      v = converted(v, rest[1]);
      rest.remove_prefix(2);
      if (!rest.empty() && rest[0] != ':') fail("expected ':' after conversion specifier");
    }
    if (rest.starts_with(':')) rest.remove_prefix(1);
    const std::string spec = run(rest, nesting + 1);
    if (spec.empty()) return to_text(v, rt_);
    return format_value(v, parse_format_spec(spec), rt_);
  }

  static size_t end_of_name(std::string_view body) {
    bool in_brackets = false;
    for (size_t i = 0; i < body.size(); ++i) {
      if (body[i] == '[') in_brackets = true;
      if (body[i] == ']') in_brackets = false;
      if (!in_brackets && (body[i] == '!' || body[i] == ':')) return i;
    }
    return body.size();
  }

  Value converted(const Value& v, char how) {
    switch (how) {
      case 's':
        return to_text(v, rt_);
      case 'r':
        return repr(v, rt_);
      case 'a':
        return ascii(v, rt_);
      default:
        fail(std::string("Unknown conversion specifier ") + how);
    }
  }

  static std::optional<size_t> as_number(std::string_view text) {
    if (text.empty() || text.size() > 9) return std::nullopt;
    size_t n = 0;
    for (const char c : text) {
      if (c < '0' || c > '9') return std::nullopt;
      n = n * 10 + (c - '0');
    }
    return n;
  }

  // name, .attribute, [item]
  Value lookup(std::string_view name) {
    const size_t end = std::min(name.find_first_of(".["), name.size());
    Value v = first(name.substr(0, end));
    name.remove_prefix(end);
    while (!name.empty()) {
      if (name[0] == '.') {
        const size_t stop = std::min(name.find_first_of(".[", 1), name.size());
        if (stop == 1) fail("Empty attribute in format string");
        v = get_attr(v, std::string(name.substr(1, stop - 1)), rt_);
        name.remove_prefix(stop);
        continue;
      }
      if (name[0] != '[') fail("Only '.' or '[' may follow ']' in format field specifier");
      const size_t stop = name.find(']');
      if (stop == std::string_view::npos) fail("Missing ']' in format string");
      const std::string_view key = name.substr(1, stop - 1);
      if (key.empty()) fail("Empty attribute in format string");
      const auto index = as_number(key);
      v = get_item(v, index ? Value(*index) : Value(key), rt_);
      name.remove_prefix(stop + 1);
    }
    return v;
  }

  Value first(std::string_view name) {
    auto index = as_number(name);
    if (name.empty() || index) {
      if (manual_ && *manual_ == name.empty()) {
        fail("cannot mix manual field specification and automatic field numbering");
      }
      manual_ = !name.empty();
      if (name.empty()) index = next_++;
      if (*index >= args_.positional.size()) {
        fail("Replacement index " + std::to_string(*index) +
             " out of range for positional args tuple");
      }
      return args_.positional[*index];
    }
    for (const auto& [key, value] : args_.named) {
      if (key == name) return value;
    }
    fail("KeyError: " + quote(name));
  }

  const Args& args_;
  Runtime& rt_;
  size_t next_ = 0;
  std::optional<bool> manual_;
};

}  // namespace

std::string percent_format(const Value& format, const Value& values, Runtime& rt) {
  return PercentFormatter(format, values, rt).run();
}

std::string brace_format(const std::string& format, const Args& args, Runtime& rt) {
  return BraceFormatter(args, rt).run(format, 0);
}

}  // namespace tutti::jinja
