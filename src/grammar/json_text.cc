#include "grammar/json_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

namespace tutti::grammar {
namespace {

ExprPtr digit(char first, char last) { return one_of(CharSet({{static_cast<uint32_t>(first), static_cast<uint32_t>(last)}})); }
ExprPtr digits(int64_t min, int64_t max) { return repeat(digit('0', '9'), min, max); }

ExprPtr plain_characters(std::vector<CodeRange> except) {
  except.push_back({0, 0x1F});
  except.push_back({'"', '"'});
  except.push_back({'\\', '\\'});
  return one_of(CharSet(std::move(except)).complement());
}

// texts[begin, end), which are sorted and equal up to `at`.
ExprPtr any_of_sorted(const std::vector<std::string>& texts, size_t begin, size_t end, size_t at) {
  std::vector<ExprPtr> ways;
  while (begin < end) {
    if (texts[begin].size() == at) {
      ways.push_back(text(""));
      ++begin;
      continue;
    }
    size_t same = begin + 1;  // the end of those with the same next byte
    while (same < end && texts[same][at] == texts[begin][at]) ++same;
    const std::string& first = texts[begin];
    const std::string& last = texts[same - 1];
    const auto common =
        static_cast<size_t>(std::mismatch(first.begin(), first.end(), last.begin(), last.end()).first - first.begin());
    ExprPtr way = text(first.substr(at, common - at));
    if (same - begin > 1) way = sequence({std::move(way), any_of_sorted(texts, begin, same, common)});
    ways.push_back(std::move(way));
    begin = same;
  }
  return ways.size() == 1 ? ways.front() : choice(std::move(ways));
}

// Numbers of `n` digits from low[at...] on, up to high[at...]; nullptr = no bound.
ExprPtr digits_between(const char* low, const char* high, size_t n) {
  if (n == 0) return text("");
  if (low == nullptr && high == nullptr) return digits(static_cast<int64_t>(n), static_cast<int64_t>(n));
  const char first = low != nullptr ? *low : '0', last = high != nullptr ? *high : '9';
  const char* low_rest = low != nullptr ? low + 1 : nullptr;
  const char* high_rest = high != nullptr ? high + 1 : nullptr;
  if (first == last) return sequence({digit(first, first), digits_between(low_rest, high_rest, n - 1)});
  std::vector<ExprPtr> ways;
  char from = first, to = last;
  if (low != nullptr) ways.push_back(sequence({digit(from, from), digits_between(low_rest, nullptr, n - 1)})), ++from;
  if (high != nullptr) ways.push_back(sequence({digit(to, to), digits_between(nullptr, high_rest, n - 1)})), --to;
  if (from <= to) ways.push_back(sequence({digit(from, to), digits_between(nullptr, nullptr, n - 1)}));
  return choice(std::move(ways));
}

// Integers from `low` >= 0 to `high`, without leading zeros.
ExprPtr naturals_between(uint64_t low, std::optional<uint64_t> high) {
  constexpr size_t kMostDigits = 19;
  const std::string from = std::to_string(low);
  const std::string to = high ? std::to_string(*high) : std::string(kMostDigits, '9');
  std::vector<ExprPtr> ways;
  for (size_t n = from.size(); n <= to.size(); ++n) {
    const std::string least = n == from.size() ? from : "1" + std::string(n - 1, '0');
    const std::string most = n == to.size() ? to : std::string(n, '9');
    if (least <= most) ways.push_back(digits_between(least.data(), most.data(), n));
  }
  return choice(std::move(ways));
}

// A bound as digits before and behind the point, the latter without zeros at their end.
struct Decimal {
  uint64_t whole = 0;
  std::string fraction;
};

Decimal to_decimal(double value) {
  constexpr double kLargest = 1e15;
  if (std::abs(value) > kLargest)
    throw InvalidGrammar(fmt::format("a bound of {} is too large for numbers that are no integers", value));
  std::string written = fmt::format("{:.12f}", std::abs(value));
  const size_t point = written.find('.');
  Decimal d{std::stoull(written.substr(0, point)), written.substr(point + 1)};
  while (d.fraction.ends_with('0')) d.fraction.pop_back();
  if (std::abs(std::stod(written) - std::abs(value)) > 0 && std::abs(value) < 1) {
    throw InvalidGrammar(fmt::format("a bound of {} has more than 12 digits behind the point", value));
  }
  return d;
}

// Numbers >= 0 between two bounds. They have at most `most` digits behind the point: with more, a reader could round one up
// to a bound that it must not reach.
class Decimals {
 public:
  Decimals(Decimal low, bool excludes_low, std::optional<Decimal> high, bool excludes_high)
      : low_(std::move(low)), excludes_low_(excludes_low), high_(std::move(high)), excludes_high_(excludes_high) {
    if (high_) most_ = std::clamp<int64_t>(15 - static_cast<int64_t>(std::to_string(high_->whole).size()), 1, most_);
  }

