#include "text/jinja_unicode.h"

#include <algorithm>
#include <iterator>

#include "text/jinja_unicode_tables.h"

namespace tutti::jinja {
namespace {

struct CaseTable {
  const CaseRun* runs;
  size_t run_count;
  const SpecialCase* special;
  size_t special_count;

  // Appends the mapping of `c`; false when the table does not map it.
  bool append(std::string& out, uint32_t c) const {
    const SpecialCase* s =
        std::lower_bound(special, special + special_count, c,
                         [](const SpecialCase& a, uint32_t b) { return a.code_point < b; });
    if (s != special + special_count && s->code_point == c) {
      out += s->mapped;
      return true;
    }
    const CaseRun* r = std::lower_bound(runs, runs + run_count, c,
                                        [](const CaseRun& a, uint32_t b) { return a.last < b; });
    if (r == runs + run_count || c < r->first || (c - r->first) % r->stride != 0) return false;
    append_code_point(out, static_cast<uint32_t>(static_cast<int64_t>(c) + r->delta));
    return true;
  }
};

const CaseTable& upper_table() {
  static const CaseTable table{kUpperRuns, kUpperRunCount, kUpperSpecial, kUpperSpecialCount};
  return table;
}
const CaseTable& lower_table() {
  static const CaseTable table{kLowerRuns, kLowerRunCount, kLowerSpecial, kLowerSpecialCount};
  return table;
}
const CaseTable& title_table() {
  static const CaseTable table{kTitleRuns, kTitleRunCount, kTitleSpecial, kTitleSpecialCount};
  return table;
}

const CaseTable& fold_table() {
  static const CaseTable table{kFoldRuns, kFoldRunCount, kFoldSpecial, kFoldSpecialCount};
  return table;
}

void append_upper(std::string& out, uint32_t c) {
  if (c < 128) {
    out += static_cast<char>(c >= 'a' && c <= 'z' ? c - 32 : c);
  } else if (!upper_table().append(out, c)) {
    append_code_point(out, c);
  }
}

void append_title(std::string& out, uint32_t c) {
  if (!title_table().append(out, c)) append_upper(out, c);
}

constexpr uint32_t kCapitalSigma = 0x3A3, kFinalSigma = 0x3C2, kSmallSigma = 0x3C3;

// A capital sigma that ends a word has its own small letter.
bool is_final_sigma(const std::vector<uint32_t>& points, size_t i) {
  size_t before = i;
  while (before > 0 && has_flag(points[before - 1], kCaseIgnorable)) --before;
  if (before == 0 || !has_flag(points[before - 1], kCased)) return false;
  size_t after = i + 1;
  while (after < points.size() && has_flag(points[after], kCaseIgnorable)) ++after;
  return after == points.size() || !has_flag(points[after], kCased);
}

void append_lower(std::string& out, const std::vector<uint32_t>& points, size_t i) {
  const uint32_t c = points[i];
  if (c < 128) {
    out += static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
  } else if (c == kCapitalSigma) {
    append_code_point(out, is_final_sigma(points, i) ? kFinalSigma : kSmallSigma);
  } else if (!lower_table().append(out, c)) {
    append_code_point(out, c);
  }
}

struct PropertyTable {
  std::vector<uint32_t> starts;
  PropertyTable() {
    uint32_t start = 0;
    for (size_t i = 0; i < kPropertyRunCount; ++i) {
      starts.push_back(start);
      start += kPropertyRuns[2 * i];
    }
  }
};

bool is_line_break(uint32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 ||
         c == 0x2029;
}

}  // namespace

uint16_t char_flags(uint32_t code_point) {
  static const PropertyTable table;
  const auto it = std::upper_bound(table.starts.begin(), table.starts.end(), code_point);
  return kPropertyClasses[kPropertyRuns[2 * (it - table.starts.begin() - 1) + 1]];
}

uint32_t next_code_point(std::string_view text, size_t& pos) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint32_t first = byte(pos);
  const size_t length = first < 0x80 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
  if (length == 1 || pos + length > text.size()) {
    ++pos;
    return first;
  }
  uint32_t c = first & (0xFF >> (length + 1));
  for (size_t i = 1; i < length; ++i) c = (c << 6) | (byte(pos + i) & 0x3F);
  pos += length;
  return c;
}

