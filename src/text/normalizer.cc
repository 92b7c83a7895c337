#include "text/normalizer.h"

#include "text/base64.h"
#include "text/jinja_unicode.h"
#include "text/unicode.h"
#include "text/unicode_folding.h"

namespace tutti {
namespace {

template <typename... F>
struct Overload : F... {
  using F::operator()...;
};
template <class... F>
Overload(F...) -> Overload<F...>;  // clang 16 deduces no aggregates

std::string strip(std::string_view text, bool left, bool right) {
  const auto is_space = [&](size_t pos, size_t& length) {
    return CharClasses::get()[decode_utf8(text, pos, length)] & char_class::kSpace;
  };
  size_t begin = 0, end = text.size(), length;
  while (left && begin < end && is_space(begin, length)) begin += length;
  while (right && end > begin) {
    size_t last = end - 1;
    while (last > begin && (static_cast<uint8_t>(text[last]) & 0xc0) == 0x80) --last;
    if (!is_space(last, length)) break;
    end = last;
  }
  return std::string(text.substr(begin, end - begin));
}

// Each character alone, as the reference does it: no sigma is a final one.
std::string lowercase(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t pos = 0, length; pos < text.size(); pos += length) {
    length = utf8_length(text[pos]);
    out += jinja::to_lower(text.substr(pos, length));
  }
  return out;
}

// The first rule for the beginning of `part`, which it replaces whole; false when there is none.
bool append_by_rule(const Charsmap& rules, std::string_view part, std::string& out) {
  bool found = false;
  rules.for_each_rule(part, 0, [&](size_t, std::string_view becomes) {
    if (!found) out.append(becomes);
    found = true;
  });
  return found;
}

void append_by_rules(const Charsmap& rules, std::string_view cluster, std::string& out) {
  constexpr size_t kShort = 6;
  if (cluster.size() < kShort && append_by_rule(rules, cluster, out)) return;
  for (size_t pos = 0; pos < cluster.size();) {
    const std::string_view character = cluster.substr(pos, utf8_length(cluster[pos]));
    if (!append_by_rule(rules, character, out)) out.append(character);
    pos += character.size();
  }
}

}  // namespace

std::string replace_all(std::string_view text, std::string_view from, std::string_view to) {
  std::string out;
  out.reserve(text.size() + text.size() / 4);
  size_t pos = 0;
  for (size_t hit; (hit = text.find(from, pos)) != std::string_view::npos; pos = hit + from.size()) {
    out.append(text.substr(pos, hit - pos)).append(to);
  }
  return out.append(text.substr(pos));
}

Normalizer::Normalizer(const SortedJson& node, const std::string& where) {
  if (!node.is_null()) add(JsonFields(node, where));
}

void Normalizer::add(const JsonFields& node) {
  const std::string type = node.string("type");
  if (type == "Sequence") {
    const SortedJson& parts = node.array("normalizers");
    for (size_t i = 0; i < parts.size(); ++i) {
      add(JsonFields(parts[i], node.where() + "[" + std::to_string(i) + "]"));
    }
  } else if (type == "NFC") {
    steps_.push_back(&to_nfc);
  } else if (type == "NFD") {
    steps_.push_back(&to_nfd);
  } else if (type == "NFKC") {
    steps_.push_back(&to_nfkc);
  } else if (type == "NFKD") {
    steps_.push_back(&to_nfkd);
  } else if (type == "Lowercase") {
    steps_.push_back(&lowercase);
  } else if (type == "StripAccents") {
    steps_.push_back(&without_marks);
  } else if (type == "Precompiled") {
    const auto rules = decode_base64(node.string("precompiled_charsmap"));
    if (!rules) node.fail("precompiled_charsmap is not base64");
    steps_.push_back(Precompiled{Charsmap(*rules, node.where()), Regex("\\X")});
  } else if (type == "Strip") {
    steps_.push_back(Strip{node.flag("strip_left", true), node.flag("strip_right", true)});
  } else if (type == "Prepend") {
    steps_.push_back(Prepend{node.string("prepend")});
  } else if (type == "Replace") {
    const JsonFields pattern = node.object("pattern");
    if (pattern.has("Regex")) {
      steps_.push_back(ReplaceRegex{Regex(pattern.string("Regex")), node.string("content")});
    } else {
      const std::string from = pattern.string("String");
      if (!from.empty()) steps_.push_back(ReplaceText{from, node.string("content")});
    }
  } else {
    node.fail("normalizer \"" + type + "\" is not supported; known: Sequence, NFC, NFD, NFKC, NFKD, Lowercase,"
              " StripAccents, Strip, Prepend, Replace, Precompiled");
  }
}

std::string Normalizer::apply(std::string_view text) const {
  std::string out(text);
  for (const Step& step : steps_) out = run(step, std::move(out));
  return out;
}

std::string Normalizer::run(const Step& step, std::string text) {
  return std::visit(
      Overload{
          [&](const Rewrite& rewrite) { return rewrite(text); },
          [&](const Precompiled& p) {
            std::string out;
            p.cluster.for_each(text, [&](size_t begin, size_t end) {
              append_by_rules(p.rules, std::string_view(text).substr(begin, end - begin), out);
            });
            return out;
          },
          [&](const Strip& s) { return strip(text, s.left, s.right); },
          [&](const Prepend& p) { return text.empty() ? std::move(text) : p.text + text; },
          [&](const ReplaceText& r) { return replace_all(text, r.from, r.to); },
          [&](const ReplaceRegex& r) {
            std::string out;
            size_t copied = 0;
            r.from.for_each(text, [&](size_t begin, size_t end) {
              out.append(text, copied, begin - copied).append(r.to);
              copied = end;
            });
            return out.append(text, copied);
          },
      },
      step);
}

}  // namespace tutti
