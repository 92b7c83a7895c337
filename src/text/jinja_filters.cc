#include "text/jinja_filters.h"

#include <algorithm>
#include <iterator>

#include "text/jinja_format.h"
#include "text/jinja_methods.h"
#include "text/jinja_ops.h"
#include "text/jinja_split.h"
#include "text/jinja_unicode.h"

namespace tutti::jinja {
namespace {

template <std::string (*kMap)(std::string_view)>
Value mapped(const Value& input, Args args, Runtime& rt) {
  const BoundArgs a("filter", std::move(args), {}, 0);
  return make_text(kMap(to_text(input, rt)), rt, input.is_markup());
}

// Unlike str.title(): words start behind spaces, dashes and opening brackets only.
std::string title_words(std::string_view text) {
  static constexpr std::string_view kStarts = "-({[<";
  std::string out, word;
  const auto flush = [&] {
    size_t pos = 0;
    if (!word.empty()) next_code_point(word, pos);
    out += to_upper(std::string_view(word).substr(0, pos)) +
           to_lower(std::string_view(word).substr(pos));
    word.clear();
  };
  for (size_t pos = 0; pos < text.size();) {
    const size_t start = pos;
    const uint32_t c = next_code_point(text, pos);
    const std::string_view piece = text.substr(start, pos - start);
    if (has_flag(c, kSpace) || kStarts.find(piece) != std::string_view::npos) {
      flush();
      out += piece;
    } else {
      word += piece;
    }
  }
  flush();
  return out;
}

Value trim(const Value& input, Args args, Runtime& rt) {
  const BoundArgs a("trim", std::move(args), {"chars"}, 0);
  const std::string text = to_text(input, rt);
  const auto trimmed = a.is_none(0) ? strip(text, true, true) : strip(text, a.text(0), true, true);
  return make_text(std::string(trimmed), rt, input.is_markup());
}

Value replace(const Value& input, Args args, Runtime& rt) {
  const BoundArgs a("replace", std::move(args), {"old", "new", "count"}, 2);
  const int64_t count = a.is_none(2) ? -1 : a.integer(2, -1);
  return make_text(
      replace_text(to_text(input, rt), to_text(a[0], rt), to_text(a[1], rt), count, rt), rt);
}

Value center(const Value& input, Args args, Runtime& rt) {
  const BoundArgs a("center", std::move(args), {"width"}, 0);
  return make_text(pad(to_text(input, rt), a.integer(0, 80), " ", Align::kCenter, rt), rt,
                   input.is_markup());
}

Value indent(const Value& input, Args args, Runtime& rt) {
  const BoundArgs a("indent", std::move(args), {"width", "first", "blank"}, 0);
  if (!input.is_string()) {
    fail(input.is_undefined() ? input.undefined_message()
                              : "indent needs a string, not " + input.type_name());
  }
  const bool first = a.flag(1, false, rt), blank = a.flag(2, false, rt);
  const std::string space =
      a.has(0) && a[0].is_string() ? a.text(0) : repeat_text(" ", a.integer(0, 4), rt);
  const std::string text = input.text() + "\n";
  std::string out = first ? space : "";
  bool is_first = true;
  for (const std::string_view line : split_lines(text)) {
    if (!is_first) out += '\n';
    if (!is_first && (blank || !line.empty())) out += space;
    is_first = false;
    out += line;
    if (out.size() > kMaxText) rt.text(out.size());
  }
  return make_text(std::move(out), rt, input.is_markup());
}

Value truncate(const Value& input, Args args, Runtime& rt) {
  const BoundArgs a("truncate", std::move(args), {"length", "killwords", "end", "leeway"}, 0);
  const int64_t wanted = a.integer(0, 255), leeway = a.is_none(3) ? 5 : a.integer(3, 5);
  const Value end = a.get(2, "...");
  const auto size = length(input, rt), end_size = length(end, rt);
  if (!size || !end_size) fail("truncate needs strings");
  if (wanted < static_cast<int64_t>(*end_size) || leeway < 0)
    fail("truncate: length or leeway too small");
  if (static_cast<int64_t>(*size) <= wanted + leeway) return input;
  const Value start =
      get_slice(input, None{}, wanted - static_cast<int64_t>(*end_size), None{}, rt);
  if (!start.is_string() || !end.is_string()) fail("truncate needs strings");
  if (a.flag(1, false, rt)) return add(start, end, rt);
  const auto parts = split_on(start.text(), " ", 1, true);
  return make_text(std::string(parts[0]) + end.text(), rt);
}

Value wordcount(const Value& input, Args args, Runtime& rt) {
  const BoundArgs a("wordcount", std::move(args), {}, 0);
  int64_t count = 0;
  bool in_word = false;
  for (const uint32_t c : code_points(to_text(input, rt))) {
    const bool word = c == '_' || has_flag(c, kAlpha | kDecimal | kDigit | kNumeric);
    if (word && !in_word) ++count;
    in_word = word;
  }
  return count;
}

// `query`: a part of a query string, where "/" is quoted and a space becomes "+".
std::string url_quote(std::string_view text, bool query) {
  static constexpr std::string_view kSafe = "_.-~";
  static constexpr char kHex[] = "0123456789ABCDEF";
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<uint8_t>(c);
    const bool alnum = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if (alnum || kSafe.find(c) != std::string_view::npos || (c == '/' && !query)) {
      out += c;
    } else if (c == ' ' && query) {
      out += '+';
    } else {
      out += {'%', kHex[byte >> 4], kHex[byte & 15]};
    }
  }
  return out;
}

Value urlencode(const Value& input, Args args, Runtime& rt) {
  const BoundArgs a("urlencode", std::move(args), {}, 0);
  if (input.is_string() || !iterable(input))
    return make_text(url_quote(to_text(input, rt), false), rt);
  std::string out;
  const Value pairs = input.is_dict() ? filters::items(input, {}, rt) : input;
  for (const Value& pair : collect(pairs, rt)) {
    const auto both = collect(pair, rt);
    if (both.size() != 2) fail("urlencode needs pairs of name and value");
    if (!out.empty()) out += '&';
    out += url_quote(to_text(both[0], rt), true) + "=" + url_quote(to_text(both[1], rt), true);
    if (out.size() > kMaxText) rt.text(out.size());
  }
  return make_text(std::move(out), rt);
}

// Without comments, tags and runs of white space; character references resolved as far as XML has
// them.
Value striptags(const Value& input, Args args, Runtime& rt) {
  const BoundArgs a("striptags", std::move(args), {}, 0);
  std::string text = to_text(input, rt);
  for (size_t start; (start = text.find("<!--")) != std::string::npos;) {
    const size_t end = text.find("-->", start);
    if (end == std::string::npos) break;
    rt.step(static_cast<int64_t>(text.size() / 32));
    text.erase(start, end + 3 - start);
  }
  for (size_t start; (start = text.find('<')) != std::string::npos;) {
    const size_t end = text.find('>', start);
    if (end == std::string::npos) break;
    rt.step(static_cast<int64_t>(text.size() / 32));
    text.erase(start, end + 1 - start);
  }
  std::string out;
  for (const auto word : split_space(text, -1, false)) {
    if (!out.empty()) out += ' ';
    out += word;
  }
  static constexpr std::pair<const char*, const char*> kReferences[] = {
      {"&lt;", "<"},    {"&gt;", ">"},  {"&#34;", "\""},
      {"&quot;", "\""}, {"&#39;", "'"}, {"&amp;", "&"}};
  for (const auto& [from, to] : kReferences) out = replace_text(out, from, to, -1, rt);
  return make_text(std::move(out), rt);
}

Value format(const Value& input, Args args, Runtime& rt) {
  if (!args.positional.empty() && !args.named.empty()) {
    fail("can't handle positional and keyword arguments at the same time");
  }
  const Value text = make_text(to_text(input, rt), rt, input.is_markup());
  if (args.named.empty())
    return binary(Op::kMod, text, make_tuple(std::move(args.positional), rt), rt);
  Dict values;
  for (auto& [name, value] : args.named) values.set(Value(name), std::move(value), rt);
  return binary(Op::kMod, text, make_dict(std::move(values)), rt);
}

Value string(const Value& input, Args args, Runtime& rt) {
  const BoundArgs a("string", std::move(args), {}, 0);
  return input.is_string() ? input : make_text(to_text(input, rt), rt);
}

Value escape(const Value& input, Args args, Runtime& rt) {
  const BoundArgs a("escape", std::move(args), {}, 0);
  return input.is_markup() ? input : make_text(escape_html(to_text(input, rt)), rt, true);
}

Value forceescape(const Value& input, Args args, Runtime& rt) {
  const BoundArgs a("forceescape", std::move(args), {}, 0);
  return make_text(escape_html(to_text(input, rt)), rt, true);
}

Value safe(const Value& input, Args args, Runtime& rt) {
  const BoundArgs a("safe", std::move(args), {}, 0);
  return make_text(to_text(input, rt), rt, true);
}

Value xmlattr(const Value& input, Args args, Runtime& rt) {
  const BoundArgs a("xmlattr", std::move(args), {"autospace"}, 0);
  if (!input.is_dict()) fail("xmlattr needs a dict, not " + input.type_name());
  std::string out;
  for (const auto& [key, value] : input.dict().entries()) {
    if (value.is_none() || value.is_undefined()) continue;
    const std::string name = to_text(key, rt);
    if (name.find_first_of(" \t\n\r\f\v/>=") != std::string::npos) {
      fail("Invalid character in attribute name: " + quote(name));
    }
    if (!out.empty()) out += ' ';
    out += escape_html(name) + "=\"" +
           (value.is_markup() ? value.text() : escape_html(to_text(value, rt))) + "\"";
  }
  if (a.flag(0, true, rt) && !out.empty()) out.insert(0, " ");
  return make_text(std::move(out), rt);
}

Value use_default(const Value& input, Args args, Runtime& rt) {
  const BoundArgs a("default", std::move(args), {"default_value", "boolean"}, 0);
  if (input.is_undefined() || (a.flag(1, false, rt) && !truthy(input, rt))) return a.get(0, "");
  return input;
}

Value count(const Value& input, Args args, Runtime& rt) {
  const BoundArgs a("length", std::move(args), {}, 0);
  const auto n = length(input, rt);
  if (!n) fail("object of type '" + input.type_name() + "' has no len()");
  return *n;
}

Value attr(const Value& input, Args args, Runtime& rt) {
  const BoundArgs a("attr", std::move(args), {"name"}, 1);
  if (auto found = find_attr(input, a.text(0), rt)) return std::move(*found);
  return Value::undefined(quote(input.type_name() + " object") + " has no attribute " +
                          quote(a.text(0)));
}

struct Named {
  std::string_view name;
  Filter filter;
};

constexpr Named kFilters[] = {
    {"abs", filters::absolute},
    {"attr", attr},
    {"batch", filters::batch},
    {"capitalize", mapped<to_capitalized>},
    {"center", center},
    {"count", count},
    {"d", use_default},
    {"default", use_default},
    {"dictsort", filters::dictsort},
    {"e", escape},
    {"escape", escape},
    {"filesizeformat", filters::filesizeformat},
    {"first", filters::first},
    {"float", filters::to_float},
    {"forceescape", forceescape},
    {"format", format},
    {"groupby", filters::groupby},
    {"indent", indent},
    {"int", filters::to_int},
    {"items", filters::items},
    {"join", filters::join},
    {"last", filters::last},
    {"length", count},
    {"list", filters::list},
    {"lower", mapped<to_lower>},
    {"map", filters::map},
    {"max", filters::max},
    {"min", filters::min},
    {"reject", filters::reject},
    {"rejectattr", filters::rejectattr},
    {"replace", replace},
    {"reverse", filters::reverse},
    {"round", filters::round},
    {"safe", safe},
    {"select", filters::select},
    {"selectattr", filters::selectattr},
    {"slice", filters::slice},
    {"sort", filters::sort},
    {"string", string},
    {"striptags", striptags},
    {"sum", filters::sum},
    {"title", mapped<title_words>},
    {"tojson", to_json},
    {"trim", trim},
    {"truncate", truncate},
    {"unique", filters::unique},
    {"upper", mapped<to_upper>},
    {"urlencode", urlencode},
    {"wordcount", wordcount},
    {"xmlattr", xmlattr},
};

}  // namespace

Filter find_filter(std::string_view name) {
  const auto it = std::find_if(std::begin(kFilters), std::end(kFilters),
                               [&](const Named& f) { return f.name == name; });
  return it == std::end(kFilters) ? nullptr : it->filter;
}

Value apply_filter(const std::string& name, const Value& input, Args args, Runtime& rt) {
  const Runtime::Depth depth(rt);
  rt.step();
  const Filter filter = find_filter(name);
  if (filter == nullptr) fail("there is no filter " + quote(name));
  return filter(input, std::move(args), rt);
}

}  // namespace tutti::jinja