void append_code_point(std::string& out, uint32_t c) {
  if (c < 0x80) {
    out += static_cast<char>(c);
  } else if (c < 0x800) {
    out += static_cast<char>(0xC0 | (c >> 6));
    out += static_cast<char>(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    out += static_cast<char>(0xE0 | (c >> 12));
    out += static_cast<char>(0x80 | ((c >> 6) & 0x3F));
    out += static_cast<char>(0x80 | (c & 0x3F));
  } else {
    out += static_cast<char>(0xF0 | (c >> 18));
    out += static_cast<char>(0x80 | ((c >> 12) & 0x3F));
    out += static_cast<char>(0x80 | ((c >> 6) & 0x3F));
    out += static_cast<char>(0x80 | (c & 0x3F));
  }
}

std::vector<uint32_t> code_points(std::string_view text) {
  std::vector<uint32_t> points;
  points.reserve(text.size());
  for (size_t pos = 0; pos < text.size();) points.push_back(next_code_point(text, pos));
  return points;
}

std::string encode(const uint32_t* begin, const uint32_t* end) {
  std::string out;
  out.reserve(end - begin);
  for (; begin != end; ++begin) append_code_point(out, *begin);
  return out;
}

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return static_cast<uint8_t>(c) < 0x80; });
}

size_t code_point_count(std::string_view text) {
  return std::count_if(text.begin(), text.end(),
                       [](char c) { return (static_cast<uint8_t>(c) & 0xC0) != 0x80; });
}

size_t find_invalid_utf8(std::string_view text) {
  for (size_t pos = 0; pos < text.size();) {
    const auto first = static_cast<uint8_t>(text[pos]);
    if (first < 0x80) {
      ++pos;
      continue;
    }
    const size_t length = first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
    if (first < 0xC2 || first > 0xF4 || pos + length > text.size()) return pos;
    for (size_t i = 1; i < length; ++i) {
      if ((static_cast<uint8_t>(text[pos + i]) & 0xC0) != 0x80) return pos;
    }
    size_t next = pos;
    const uint32_t c = next_code_point(text, next);
    const uint32_t least = length == 2 ? 0x80 : length == 3 ? 0x800 : 0x10000;
    if (c < least || c > 0x10FFFF || (c >= 0xD800 && c < 0xE000)) return pos;
    pos = next;
  }
  return std::string_view::npos;
}

std::string to_upper(std::string_view text) {
  std::string out;
  for (size_t pos = 0; pos < text.size();) append_upper(out, next_code_point(text, pos));
  return out;
}

std::string to_lower(std::string_view text) {
  const auto points = code_points(text);
  std::string out;
  for (size_t i = 0; i < points.size(); ++i) append_lower(out, points, i);
  return out;
}

std::string to_title(std::string_view text) {
  const auto points = code_points(text);
  std::string out;
  bool in_word = false;
  for (size_t i = 0; i < points.size(); ++i) {
    if (in_word) {
      append_lower(out, points, i);
    } else {
      append_title(out, points[i]);
    }
    in_word = has_flag(points[i], kUpper | kLower | kTitle | kCased);
  }
  return out;
}

std::string to_capitalized(std::string_view text) {
  const auto points = code_points(text);
  std::string out;
  for (size_t i = 0; i < points.size(); ++i) {
    if (i == 0) {
      append_title(out, points[i]);
    } else {
      append_lower(out, points, i);
    }
  }
  return out;
}

std::string swap_case(std::string_view text) {
  const auto points = code_points(text);
  std::string out;
  for (size_t i = 0; i < points.size(); ++i) {
    if (has_flag(points[i], kUpper)) {
      append_lower(out, points, i);
    } else if (has_flag(points[i], kLower)) {
      append_upper(out, points[i]);
    } else {
      append_code_point(out, points[i]);
    }
  }
  return out;
}

std::string to_casefold(std::string_view text) {
  std::string out;
  for (size_t pos = 0; pos < text.size();) {
    const uint32_t c = next_code_point(text, pos);
    if (!fold_table().append(out, c) && !lower_table().append(out, c)) append_code_point(out, c);
  }
  return out;
}

size_t leading_space(std::string_view text) {
  size_t pos = 0;
  while (pos < text.size()) {
    size_t next = pos;
    if (!has_flag(next_code_point(text, next), kSpace)) break;
    pos = next;
  }
  return pos;
}

size_t trailing_space(std::string_view text) {
  size_t end = text.size();
  while (end > 0) {
    size_t start = end - 1;
    while (start > 0 && (static_cast<uint8_t>(text[start]) & 0xC0) == 0x80) --start;
    size_t pos = start;
    if (!has_flag(next_code_point(text, pos), kSpace)) break;
    end = start;
  }
  return text.size() - end;
}

std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends) {
  std::vector<std::string_view> lines;
  size_t start = 0;
  for (size_t pos = 0; pos < text.size();) {
    const size_t end = pos;
    const uint32_t c = next_code_point(text, pos);
    if (!is_line_break(c)) continue;
    if (c == '\r' && pos < text.size() && text[pos] == '\n') ++pos;
    lines.push_back(text.substr(start, (keep_ends ? pos : end) - start));
    start = pos;
  }
  if (start < text.size()) lines.push_back(text.substr(start));
  return lines;
}

}  // namespace tutti::jinja
