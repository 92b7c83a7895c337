#include "text/jinja_split.h"

#include <algorithm>

#include "text/jinja_unicode.h"

namespace tutti::jinja {

std::string_view strip(std::string_view text, bool left, bool right) {
  if (left) text.remove_prefix(leading_space(text));
  if (right) text.remove_suffix(trailing_space(text));
  return text;
}

std::string_view strip(std::string_view text, std::string_view chars, bool left, bool right) {
  const auto set = code_points(chars);
  const auto in_set = [&](uint32_t c) { return std::find(set.begin(), set.end(), c) != set.end(); };
  while (left && !text.empty()) {
    size_t pos = 0;
    if (!in_set(next_code_point(text, pos))) break;
    text.remove_prefix(pos);
  }
  while (right && !text.empty()) {
    size_t start = text.size() - 1;
    while (start > 0 && (static_cast<uint8_t>(text[start]) & 0xC0) == 0x80) --start;
    size_t pos = start;
    if (!in_set(next_code_point(text, pos))) break;
    text.remove_suffix(text.size() - start);
  }
  return text;
}

std::vector<std::string_view> split_space(std::string_view text, int64_t most, bool from_right) {
  std::vector<std::string_view> parts;
  text = strip(text, !from_right, from_right);  // the end that no cut reaches keeps its space
  while (!text.empty()) {
    if (most >= 0 && static_cast<int64_t>(parts.size()) == most) {
      parts.push_back(text);
      break;
    }
    if (from_right) {
      size_t start = text.size();
      while (start > 0 && trailing_space(text.substr(0, start)) == 0) {
        do --start;
        while (start > 0 && (static_cast<uint8_t>(text[start]) & 0xC0) == 0x80);
      }
      parts.push_back(text.substr(start));
      text = strip(text.substr(0, start), false, true);
    } else {
      size_t end = 0;
      while (end < text.size() && leading_space(text.substr(end)) == 0) next_code_point(text, end);
      parts.push_back(text.substr(0, end));
      text = strip(text.substr(end), true, false);
    }
  }
  if (from_right) std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<std::string_view> split_on(std::string_view text, std::string_view separator,
                                       int64_t most, bool from_right) {
  std::vector<std::string_view> parts;
  while (most < 0 || static_cast<int64_t>(parts.size()) < most) {
    const size_t at = from_right ? text.rfind(separator) : text.find(separator);
    if (at == std::string_view::npos) break;
    if (from_right) {
      parts.push_back(text.substr(at + separator.size()));
      text = text.substr(0, at);
    } else {
      parts.push_back(text.substr(0, at));
      text = text.substr(at + separator.size());
    }
  }
  parts.push_back(text);
  if (from_right) std::reverse(parts.begin(), parts.end());
  return parts;
}

std::string replace_text(std::string_view text, std::string_view from, std::string_view to,
                         int64_t most, Runtime& rt) {
  rt.text(text.size());
  std::string out;
  const auto left = [&, done = int64_t{0}]() mutable { return most < 0 || done++ < most; };
  auto may_replace = left;
  if (from.empty()) {
    // Between all characters and at both ends.
    for (size_t pos = 0; pos <= text.size();) {
      if (may_replace()) out += to;
      const size_t start = pos;
      if (pos == text.size()) break;
      next_code_point(text, pos);
      out += text.substr(start, pos - start);
      if (out.size() > kMaxText) rt.text(out.size());
    }
    return out;
  }
  while (true) {
    const size_t at = text.find(from);
    if (at == std::string_view::npos || !may_replace()) break;
    out += text.substr(0, at);
    out += to;
    text.remove_prefix(at + from.size());
    if (out.size() > kMaxText) rt.text(out.size());
  }
  return out += text;
}

std::string repeat_text(std::string_view text, int64_t times, Runtime& rt) {
  times = std::clamp<int64_t>(times, 0, kMaxText + 1);
  rt.text(text.size() * static_cast<size_t>(times));
  std::string out;
  for (int64_t i = 0; i < times; ++i) out += text;
  return out;
}

std::string pad(std::string_view text, int64_t width, std::string_view fill, Align align,
                Runtime& rt) {
  const auto size = static_cast<int64_t>(code_point_count(text));
  if (width <= size) return std::string(text);
  rt.text(static_cast<size_t>(width));
  const int64_t missing = width - size;
  const int64_t left = align == Align::kLeft ? 0
                       : align == Align::kRight
                           ? missing
                           : missing / 2 + (missing & width & 1);  // as CPython rounds
  std::string out;
  for (int64_t i = 0; i < left; ++i) out += fill;
  out += text;
  for (int64_t i = left; i < missing; ++i) out += fill;
  return out;
}

bool is_cased(std::string_view text, uint16_t wanted) {
  bool cased = false;
  for (const uint32_t c : code_points(text)) {
    const uint16_t flags = char_flags(c) & (kUpper | kLower | kTitle);
    if ((flags & ~wanted) != 0) return false;
    cased = cased || flags != 0;
  }
  return cased;
}

}  // namespace tutti::jinja
