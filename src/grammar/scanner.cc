#include "grammar/scanner.h"

#include <fmt/format.h>

#include <algorithm>

namespace tutti::grammar {
namespace {

constexpr int64_t kLargestNumber = 1'000'000'000;

bool is_digit(char c) { return c >= '0' && c <= '9'; }

}  // namespace

void Scanner::fail_at(const std::string& what, size_t position) const {
  const std::string_view before = text_.substr(0, position);
  const auto characters = std::count_if(before.begin(), before.end(), [](char c) { return (c & 0xC0) != 0x80; });
  throw InvalidGrammar(fmt::format("{} (at character {})", what, characters + 1));
}

uint32_t Scanner::character() {
  if (at_end()) fail("it ends too early");
  const auto lead = static_cast<uint8_t>(text_[at_++]);
  if (lead < 0x80) return lead;
  const int more = lead >= 0xF0 ? 3 : lead >= 0xE0 ? 2 : 1;
  uint32_t code = lead & (0x3Fu >> more);
  for (int i = 0; i < more && !at_end() && (text_[at_] & 0xC0) == 0x80; ++i)
    code = code << 6 | (static_cast<uint8_t>(text_[at_++]) & 0x3F);
  return code;
}

uint32_t Scanner::hex(int digits) {
  uint32_t value = 0;
  for (int i = 0; i < digits; ++i, ++at_) {
    const char c = peek();
    const int digit = is_digit(c) ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
    if (digit < 0) fail(fmt::format("{} hexadecimal digits are expected", digits));
    value = value * 16 + static_cast<uint32_t>(digit);
  }
  return value;
}

std::optional<int64_t> Scanner::number() {
  if (!is_digit(peek())) return std::nullopt;
  int64_t value = 0;
  for (; is_digit(peek()); ++at_) value = std::min(kLargestNumber, value * 10 + (peek() - '0'));
  return value;
}

ExprPtr Scanner::repeated(ExprPtr part) {
  if (take("*")) return repeat(std::move(part), 0);
  if (take("+")) return repeat(std::move(part), 1);
  if (take("?")) return optional(std::move(part));
  const size_t begin = at_;
  if (!take("{")) return part;
  const auto min = number();
  std::optional<int64_t> max = min;
  if (take(",")) {
    max = number();
    if (!max) max = kUnlimited;
    if (!min && *max == kUnlimited) max.reset();
  }
  if (!max || !take("}")) {
    at_ = begin;
    return part;
  }
  if (*max != kUnlimited && *max < min.value_or(0)) fail_at(fmt::format("{{{},{}}} counts down", min.value_or(0), *max), begin);
  return repeat(std::move(part), min.value_or(0), *max);
}

std::string encode_utf8(uint32_t c) {
  const auto tail = [c](int shift) { return static_cast<char>(0x80 | (c >> shift & 0x3F)); };
  if (c < 0x80) return {static_cast<char>(c)};
  if (c < 0x800) return {static_cast<char>(0xC0 | c >> 6), tail(0)};
  if (c < 0x10000) return {static_cast<char>(0xE0 | c >> 12), tail(6), tail(0)};
  return {static_cast<char>(0xF0 | c >> 18), tail(12), tail(6), tail(0)};
}

}  // namespace tutti::grammar