  ExprPtr between() const {
    constexpr uint64_t kLargest = 999'999'999'999'999;
    if (high_ && low_.whole > high_->whole) return choice({});
    if (high_ && low_.whole == high_->whole) return within(low_.whole, true, true);
    std::vector<ExprPtr> ways = {within(low_.whole, true, false)};
    if (high_) ways.push_back(within(high_->whole, false, true));
    if (!high_ || low_.whole + 1 < high_->whole) {
      ways.push_back(sequence({naturals_between(low_.whole + 1, high_ ? high_->whole - 1 : kLargest),
                               optional(sequence({text("."), digits(1, most_)}))}));
    }
    return choice(std::move(ways));
  }

 private:
  // Numbers with this part before the point, which is that of one bound or of both.
  ExprPtr within(uint64_t whole, bool at_low, bool at_high) const {
    std::vector<ExprPtr> ways = {sequence({text("."), fraction(0, at_low, at_high)})};
    if (may_end(0, at_low, at_high)) ways.push_back(text(""));
    return sequence({text(std::to_string(whole)), choice(std::move(ways))});
  }

  // `at` digits behind the point are written, equal to those of the lower bound, or of the upper one, or of both.
  bool may_end(size_t at, bool at_low, bool at_high) const {
    const bool low_reached = at >= low_.fraction.size() && !excludes_low_;
    const bool below_high = high_ && (at < high_->fraction.size() || !excludes_high_);
    return (!at_low || low_reached) && (!at_high || below_high);
  }

  ExprPtr fraction(size_t at, bool at_low, bool at_high) const {
    const int64_t left = most_ - static_cast<int64_t>(at);
    if (!at_low && !at_high) return digits(at == 0 ? 1 : 0, std::max<int64_t>(left, 0));
    std::vector<ExprPtr> ways;
    if (at > 0 && may_end(at, at_low, at_high)) ways.push_back(text(""));
    const bool bound_left = (at_low && at < low_.fraction.size()) || (at_high && at < high_->fraction.size());
    if (left > 0 || bound_left) {
      char first = at_low ? digit_at(low_, at) : '0', last = at_high ? digit_at(*high_, at) : '9';
      const auto way = [&](char from, char to, bool low, bool high) {
        ways.push_back(sequence({digit(from, to), fraction(at + 1, low, high)}));
      };
      if (first == last) {
        way(first, last, at_low, at_high);
      } else if (first < last) {
        if (at_low) way(first, first, true, false), ++first;
        if (at_high) way(last, last, false, true), --last;
        if (first <= last) way(first, last, false, false);
      }
    }
    return choice(std::move(ways));
  }
  static char digit_at(const Decimal& bound, size_t at) { return at < bound.fraction.size() ? bound.fraction[at] : '0'; }

