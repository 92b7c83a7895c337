// Filters on numbers.
#include <cmath>
#include <cstdlib>

#include "text/jinja_filters.h"
#include "text/jinja_methods.h"
#include "text/jinja_number_format.h"
#include "text/jinja_ops.h"
#include "text/jinja_split.h"
#include "text/jinja_unicode.h"

namespace tutti::jinja {
namespace {

// Digits with single underscores between them, as Python's int() and float() let them stand;
// without them, or nothing.
std::optional<std::string> without_underscores(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      out += text[i];
      continue;
    }
    const auto alnum = [&](size_t j) {
      return j < text.size() && std::isalnum(static_cast<uint8_t>(text[j]));
    };
    if (i == 0 || !alnum(i - 1) || !alnum(i + 1)) return std::nullopt;
  }
  return out;
}

// float(text), nothing on a ValueError.
std::optional<double> parse_float(std::string_view text) {
  const auto plain = without_underscores(strip(text, true, true));
  if (!plain || plain->empty()) return std::nullopt;
  const std::string lower = to_lower(*plain);
  const size_t start = lower[0] == '+' || lower[0] == '-' ? 1 : 0;
  const std::string_view word = std::string_view(lower).substr(start);
  const bool named = word == "inf" || word == "infinity" || word == "nan";
  if (!named &&
      (word.empty() || word.find_first_not_of("0123456789.e+-") != std::string_view::npos)) {
    return std::nullopt;
  }
  char* end = nullptr;
  const double d = std::strtod(lower.c_str(), &end);
  if (end != lower.c_str() + lower.size()) return std::nullopt;
  return d;
}

// int(text, base), nothing on a ValueError.
std::optional<Int> parse_int(std::string_view text, int64_t base) {
  text = strip(text, true, true);
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text.remove_prefix(1);
  const char prefix = text.size() > 1 && text[0] == '0' ? static_cast<char>(text[1] | 0x20) : '\0';
  const int64_t named = prefix == 'x' ? 16 : prefix == 'o' ? 8 : prefix == 'b' ? 2 : 0;
  if (named != 0 && (base == 0 || base == named)) {
    base = named;
    text.remove_prefix(2);
    if (text.starts_with('_')) text.remove_prefix(1);
  } else if (base == 0) {
    base = 10;
    if (text.size() > 1 && text[0] == '0' && text.find_first_not_of("0_") != std::string_view::npos)
      return std::nullopt;
  }
  const auto digits = without_underscores(text);
  if (!digits || digits->empty()) return std::nullopt;
  Int value = 0;
  for (const char c : *digits) {
    const int digit = c >= '0' && c <= '9'                    ? c - '0'
                      : std::isalpha(static_cast<uint8_t>(c)) ? (c | 0x20) - 'a' + 10
                                                              : 99;
    if (digit >= base) return std::nullopt;
    value = checked_add(checked_mul(value, base), digit);
  }
  return negative ? -value : value;
}

// int(d), nothing when it is no finite number.
std::optional<Int> truncated(double d) {
  if (!std::isfinite(d)) return std::nullopt;
  if (std::fabs(d) >= 0x1p126) fail("integer result does not fit into 128 bits");
  return static_cast<Int>(d);
}

std::optional<Int> as_python_int(const Value& v, int64_t base) {
  if (v.is_undefined()) fail(v.undefined_message());
  if (v.is_integral()) return v.as_int();
  if (v.is_float()) return truncated(v.as_double());
  if (!v.is_string()) return std::nullopt;
  if (const auto i = parse_int(v.text(), base)) return i;
  const auto d = parse_float(v.text());
  return d ? truncated(*d) : std::nullopt;
}

// round(d, precision) with ties to even digits, exact on the binary value.
double round_float(double d, int64_t precision) {
  if (!std::isfinite(d) || precision > 300) return d;
  if (precision < -308) return std::copysign(0.0, d);
  if (precision < 0) {
    const double unit = std::pow(10.0, static_cast<double>(-precision));
    return std::nearbyint(d / unit) * unit;
  }
  return std::strtod(printf_double('f', static_cast<int>(precision), false, d).c_str(), nullptr);
}

