// Numbers and text laid out as a format spec of Python says ("{:>8.2f}") or a printf conversion
// does ("%+5d"). Stateless; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "text/jinja_value.h"

namespace tutti::jinja {

struct FormatSpec {
  std::string fill = " ";
  char align = 0;  // < > ^ = or 0: the type's own
  char sign = '-';
  bool alternate = false;
  char group = 0;  // ',' or '_'
  int64_t width = 0;
  int64_t precision = -1;
  char type = 0;
};

// [[fill]align][sign][#][0][width][group][.precision][type]
FormatSpec parse_format_spec(std::string_view text);
// format(v, spec).
std::string format_value(const Value& v, const FormatSpec& spec, Runtime& rt);

// Shared by both kinds of formatting: sign and digits are kept apart for padding between them.
struct NumberText {
  std::string sign;  // with the prefix "0x"
  std::string digits;
};
NumberText integer_digits(Int i, char type, const FormatSpec& spec);
NumberText float_digits(double d, char type, const FormatSpec& spec, Runtime& rt);
// What C's printf makes of a finite number.
std::string printf_double(char conversion, int precision, bool alternate, double d);
std::string layout(const NumberText& number, const FormatSpec& spec, char default_align,
                   Runtime& rt);

}  // namespace tutti::jinja