  const Decimal low_;
  const bool excludes_low_;
  const std::optional<Decimal> high_;
  const bool excludes_high_;
  int64_t most_ = 12;
};

bool is_negative(double value) { return value < 0; }

}  // namespace

ExprPtr json_character() {
  static const ExprPtr character = [] {
    const CharSet hex({{'0', '9'}, {'A', 'F'}, {'a', 'f'}});
    const CharSet no_surrogate({{'0', '9'}, {'A', 'C'}, {'E', 'F'}, {'a', 'c'}, {'e', 'f'}});
    const CharSet below_surrogates({{'0', '7'}});
    const CharSet d({{'D', 'D'}, {'d', 'd'}});
    const ExprPtr code = choice({sequence({one_of(no_surrogate), repeat(one_of(hex), 3, 3)}),
                                 sequence({one_of(d), one_of(below_surrogates), repeat(one_of(hex), 2, 2)})});
    const CharSet named({{'"', '"'}, {'/', '/'}, {'\\', '\\'}, {'b', 'b'}, {'f', 'f'}, {'n', 'n'}, {'r', 'r'}, {'t', 't'}});
    return choice({plain_characters({}), sequence({text("\\"), choice({one_of(named), sequence({text("u"), code})})})});
  }();
  return character;
}

ExprPtr json_string(int64_t min, int64_t max) { return sequence({text("\""), repeat(json_character(), min, max), text("\"")}); }

// A walk along the trie of the taken names: whoever leaves it, or stops where none ends, is free. Escapes would be other
// spellings of the same names, and are not used before the walk is left.
ExprPtr json_key_except(const std::vector<std::string>& taken) {
  struct Walk {
    const std::vector<std::string>& names;
    ExprPtr below(size_t begin, size_t end, size_t at) const {
      std::vector<ExprPtr> ways;
      bool ends_here = false;
      std::vector<CodeRange> next;
      while (begin < end) {
        if (names[begin].size() == at) {
          ends_here = true;
          ++begin;
          continue;
        }
        size_t length = 1;  // of the character
        while (at + length < names[begin].size() && (names[begin][at + length] & 0xC0) == 0x80) ++length;
        const std::string character = names[begin].substr(at, length);
        size_t same = begin + 1;
        while (same < end && names[same].compare(at, length, character) == 0) ++same;
        const CodeRange code = decode(character);
        next.push_back(code);
        const bool written_plainly = code.first > 0x1F && code.first != '"' && code.first != '\\';
        if (written_plainly) ways.push_back(sequence({text(character), below(begin, same, at + length)}));
        begin = same;
      }
      if (!ends_here) ways.push_back(text(""));
      ways.push_back(sequence({plain_characters(next), repeat(json_character(), 0)}));
      return choice(std::move(ways));
    }
    static CodeRange decode(const std::string& character) {
      uint32_t code = static_cast<uint8_t>(character[0]);
      if (character.size() > 1) code &= 0x3Fu >> (character.size() - 1);
      for (size_t i = 1; i < character.size(); ++i) code = code << 6 | (static_cast<uint8_t>(character[i]) & 0x3F);
      return {code, code};
    }
  };
  std::vector<std::string> sorted = taken;
  std::sort(sorted.begin(), sorted.end());
  sorted.erase(std::unique(sorted.begin(), sorted.end()), sorted.end());
  if (sorted.empty()) return json_string();
  return sequence({text("\""), Walk{sorted}.below(0, sorted.size(), 0), text("\"")});
}

ExprPtr any_text(std::vector<std::string> texts) {
  std::sort(texts.begin(), texts.end());
  texts.erase(std::unique(texts.begin(), texts.end()), texts.end());
  return any_of_sorted(texts, 0, texts.size(), 0);
}

ExprPtr json_integer(const Bounds& bounds) {
  constexpr double kLargest = 1e18;
  if (bounds.none()) return sequence({optional(text("-")), choice({text("0"), sequence({digit('1', '9'), digits(0, 17)})})});
  const auto bound = [&](double value, bool excluded, double step) {
    if (std::abs(value) > kLargest) return static_cast<int64_t>(std::copysign(kLargest, value));
    const double inside = step > 0 ? std::ceil(value) : std::floor(value);
    return static_cast<int64_t>(inside) + (excluded && inside == value ? static_cast<int64_t>(step) : 0);
  };
  std::optional<int64_t> min, max;
  if (bounds.min) min = bound(*bounds.min, bounds.excludes_min, 1);
  if (bounds.max) max = bound(*bounds.max, bounds.excludes_max, -1);
  if (min && max && *min > *max) return choice({});
  std::vector<ExprPtr> ways;
  if (!max || *max >= 0) {
    ways.push_back(naturals_between(min && *min > 0 ? static_cast<uint64_t>(*min) : 0,
                                    max ? std::optional(static_cast<uint64_t>(*max)) : std::nullopt));
  }
  if (!min || *min < 0) {
    const uint64_t least = max && *max < 0 ? static_cast<uint64_t>(-*max) : 1;
    ways.push_back(
        sequence({text("-"), naturals_between(least, min ? std::optional(static_cast<uint64_t>(-*min)) : std::nullopt)}));
  }
  return choice(std::move(ways));
}

ExprPtr json_number(const Bounds& bounds) {
  if (bounds.none()) {
    const ExprPtr whole = choice({text("0"), sequence({digit('1', '9'), digits(0, 17)})});
    const ExprPtr exponent =
        sequence({one_of(CharSet({{'E', 'E'}, {'e', 'e'}})), optional(one_of(CharSet({{'+', '+'}, {'-', '-'}}))), digits(1, 2)});
    return sequence({optional(text("-")), whole, optional(sequence({text("."), digits(1, 17)})), optional(exponent)});
  }
  if (bounds.min && bounds.max &&
      (*bounds.min > *bounds.max || (*bounds.min == *bounds.max && (bounds.excludes_min || bounds.excludes_max)))) {
    return choice({});
  }
  std::vector<ExprPtr> ways;
  const auto decimal = [](const std::optional<double>& value) {
    return value ? std::optional(to_decimal(*value)) : std::nullopt;
  };
  // Not negative.
  if (!bounds.max || !is_negative(*bounds.max)) {
    const bool own_low = bounds.min && !is_negative(*bounds.min);
    const bool only_zero = bounds.max && *bounds.max == 0;
    if (!only_zero) {
      ways.push_back(Decimals(own_low ? to_decimal(*bounds.min) : Decimal{}, own_low && bounds.excludes_min, decimal(bounds.max),
                              bounds.excludes_max)
                         .between());
    } else if (!bounds.excludes_max) {
      ways.push_back(text("0"));
    }
  }
  // Negative: the same with the bounds exchanged.
  if (!bounds.min || is_negative(*bounds.min)) {
    const bool own_low = bounds.max && is_negative(*bounds.max);
    const bool excludes = own_low ? bounds.excludes_max : true;  // -0 is not written
    ways.push_back(sequence(
        {text("-"),
         Decimals(own_low ? to_decimal(*bounds.max) : Decimal{}, excludes, decimal(bounds.min), bounds.excludes_min).between()}));
  }
  return choice(std::move(ways));
}

namespace {

constexpr std::array<std::pair<std::string_view, std::string_view>, 10> kFormats = {{
    {"date",
     "([1-9]\\d{3}-(0[13578]|1[02])-(0[1-9]|[12]\\d|3[01])|[1-9]\\d{3}-(0[469]|11)-(0[1-9]|[12]\\d|30)|[1-9]\\d{3}-02-(0[1-9]|"
     "1\\d|2[0-8]))"},
    {"time", "([01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(\\.\\d{1,6})?(Z|[+-]([01]\\d|2[0-3]):[0-5]\\d)"},
    {"date-time",
     "([1-9]\\d{3}-(0[13578]|1[02])-(0[1-9]|[12]\\d|3[01])|[1-9]\\d{3}-(0[469]|11)-(0[1-9]|[12]\\d|30)|[1-9]\\d{3}-02-(0[1-9]|"
     "1\\d|2[0-8]))"
     "T([01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(\\.\\d{1,6})?(Z|[+-]([01]\\d|2[0-3]):[0-5]\\d)"},
    {"duration",
     "P(\\d{1,4}W|\\d{1,4}Y(\\d{1,4}M(\\d{1,4}D)?)?|\\d{1,4}M(\\d{1,4}D)?|\\d{1,4}D|"
     "(\\d{1,4}D)?T(\\d{1,4}H(\\d{1,4}M(\\d{1,4}S)?)?|\\d{1,4}M(\\d{1,4}S)?|\\d{1,4}S))"},
    {"email",
     "[A-Za-z0-9_+-]{1,32}(\\.[A-Za-z0-9_+-]{1,32}){0,3}@[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?(\\.[A-Za-z0-9]([A-Za-z0-9-]{"
     "0,61}[A-Za-z0-9])?){1,3}"},
    {"hostname", "[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?(\\.[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?){0,3}"},
    {"ipv4", "((25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)\\.){3}(25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)"},
    {"ipv6", "([0-9a-fA-F]{1,4}:){7}[0-9a-fA-F]{1,4}|([0-9a-fA-F]{1,4}:){1,6}:[0-9a-fA-F]{1,4}|::[0-9a-fA-F]{1,4}|::"},
    {"uri",  // at most 1369 characters: less than the 2083 that schemas of URLs often allow
     "[A-Za-z][A-Za-z0-9+.-]{0,15}://[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?(\\.[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?){0,3}"
     "(:\\d{1,4})?(/([A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2}){0,30}){0,8}"
     "(\\?([A-Za-z0-9._~!$&'()*+,;=:@/?-]|%[0-9A-Fa-f]{2}){0,60})?(#([A-Za-z0-9._~!$&'()*+,;=:@/?-]|%[0-9A-Fa-f]{2}){0,60})?"},
    {"uuid", "[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"},
}};

}  // namespace

std::optional<std::string_view> regex_of_format(std::string_view format) {
  const auto* found = std::find_if(kFormats.begin(), kFormats.end(), [&](const auto& f) { return f.first == format; });
  if (found == kFormats.end()) return std::nullopt;
  return found->second;
}

std::vector<std::string_view> known_formats() {
  std::vector<std::string_view> names;
  for (const auto& [name, regex] : kFormats) names.push_back(name);
  return names;
}

}  // namespace tutti::grammar
