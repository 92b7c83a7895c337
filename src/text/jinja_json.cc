// The tojson filter: Python's json.dumps.
#include <algorithm>

#include "text/jinja_filters.h"
#include "text/jinja_methods.h"
#include "text/jinja_ops.h"
#include "text/jinja_split.h"
#include "text/jinja_unicode.h"

namespace tutti::jinja {
namespace {

struct JsonStyle {
  bool ensure_ascii = false;
  bool sort_keys = false;
  std::optional<std::string> indent;
  std::string item_separator = ", ", key_separator = ": ";
};

class JsonWriter {
 public:
  JsonWriter(JsonStyle style, Runtime& rt) : style_(std::move(style)), rt_(rt) {}

  std::string write(const Value& v) {
    append(v);
    return std::move(out_);
  }

 private:
  void append(const Value& v) {
    const Runtime::Depth depth(rt_);
    rt_.step();
    if (v.is_string()) {
      append_string(v.text());
    } else if (v.is_list() || v.is_tuple()) {
      append_list(v.items());
    } else if (v.is_dict()) {
      append_dict(v.dict());
    } else if (const auto text = scalar(v)) {
      out_ += *text;
    } else {
      fail("Object of type " + v.type_name() + " is not JSON serializable");
    }
    if (out_.size() > kMaxText) rt_.text(out_.size());
  }

  static std::optional<std::string> scalar(const Value& v) {
    if (v.is_none()) return "null";
    if (v.is_bool()) return v.as_bool() ? "true" : "false";
    if (v.is_int()) return int_text(v.as_int());
    if (!v.is_float()) return std::nullopt;
    const std::string text = float_repr(v.as_double());
    return text == "nan" ? "NaN" : text == "inf" ? "Infinity" : text == "-inf" ? "-Infinity" : text;
  }

  void append_string(std::string_view text) {
    out_ += '"';
    for (size_t pos = 0; pos < text.size();) {
      const uint32_t c = next_code_point(text, pos);
      switch (c) {
        case '"':
          out_ += "\\\"";
          break;
        case '\\':
          out_ += "\\\\";
          break;
        case '\n':
          out_ += "\\n";
          break;
        case '\r':
          out_ += "\\r";
          break;
        case '\t':
          out_ += "\\t";
          break;
        case '\f':
          out_ += "\\f";
          break;
        case '\b':
          out_ += "\\b";
          break;
        default:
          if (c < 0x20 || (style_.ensure_ascii && c >= 0x7F)) {
            append_escaped(c);
          } else {
            append_code_point(out_, c);
          }
      }
    }
    out_ += '"';
  }

  void append_escaped(uint32_t c) {
    if (c == 0x7F) {  // plain ASCII after all
      out_ += static_cast<char>(c);
    } else if (c >= 0x10000) {
      append_escaped(0xD800 + ((c - 0x10000) >> 10));
      append_escaped(0xDC00 + ((c - 0x10000) & 0x3FF));
    } else {
      static constexpr char kHex[] = "0123456789abcdef";
      out_ += "\\u";
      for (int shift = 12; shift >= 0; shift -= 4) out_ += kHex[(c >> shift) & 15];
    }
  }

  void new_line() {
    if (!style_.indent) return;
    out_ += '\n';
    for (int i = 0; i < level_; ++i) out_ += *style_.indent;
    if (out_.size() > kMaxText) rt_.text(out_.size());
  }

  template <typename Items, typename Append>
  void append_all(char open, const Items& items, char close, Append append_item) {
    out_ += open;
    ++level_;
    bool first = true;
    for (const auto& item : items) {
      if (!first) out_ += style_.item_separator;
      first = false;
      new_line();
      append_item(item);
    }
    --level_;
    if (!first) new_line();
    out_ += close;
  }

  void append_list(const std::vector<Value>& items) {
    append_all('[', items, ']', [this](const Value& v) { append(v); });
  }

  void append_dict(const Dict& dict) {
    std::vector<Dict::Entry> entries = dict.entries();
    if (style_.sort_keys) {
      std::stable_sort(entries.begin(), entries.end(), [this](const auto& a, const auto& b) {
        return less(a.first, b.first, rt_);
      });
    }
    append_all('{', entries, '}', [this](const Dict::Entry& entry) {
      const auto& [key, value] = entry;
      const auto name = key.is_string() ? std::optional(key.text()) : scalar(key);
      if (!name) fail("keys must be str, int, float, bool or None, not " + key.type_name());
      append_string(*name);
      out_ += style_.key_separator;
      append(value);
    });
  }

  JsonStyle style_;
  Runtime& rt_;
  std::string out_;
  int level_ = 0;
};

}  // namespace

Value to_json(const Value& input, Args args, Runtime& rt) {
  const BoundArgs a("tojson", std::move(args),
                    {"ensure_ascii", "indent", "separators", "sort_keys"}, 0);
  JsonStyle style;
  style.ensure_ascii = a.flag(0, false, rt);
  style.sort_keys = a.flag(3, false, rt);
  if (!a.is_none(1)) {
    style.indent = a[1].is_string() ? a[1].text() : repeat_text(" ", a.integer(1, 0), rt);
    style.item_separator = ",";
  }
  if (!a.is_none(2)) {
    const auto separators = collect(a[2], rt);
    if (separators.size() != 2 || !separators[0].is_string() || !separators[1].is_string()) {
      fail("tojson: separators must be two strings");
    }
    style.item_separator = separators[0].text();
    style.key_separator = separators[1].text();
  }
  return make_text(JsonWriter(std::move(style), rt).write(input), rt);
}

}  // namespace tutti::jinja
