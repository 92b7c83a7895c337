// The pieces of JSON texts as expressions: strings, numbers, values that are known, and the formats of JSON schemas.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "grammar/expression.h"

namespace tutti::grammar {

// One character within a JSON string, escapes included, and a string of any length or of `min` to `max` characters.
ExprPtr json_character();
ExprPtr json_string(int64_t min = 0, int64_t max = kUnlimited);
// The name of an additional property: any string but `taken`.
ExprPtr json_key_except(const std::vector<std::string>& taken);

// One of these texts, sharing what they begin with.
ExprPtr any_text(std::vector<std::string> texts);

struct Bounds {
  std::optional<double> min;
  std::optional<double> max;
  bool excludes_min = false;
  bool excludes_max = false;

  bool none() const { return !min && !max; }
};

// Numbers without bounds are written with at most so many digits that every reader takes them.
ExprPtr json_integer(const Bounds& bounds);
// With bounds without exponents, and with at most 12 digits behind the point. Throws InvalidGrammar for bounds that have more
// or whose size is beyond 10^15.
ExprPtr json_number(const Bounds& bounds);

// The inside of a string of that format; nothing when it is not known.
std::optional<std::string_view> regex_of_format(std::string_view format);
std::vector<std::string_view> known_formats();

}  // namespace tutti::grammar