Int round_int(Int i, int64_t precision) {
  if (precision >= 0) return i;
  if (precision < -37) return 0;
  Int unit = 1;
  for (int64_t n = precision; n < 0; ++n) unit *= 10;
  Int rest = i % unit;
  if (rest < 0) rest += unit;
  const Int down = i - rest;
  const bool up = rest * 2 > unit || (rest * 2 == unit && (down / unit) % 2 != 0);
  return up ? checked_add(down, unit) : down;
}

}  // namespace

namespace filters {

Value absolute(const Value& input, Args args, Runtime&) {
  const BoundArgs a("abs", std::move(args), {}, 0);
  if (input.is_undefined()) fail("bad operand type for abs(): 'Undefined'");
  if (input.is_float()) return std::fabs(input.as_double());
  if (!input.is_integral()) fail("bad operand type for abs(): '" + input.type_name() + "'");
  return input.as_int() < 0 ? unary(Op::kNeg, input) : Value(input.as_int());
}

Value to_float(const Value& input, Args args, Runtime&) {
  const BoundArgs a("float", std::move(args), {"default"}, 0);
  if (input.is_undefined()) fail(input.undefined_message());
  if (input.is_number()) return input.as_double();
  if (input.is_string()) {
    if (const auto d = parse_float(input.text())) return *d;
  }
  return a.get(0, 0.0);
}

Value to_int(const Value& input, Args args, Runtime&) {
  const BoundArgs a("int", std::move(args), {"default", "base"}, 0);
  const int64_t base = a.integer(1, 10);
  if (base != 0 && (base < 2 || base > 36)) return a.get(0, 0);
  const auto i = as_python_int(input, base);
  return i ? Value(*i) : a.get(0, 0);
}

Value round(const Value& input, Args args, Runtime&) {
  const BoundArgs a("round", std::move(args), {"precision", "method"}, 0);
  const int64_t precision = a.integer(0, 0);
  const std::string method = a.has(1) ? a.text(1) : "common";
  if (method != "common" && method != "ceil" && method != "floor")
    fail("method must be common, ceil or floor");
  if (input.is_undefined()) fail(input.undefined_message());
  if (!input.is_number()) fail("type " + input.type_name() + " doesn't define __round__ method");
  if (method == "common") {
    if (input.is_float()) return round_float(input.as_double(), precision);
    return round_int(input.as_int(), precision);
  }
  const double unit = std::pow(10.0, static_cast<double>(precision));
  const double scaled = input.as_double() * unit;
  const double whole = method == "ceil" ? std::ceil(scaled) : std::floor(scaled);
  if (!std::isfinite(whole)) fail("cannot convert float to integer");
  return whole / unit + 0.0;  // no negative zero: Python's ceil() is an int
}

Value filesizeformat(const Value& input, Args args, Runtime& rt) {
  const BoundArgs a("filesizeformat", std::move(args), {"binary"}, 0);
  const bool binary = a.flag(0, false, rt);
  const Value as_float = to_float(input, {}, rt);
  const double bytes = as_float.as_double(), base = binary ? 1024 : 1000;
  if (bytes == 1) return "1 Byte";
  if (bytes < base) return int_text(static_cast<Int>(bytes)) + " Bytes";
  static constexpr char kPrefixes[] = "kMGTPEZY";
  double unit = base;
  int i = 0;
  while (i < 7 && bytes >= unit * base) {
    unit *= base;
    ++i;
  }
  const char prefix = binary && i == 0 ? 'K' : kPrefixes[i];
  return printf_double('f', 1, false, bytes / unit) + " " + prefix + (binary ? "iB" : "B");
}

}  // namespace filters
}  // namespace tutti::jinja
