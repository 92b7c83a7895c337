#include "text/normalizer.h"

#include "text/unicode.h"

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
    steps_.push_back(Nfc{});
  } else if (type == "NFD") {
    steps_.push_back(Nfd{});
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
    node.fail("normalizer \"" + type + "\" is not supported; known: Sequence, NFC, NFD, Strip, Prepend, Replace");
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
          [&](const Nfc&) { return to_nfc(text); },
          [&](const Nfd&) { return to_nfd(text); },
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
