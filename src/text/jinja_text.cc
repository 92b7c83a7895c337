// Text of values: str(), repr() and the digits of numbers.
#include <algorithm>
#include <charconv>
#include <cmath>

#include "text/jinja_ops.h"
#include "text/jinja_unicode.h"

namespace tutti::jinja {
namespace {

void append_escaped(std::string& out, uint32_t c) {
  static constexpr char kHex[] = "0123456789abcdef";
  const int digits = c <= 0xFF ? 2 : c <= 0xFFFF ? 4 : 8;
  out += digits == 2 ? "\\x" : digits == 4 ? "\\u" : "\\U";
  for (int i = digits - 1; i >= 0; --i) out += kHex[(c >> (4 * i)) & 15];
}

class ReprWriter {
 public:
  explicit ReprWriter(Runtime& rt) : rt_(rt) {}

  std::string write(const Value& v) {
    append(v);
    return std::move(out_);
  }

 private:
  void append(const Value& v) {
    const Runtime::Depth depth(rt_);
    rt_.step();
    if (v.is_list()) {
      append_all('[', v.items(), ']');
    } else if (v.is_tuple()) {
      append_all('(', v.items(), v.items().size() == 1 ? "," : "", ')');
    } else if (v.is_dict()) {
      append_dict(v.dict());
    } else if (v.is_view()) {
      append_view(v.view());
    } else if (v.is_markup()) {
      out_ += "Markup(" + quote(v.text()) + ")";
    } else if (v.is_string()) {
      out_ += quote(v.text());
    } else {
      out_ += scalar(v);
    }
    if (out_.size() > kMaxText) rt_.text(out_.size());
  }

  std::string scalar(const Value& v) {
    if (v.is_undefined()) return "Undefined";
    if (v.is_object()) return v.object().repr(rt_);
    return to_text(v, rt_);
  }

  void append_all(char open, const std::vector<Value>& items, const char* extra, char close) {
    out_ += open;
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out_ += ", ";
      append(items[i]);
    }
    out_ += extra;
    out_ += close;
  }
  void append_all(char open, const std::vector<Value>& items, char close) {
    append_all(open, items, "", close);
  }

  void append_dict(const Dict& dict) {
    out_ += '{';
    bool first = true;
    for (const auto& [key, value] : dict.entries()) {
      if (!first) out_ += ", ";
      first = false;
      append(key);
      out_ += ": ";
      append(value);
    }
    out_ += '}';
  }

  void append_view(const DictView& view) {
    out_ += view.kind == DictView::Kind::kKeys     ? "dict_keys(["
            : view.kind == DictView::Kind::kValues ? "dict_values(["
                                                   : "dict_items([";
    bool first = true;
    for (const auto& [key, value] : view.dict->entries()) {
      if (!first) out_ += ", ";
      first = false;
      if (view.kind == DictView::Kind::kItems) out_ += '(';
      if (view.kind != DictView::Kind::kValues) append(key);
      if (view.kind == DictView::Kind::kItems) out_ += ", ";
      if (view.kind != DictView::Kind::kKeys) append(value);
      if (view.kind == DictView::Kind::kItems) out_ += ')';
    }
    out_ += "])";
  }

  Runtime& rt_;
  std::string out_;
};

std::string range_text(const Range& r) {
  std::string out = "range(" + std::to_string(r.start) + ", " + std::to_string(r.stop);
  if (r.step != 1) out += ", " + std::to_string(r.step);
  return out + ")";
}

}  // namespace

std::string quote(std::string_view text) {
  const bool has_single = text.find('\'') != std::string_view::npos;
  const char mark = has_single && text.find('"') == std::string_view::npos ? '"' : '\'';
  std::string out(1, mark);
  for (size_t pos = 0; pos < text.size();) {
    const uint32_t c = next_code_point(text, pos);
    if (c == static_cast<uint32_t>(mark) || c == '\\') {
      out += '\\';
      out += static_cast<char>(c);
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else if (has_flag(c, kPrintable)) {
      append_code_point(out, c);
    } else {
      append_escaped(out, c);
    }
  }
  return out + mark;
}

std::string float_repr(double d) {
  if (std::isnan(d)) return "nan";
  if (std::isinf(d)) return d < 0 ? "-inf" : "inf";
  // The shortest digits that read back as `d`; then Python's choice of notation.
  char buffer[40];
  const auto end =
      std::to_chars(buffer, buffer + sizeof(buffer), d, std::chars_format::scientific).ptr;
  std::string_view text(buffer, end - buffer);
  std::string sign;
  if (text[0] == '-') {
    sign = "-";
    text.remove_prefix(1);
  }
  const size_t e = text.find('e');
  std::string digits(1, text[0]);
  if (e > 1) digits += text.substr(2, e - 2);
  const int exponent = std::stoi(std::string(text.substr(e + 1)));
  const int count = static_cast<int>(digits.size());
  if (exponent < -4 || exponent >= 16) {
    if (count > 1) digits.insert(1, ".");
    const std::string power = std::to_string(std::abs(exponent));
    return sign + digits + "e" + (exponent < 0 ? "-" : "+") + (power.size() < 2 ? "0" : "") + power;
  }
  if (exponent < 0) return sign + "0." + std::string(-exponent - 1, '0') + digits;
  if (exponent >= count - 1) return sign + digits + std::string(exponent - count + 1, '0') + ".0";
  return sign + digits.substr(0, exponent + 1) + "." + digits.substr(exponent + 1);
}

std::string int_text(Int i, int base) {
  // Counts down from zero, so that the smallest Int needs no case of its own.
  const bool negative = i < 0;
  std::string out;
  do {
    const int digit = static_cast<int>(i % base);
    out += "0123456789abcdef"[digit < 0 ? -digit : digit];
    i /= base;
  } while (i != 0);
  if (negative) out += '-';
  std::reverse(out.begin(), out.end());
  return out;
}

std::string escape_html(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '\'':
        out += "&#39;";
        break;
      case '"':
        out += "&#34;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string to_text(const Value& v, Runtime& rt) {
  if (v.is_string()) return v.text();
  if (v.is_undefined()) return "";
  if (v.is_none()) return "None";
  if (v.is_bool()) return v.as_bool() ? "True" : "False";
  if (v.is_int()) return int_text(v.as_int());
  if (v.is_float()) return float_repr(v.as_double());
  if (v.is_range()) return range_text(v.range());
  return repr(v, rt);
}

std::string repr(const Value& v, Runtime& rt) { return ReprWriter(rt).write(v); }

}  // namespace tutti::jinja
