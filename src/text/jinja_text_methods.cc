// The methods of Python's str.
#include <algorithm>
#include <array>

#include "text/jinja_format.h"
#include "text/jinja_methods.h"
#include "text/jinja_ops.h"
#include "text/jinja_split.h"
#include "text/jinja_unicode.h"

namespace tutti::jinja {
namespace {

using Body = Value (*)(const Value& self, Args args, Runtime& rt);

Value like(const Value& self, std::string text, Runtime& rt) {
  return make_text(std::move(text), rt, self.is_markup());
}

template <std::string (*kMap)(std::string_view)>
Value mapped(const Value& self, Args args, Runtime& rt) {
  const BoundArgs a("str method", std::move(args), {}, 0);
  return like(self, kMap(self.text()), rt);
}

template <bool kLeft, bool kRight>
Value stripped(const Value& self, Args args, Runtime& rt) {
  const BoundArgs a("strip", std::move(args), {"chars"}, 0);
  if (a.is_none(0)) return like(self, std::string(strip(self.text(), kLeft, kRight)), rt);
  return like(self, std::string(strip(self.text(), a.text(0), kLeft, kRight)), rt);
}

Value list_of(const std::vector<std::string_view>& parts, const Value& self, Runtime& rt) {
  std::vector<Value> items;
  for (const auto part : parts) items.push_back(like(self, std::string(part), rt));
  return make_list(std::move(items), rt);
}

template <bool kFromRight>
Value split(const Value& self, Args args, Runtime& rt) {
  const BoundArgs a(kFromRight ? "rsplit" : "split", std::move(args), {"sep", "maxsplit"}, 0);
  const int64_t most = a.integer(1, -1);
  if (a.is_none(0)) return list_of(split_space(self.text(), most, kFromRight), self, rt);
  if (a.text(0).empty()) fail("empty separator");
  return list_of(split_on(self.text(), a.text(0), most, kFromRight), self, rt);
}

Value splitlines(const Value& self, Args args, Runtime& rt) {
  const BoundArgs a("splitlines", std::move(args), {"keepends"}, 0);
  return list_of(split_lines(self.text(), a.flag(0, false, rt)), self, rt);
}

template <bool kFromRight>
Value partition(const Value& self, Args args, Runtime& rt) {
  const BoundArgs a("partition", std::move(args), {"sep"}, 1);
  const std::string &text = self.text(), &sep = a.text(0);
  if (sep.empty()) fail("empty separator");
  const size_t at = kFromRight ? text.rfind(sep) : text.find(sep);
  if (at == std::string::npos) {
    const Value empty = like(self, "", rt);
    if (kFromRight) return make_tuple({empty, empty, self}, rt);
    return make_tuple({self, empty, empty}, rt);
  }
  return make_tuple(
      {like(self, text.substr(0, at), rt), a[0], like(self, text.substr(at + sep.size()), rt)}, rt);
}

// The part of the string that [start:stop] names, and its offset in code points; nothing for an
// empty "after the end".
std::optional<std::pair<std::string, int64_t>> window(const Value& self, const BoundArgs& a,
                                                      Runtime& rt) {
  const auto size = static_cast<int64_t>(*length(self, rt));
  int64_t start = a.is_none(1) ? 0 : a.integer(1, 0);
  if (start < 0) start = std::max<int64_t>(0, start + size);
  if (start > size) return std::nullopt;
  const Value part = get_slice(self, start, a.get(2, None{}), None{}, rt);
  int64_t stop = a.is_none(2) ? size : a.integer(2, size);
  if (stop < 0) stop = std::max<int64_t>(0, stop + size);
  if (stop < start) return std::nullopt;
  return std::make_pair(part.text(), start);
}

template <bool kAtStart>
Value has_affix(const Value& self, Args args, Runtime& rt) {
  const char* name = kAtStart ? "startswith" : "endswith";
  const BoundArgs a(name, std::move(args), {"prefix", "start", "end"}, 1);
  const auto part = window(self, a, rt);
  const auto matches = [&](const Value& affix) {
    if (affix.is_undefined()) fail(affix.undefined_message());
    if (!affix.is_string()) {
      fail(std::string(name) + " first arg must be str or a tuple of str, not " +
           affix.type_name());
    }
    if (!part) return false;
    return kAtStart ? part->first.starts_with(affix.text()) : part->first.ends_with(affix.text());
  };
  if (!a[0].is_tuple()) return matches(a[0]);
  return std::any_of(a[0].items().begin(), a[0].items().end(), matches);
}

int64_t find_in(const Value& self, Args args, bool from_right, Runtime& rt) {
  const BoundArgs a("find", std::move(args), {"sub", "start", "end"}, 1);
  const std::string& needle = a.text(0);
  const auto part = window(self, a, rt);
  if (!part) return -1;
  const size_t at = from_right ? part->first.rfind(needle) : part->first.find(needle);
  if (at == std::string::npos) return -1;
  return part->second +
         static_cast<int64_t>(code_point_count(std::string_view(part->first).substr(0, at)));
}

template <bool kFromRight, bool kMustBe>
Value find(const Value& self, Args args, Runtime& rt) {
  const int64_t at = find_in(self, std::move(args), kFromRight, rt);
  if (kMustBe && at < 0) fail("substring not found");
  return at;
}

Value count(const Value& self, Args args, Runtime& rt) {
  const BoundArgs a("count", std::move(args), {"sub", "start", "end"}, 1);
  const std::string& needle = a.text(0);
  const auto part = window(self, a, rt);
  if (!part) return 0;
  if (needle.empty()) return static_cast<int64_t>(code_point_count(part->first)) + 1;
  int64_t n = 0;
  for (size_t at = part->first.find(needle); at != std::string::npos;
       at = part->first.find(needle, at + needle.size())) {
    ++n;
  }
  return n;
}

Value replace(const Value& self, Args args, Runtime& rt) {
  const BoundArgs a("replace", std::move(args), {"old", "new", "count"}, 2);
  const auto part = [&](size_t i) {
    return self.is_markup() && !a[i].is_markup() ? escape_html(a.text(i)) : a.text(i);
  };
  return like(self, replace_text(self.text(), part(0), part(1), a.integer(2, -1), rt), rt);
}

Value join(const Value& self, Args args, Runtime& rt) {
  const BoundArgs a("join", std::move(args), {"iterable"}, 1);
  if (a[0].is_none() || a[0].is_number()) fail("can only join an iterable");
  std::string out;
  bool first = true;
  size_t i = 0;
  for (const Value& item : collect(a[0], rt)) {
    if (!item.is_string()) {
      fail("sequence item " + std::to_string(i) + ": expected str instance, " + item.type_name() +
           " found");
    }
    if (!first) out += self.text();
    first = false;
    out += self.is_markup() && !item.is_markup() ? escape_html(item.text()) : item.text();
    if (out.size() > kMaxText) rt.text(out.size());
    ++i;
  }
  return like(self, std::move(out), rt);
}

template <bool kPrefix>
Value remove_affix(const Value& self, Args args, Runtime& rt) {
  const BoundArgs a("removeprefix", std::move(args), {"affix"}, 1);
  const std::string &text = self.text(), &affix = a.text(0);
  if (affix.empty() || affix.size() > text.size()) return self;
  if (kPrefix) return text.starts_with(affix) ? like(self, text.substr(affix.size()), rt) : self;
  return text.ends_with(affix) ? like(self, text.substr(0, text.size() - affix.size()), rt) : self;
}

template <Align kAlign>
Value justify(const Value& self, Args args, Runtime& rt) {
  const BoundArgs a("center", std::move(args), {"width", "fillchar"}, 1);
  const std::string fill = a.has(1) ? a.text(1) : " ";
  if (code_point_count(fill) != 1) fail("The fill character must be exactly one character long");
  return like(self, pad(self.text(), a.integer(0, 0), fill, kAlign, rt), rt);
}

Value zfill(const Value& self, Args args, Runtime& rt) {
  const BoundArgs a("zfill", std::move(args), {"width"}, 1);
  const std::string& text = self.text();
  const bool sign = !text.empty() && (text[0] == '-' || text[0] == '+');
  const int64_t width = a.integer(0, 0);
  if (!sign) return like(self, pad(text, width, "0", Align::kRight, rt), rt);
  return like(
      self, text[0] + pad(text.substr(1), std::max<int64_t>(width, 1) - 1, "0", Align::kRight, rt),
      rt);
}

Value expandtabs(const Value& self, Args args, Runtime& rt) {
  const BoundArgs a("expandtabs", std::move(args), {"tabsize"}, 0);
  const int64_t size = a.integer(0, 8);
  std::string out;
  int64_t column = 0;
  const std::string& text = self.text();
  for (size_t pos = 0; pos < text.size();) {
    const uint32_t c = next_code_point(text, pos);
    if (c == '\t') {
      const int64_t spaces = size > 0 ? size - column % size : 0;
      rt.text(out.size() + static_cast<size_t>(spaces));
      out.append(static_cast<size_t>(spaces), ' ');
      column += spaces;
      continue;
    }
    append_code_point(out, c);
    column = c == '\n' || c == '\r' ? 0 : column + 1;
  }
  return like(self, std::move(out), rt);
}

// Non-empty, and every character has one of the flags.
template <uint16_t kFlags>
Value all_are(const Value& self, Args args, Runtime&) {
  const BoundArgs a("str method", std::move(args), {}, 0);
  const auto points = code_points(self.text());
  return !points.empty() &&
         std::all_of(points.begin(), points.end(), [](uint32_t c) { return has_flag(c, kFlags); });
}

Value isascii(const Value& self, Args, Runtime&) { return self.str().ascii; }
Value isprintable(const Value& self, Args, Runtime&) {
  const auto points = code_points(self.text());
  return std::all_of(points.begin(), points.end(),
                     [](uint32_t c) { return has_flag(c, kPrintable); });
}
Value isidentifier(const Value& self, Args, Runtime&) {
  const auto points = code_points(self.text());
  return !points.empty() && has_flag(points[0], kIdentifierStart) &&
         std::all_of(points.begin(), points.end(),
                     [](uint32_t c) { return has_flag(c, kIdentifierPart); });
}
Value islower(const Value& self, Args, Runtime&) { return is_cased(self.text(), kLower); }
Value isupper(const Value& self, Args, Runtime&) { return is_cased(self.text(), kUpper); }
Value istitle(const Value& self, Args, Runtime&) {
  bool cased = false, after_cased = false;
  for (const uint32_t c : code_points(self.text())) {
    if (has_flag(c, kUpper | kTitle)) {
      if (after_cased) return false;
      cased = after_cased = true;
    } else if (has_flag(c, kLower)) {
      if (!after_cased) return false;
      cased = true;
    } else {
      after_cased = false;
    }
  }
  return cased;
}

Value format(const Value& self, Args args, Runtime& rt) {
  return like(self, brace_format(self.text(), args, rt), rt);
}

Value format_map(const Value& self, Args args, Runtime& rt) {
  const BoundArgs a("format_map", std::move(args), {"mapping"}, 1);
  if (!a[0].is_dict()) fail("format_map() expects a mapping");
  Args fields;
  for (const auto& [key, value] : a[0].dict().entries()) {
    if (key.is_string()) fields.named.emplace_back(key.text(), value);
  }
  return like(self, brace_format(self.text(), fields, rt), rt);
}

struct Method {
  const char* name;
  Body body;
};

constexpr Method kMethods[] = {
    {"capitalize", mapped<to_capitalized>},
    {"casefold", mapped<to_casefold>},
    {"center", justify<Align::kCenter>},
    {"count", count},
    {"endswith", has_affix<false>},
    {"expandtabs", expandtabs},
    {"find", find<false, false>},
    {"format", format},
    {"format_map", format_map},
    {"index", find<false, true>},
    {"isalnum", all_are<kAlpha | kDecimal | kDigit | kNumeric>},
    {"isalpha", all_are<kAlpha>},
    {"isascii", isascii},
    {"isdecimal", all_are<kDecimal>},
    {"isdigit", all_are<kDigit>},
    {"isidentifier", isidentifier},
    {"islower", islower},
    {"isnumeric", all_are<kNumeric>},
    {"isprintable", isprintable},
    {"isspace", all_are<kSpace>},
    {"istitle", istitle},
    {"isupper", isupper},
    {"join", join},
    {"ljust", justify<Align::kLeft>},
    {"lower", mapped<to_lower>},
    {"lstrip", stripped<true, false>},
    {"partition", partition<false>},
    {"removeprefix", remove_affix<true>},
    {"removesuffix", remove_affix<false>},
    {"replace", replace},
    {"rfind", find<true, false>},
    {"rindex", find<true, true>},
    {"rjust", justify<Align::kRight>},
    {"rpartition", partition<true>},
    {"rsplit", split<true>},
    {"rstrip", stripped<false, true>},
    {"split", split<false>},
    {"splitlines", splitlines},
    {"startswith", has_affix<true>},
    {"strip", stripped<true, true>},
    {"swapcase", mapped<swap_case>},
    {"title", mapped<to_title>},
    {"upper", mapped<to_upper>},
    {"zfill", zfill},
};

}  // namespace

std::optional<Value> find_text_method(const Value& v, const std::string& name) {
  const auto it =
      std::lower_bound(std::begin(kMethods), std::end(kMethods), name,
                       [](const Method& m, const std::string& n) { return m.name < n; });
  if (it == std::end(kMethods) || name != it->name) return std::nullopt;
  const Body body = it->body;
  return make_function(it->name, 0,
                       [v, body](Args args, Runtime& rt) { return body(v, std::move(args), rt); });
}

}  // namespace tutti::jinja
