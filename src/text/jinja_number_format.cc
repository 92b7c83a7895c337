#include "text/jinja_number_format.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "text/jinja_ops.h"
#include "text/jinja_split.h"
#include "text/jinja_unicode.h"

namespace tutti::jinja {
namespace {

constexpr int64_t kMaxPrecision = 1000;

std::string upper_ascii(std::string text) {
  for (char& c : text) c = c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c;
  return text;
}

// Separators between groups of digits, from the right, up to the point or exponent.
std::string grouped(const std::string& digits, char group, size_t size) {
  const size_t whole = std::min(digits.find_first_not_of("0123456789abcdefABCDEF"), digits.size());
  std::string out;
  for (size_t i = 0; i < whole; ++i) {
    if (i > 0 && (whole - i) % size == 0) out += group;
    out += digits[i];
  }
  return out + digits.substr(whole);
}

// A float without a type but with a precision: as 'g', but with a digit behind the point, and an
// exponent as soon as that digit would be one too many.
std::string rounded_repr(double d, int precision, bool alternate) {
  std::string scientific = printf_double('e', precision - 1, alternate, d);
  const size_t e = scientific.find('e');
  const int exponent = std::stoi(scientific.substr(e + 1));
  if (exponent >= -4 && exponent < precision - 1) {
    std::string digits = printf_double('g', precision, alternate, d);
    return digits.find('.') == std::string::npos ? digits + ".0" : digits;
  }
  if (alternate || scientific.find('.') == std::string::npos) return scientific;
  size_t last = scientific.find_last_not_of('0', e - 1);
  if (scientific[last] == '.') --last;
  return scientific.erase(last + 1, e - last - 1);
}

std::string sign_text(bool negative, char sign) {
  if (negative) return "-";
  return sign == '-' ? "" : std::string(1, sign);
}

}  // namespace

std::string printf_double(char conversion, int precision, bool alternate, double d) {
  const std::string format = std::string("%") + (alternate ? "#" : "") + ".*" + conversion;
  const int size = std::snprintf(nullptr, 0, format.c_str(), precision, d);
  std::string out(size, '\0');
  std::snprintf(out.data(), out.size() + 1, format.c_str(), precision, d);
  return out;
}

FormatSpec parse_format_spec(std::string_view text) {
  FormatSpec spec;
  const std::string_view all = text;
  const auto is_align = [](char c) { return c == '<' || c == '>' || c == '^' || c == '='; };
  size_t first = 0;
  if (!text.empty()) next_code_point(text, first);
  if (first > 0 && first < text.size() && is_align(text[first])) {
    spec.fill = text.substr(0, first);
    spec.align = text[first];
    text.remove_prefix(first + 1);
  } else if (!text.empty() && is_align(text[0])) {
    spec.align = text[0];
    text.remove_prefix(1);
  }
  const auto take = [&](std::string_view any) -> char {
    if (text.empty() || any.find(text[0]) == std::string_view::npos) return 0;
    const char c = text[0];
    text.remove_prefix(1);
    return c;
  };
  const auto number = [&](int64_t otherwise) {
    int64_t n = 0;
    bool any = false;
    while (const char c = take("0123456789")) {
      n = n * 10 + (c - '0');
      any = true;
      if (n > INT32_MAX) fail("Too many decimal digits in format string");
    }
    return any ? n : otherwise;
  };
  if (const char c = take("+- ")) spec.sign = c;
  spec.alternate = take("#") != 0;
  if (take("0") != 0 && spec.align == 0) {
    spec.fill = "0";
    spec.align = '=';
  }
  spec.width = number(0);
  spec.group = take(",_");
  if (take(".") != 0) {
    spec.precision = number(-1);
    if (spec.precision < 0) fail("Format specifier missing precision");
  }
  spec.type = take("bcdeEfFgGnosxX%");
  if (!text.empty()) fail("Invalid format specifier '" + std::string(all) + "'");
  return spec;
}

NumberText integer_digits(Int i, char type, const FormatSpec& spec) {
  NumberText out;
  const int base = type == 'b' ? 2 : type == 'o' ? 8 : type == 'x' || type == 'X' ? 16 : 10;
  out.digits = int_text(i, base);
  const bool negative = out.digits[0] == '-';
  if (negative) out.digits.erase(0, 1);
  if (spec.group != 0) out.digits = grouped(out.digits, spec.group, base == 10 ? 3 : 4);
  out.sign = sign_text(negative, spec.sign);
  if (spec.alternate && base != 10) out.sign += std::string("0") + type;
  if (type == 'X') out.digits = upper_ascii(out.digits);
  return out;
}

NumberText float_digits(double d, char type, const FormatSpec& spec, Runtime& rt) {
  NumberText out;
  out.sign = sign_text(std::signbit(d) && !std::isnan(d), spec.sign);
  const bool percent = type == '%';
  if (percent) d *= 100;
  const double size = std::fabs(d);
  const char lower = static_cast<char>(type == 0 ? 0 : type | 0x20);
  if (spec.precision > kMaxPrecision) rt.text(kMaxText + 1);
  const int precision = spec.precision < 0 ? 6 : static_cast<int>(spec.precision);
  if (!std::isfinite(size)) {
    out.digits = std::isnan(size) ? "nan" : "inf";
  } else if (percent || lower == 'f') {
    out.digits = printf_double('f', precision, spec.alternate, size);
  } else if (lower == 'e') {
    out.digits = printf_double('e', precision, spec.alternate, size);
  } else if (type == 0 && spec.precision < 0) {
    out.digits = float_repr(size);
  } else if (type == 0) {
    out.digits = rounded_repr(size, std::max(precision, 1), spec.alternate);
  } else {
    out.digits = printf_double('g', std::max(precision, 1), spec.alternate, size);
  }
  if (spec.group != 0) out.digits = grouped(out.digits, spec.group, 3);
  if (percent) out.digits += '%';
  if (type >= 'A' && type <= 'Z') out.digits = upper_ascii(out.digits);
  return out;
}

std::string layout(const NumberText& number, const FormatSpec& spec, char default_align,
                   Runtime& rt) {
  const std::string whole = number.sign + number.digits;
  const char align = spec.align != 0 ? spec.align : default_align;
  if (align == '=') {
    const auto sign_size = static_cast<int64_t>(number.sign.size());
    std::string digits = number.digits;
    if (spec.group != 0 && spec.fill == "0") {
      // Zeros join the groups.
      const size_t size =
          spec.type == 'x' || spec.type == 'X' || spec.type == 'b' || spec.type == 'o' ? 4 : 3;
      std::string plain;
      for (const char c : digits) {
        if (c != spec.group) plain += c;
      }
      while (static_cast<int64_t>(digits.size()) + sign_size < spec.width) {
        rt.step();
        plain.insert(0, "0");
        digits = grouped(plain, spec.group, size);
      }
    }
    return number.sign + pad(digits, spec.width - sign_size, spec.fill, Align::kRight, rt);
  }
  if (align != '^')
    return pad(whole, spec.width, spec.fill, align == '<' ? Align::kLeft : Align::kRight, rt);
  // Centred with the smaller half in front.
  const auto size = static_cast<int64_t>(code_point_count(whole));
  const std::string left =
      pad(whole, size + std::max<int64_t>(0, spec.width - size) / 2, spec.fill, Align::kRight, rt);
  return pad(left, spec.width, spec.fill, Align::kLeft, rt);
}

std::string format_value(const Value& v, const FormatSpec& spec, Runtime& rt) {
  const auto unknown = [&] {
    fail(std::string("Unknown format code '") + spec.type + "' for object of type '" +
         v.type_name() + "'");
  };
  if (v.is_string()) {
    if (spec.type != 0 && spec.type != 's') unknown();
    if (spec.align == '=' && spec.fill != "0")
      fail("'=' alignment not allowed in string format specifier");
    if (spec.sign != '-') fail("Sign not allowed in string format specifier");
    FormatSpec text = spec;
    if (text.align == '=') text.align = '<';
    std::string body = v.text();
    if (spec.precision >= 0) body = get_slice(v, None{}, Value(spec.precision), None{}, rt).text();
    return layout({"", body}, text, '<', rt);
  }
  if (v.is_float() || (v.is_integral() && spec.type != 0 &&
                       std::string_view("eEfFgG%").find(spec.type) != std::string_view::npos)) {
    if (spec.type != 0 && std::string_view("eEfFgGn%").find(spec.type) == std::string_view::npos)
      unknown();
    return layout(float_digits(v.as_double(), spec.type == 'n' ? 'g' : spec.type, spec, rt), spec,
                  '>', rt);
  }
  if (v.is_integral()) {
    if (spec.type == 's') unknown();
    if (spec.precision >= 0) fail("Precision not allowed in integer format specifier");
    if (spec.type == 'c') {
      std::string c;
      if (v.as_int() < 0 || v.as_int() > 0x10FFFF) fail("%c arg not in range(0x110000)");
      append_code_point(c, static_cast<uint32_t>(v.as_int()));
      return layout({"", c}, spec, '<', rt);
    }
    return layout(integer_digits(v.as_int(), spec.type == 0 ? 'd' : spec.type, spec), spec, '>',
                  rt);
  }
  fail("unsupported format string passed to " + v.type_name() + ".__format__");
}

}  // namespace tutti::jinja
