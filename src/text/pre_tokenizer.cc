#include "text/pre_tokenizer.h"

#include "text/gguf_pre_tokenizers.h"

namespace tutti {
namespace {

// ASCII punctuation and \p{P} as of Unicode 8, which is the reference's: without what came later, with two that left.
const char* const kPunctuation =
    R"((?![\x{61d}\x{9fd}\x{a76}\x{c77}\x{c84}\x{1b7d}\x{1b7e}\x{2e43}-\x{2e4f}\x{2e52}-\x{2e5d}\x{10ead})"
    R"(\x{10f55}-\x{10f59}\x{10f86}-\x{10f89}\x{1144b}-\x{1144f}\x{1145a}\x{1145b}\x{1145d}\x{11660}-\x{1166c})"
    R"(\x{116b9}\x{1183b}\x{11944}-\x{11946}\x{119e2}\x{11a3f}-\x{11a46}\x{11a9a}-\x{11a9c}\x{11a9e}-\x{11aa2})"
    R"(\x{11c41}-\x{11c45}\x{11c70}\x{11c71}\x{11ef7}\x{11ef8}\x{11fff}\x{12ff1}\x{12ff2}\x{16e97}-\x{16e9a}\x{16fe2})"
    R"(\x{1e95e}\x{1e95f}])(?:[!-/:-@\[-`{-~\x{166d}\x{111c9}]|\p{P}))";

}  // namespace

PreTokenizer::PreTokenizer(const SortedJson& node, const std::string& where) {
  if (!node.is_null()) add(JsonFields(node, where));
}

PreTokenizer PreTokenizer::from_gguf_name(const std::string& name) {
  PreTokenizer out;
  for (const std::string& pattern : gguf_pre_tokenizer_regexes(name)) {
    out.add_regex(pattern, Behavior::kIsolated, false);
  }
  out.byte_level_ = true;
  return out;
}

PreTokenizer PreTokenizer::from_regex(const std::string& pattern) {
  PreTokenizer out;
  out.add_regex(pattern, Behavior::kIsolated, false);
  out.byte_level_ = true;
  return out;
}

void PreTokenizer::add_regex(const std::string& pattern, Behavior behavior, bool invert) {
  const auto scanner = scanner_for_regex(pattern);
  // A regex that leaves nothing out cuts the same way whichever side of it is kept.
  const bool removes = behavior == Behavior::kRemoved && invert;
  if (scanner && (behavior == Behavior::kIsolated || (removes && *scanner <= ScannerKind::kTekken))) {
    stages_.push_back(*scanner);
  } else {
    stages_.push_back(Split{Regex(pattern), behavior, invert});
  }
}

PreTokenizer::Behavior PreTokenizer::behavior_of(const JsonFields& node) {
  const std::string name = node.string("behavior");
  if (name == "Isolated") return Behavior::kIsolated;
  if (name == "Removed") return Behavior::kRemoved;
  if (name == "MergedWithPrevious") return Behavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return Behavior::kMergedWithNext;
  if (name == "Contiguous") return Behavior::kContiguous;
  node.fail("behavior \"" + name +
            "\" is not known; expected Isolated, Removed, MergedWithPrevious, MergedWithNext or Contiguous");
}

void PreTokenizer::add(const JsonFields& node) {
  const std::string type = node.string("type");
  if (type == "Sequence") {
    const SortedJson& parts = node.array("pretokenizers");
    for (size_t i = 0; i < parts.size(); ++i) {
      add(JsonFields(parts[i], node.where() + "[" + std::to_string(i) + "]"));
    }
  } else if (type == "ByteLevel") {
    byte_level_ = true;
    if (node.flag("add_prefix_space", true)) stages_.push_back(PrefixSpace{});
    if (node.flag("use_regex", true)) stages_.push_back(ScannerKind::kGpt2);
  } else if (type == "Digits") {
    const bool individual = node.flag("individual_digits", false);
    stages_.push_back(individual ? ScannerKind::kNumber : ScannerKind::kNumbers);
  } else if (type == "Split") {
    const JsonFields pattern = node.object("pattern");
    const Behavior behavior = behavior_of(node);
    const bool invert = node.flag("invert", false);
    if (pattern.has("Regex")) {
      add_regex(pattern.string("Regex"), behavior, invert);
    } else {
      stages_.push_back(Split{pattern.string("String"), behavior, invert});
    }
  } else if (type == "Metaspace") {
    const std::string scheme = node.string("prepend_scheme", node.flag("add_prefix_space", true) ? "always" : "never");
    if (scheme != "always" && scheme != "first" && scheme != "never") {
      node.fail("prepend_scheme \"" + scheme + "\" is not known; expected always, first or never");
    }
    stages_.push_back(Metaspace{node.string("replacement"), scheme == "first", scheme == "always",
                                node.flag("split", true)});
  } else if (type == "Punctuation") {
    stages_.push_back(Split{Regex(kPunctuation), behavior_of(node), false});
  } else if (type == "Whitespace") {
    // \w+|[^\w\s]+ where \w is every alphabetic character, mark, decimal digit, connector or joiner.
    const std::string word = R"(\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}\x{200c}\x{200d}\x{24b6}-\x{24e9}\x{1f130}-\x{1f149})"
                             R"(\x{1f150}-\x{1f169}\x{1f170}-\x{1f189})";
    stages_.push_back(Split{Regex("[" + word + "]+|[^" + word + R"(\s]+)"), Behavior::kRemoved, true});
  } else if (type == "WhitespaceSplit") {
    stages_.push_back(Split{Regex(R"(\s)"), Behavior::kRemoved, false});
  } else {
    node.fail("pre-tokenizer \"" + type +
              "\" is not supported; known: Sequence, ByteLevel, Digits, Split, Metaspace, Punctuation, Whitespace, "
              "WhitespaceSplit");
  }
}

void PreTokenizer::apply(std::string_view text, bool at_start, PreTokenized& work) const {
  work.text = text;
  work.pieces.clear();
  if (text.empty()) return;
  work.pieces.push_back({0, static_cast<uint32_t>(text.size())});
  for (const Stage& stage : stages_) {
    if (std::holds_alternative<PrefixSpace>(stage)) {
      rewrite(work, [](std::string_view piece, size_t, std::string& out) {
        if (piece.front() != ' ') out += ' ';
        out += piece;
      });
      continue;
    }
    if (const auto* metaspace = std::get_if<Metaspace>(&stage)) {
      run_metaspace(*metaspace, at_start, work);
      continue;
    }
    work.scratch.clear();
    for (const Piece piece : work.pieces) {
      if (const auto* scanner = std::get_if<ScannerKind>(&stage)) {
        scan_words(*scanner, work.text, piece, work.scratch);
      } else {
        split(std::get<Split>(stage), work.text, piece, work.scratch);
      }
    }
    work.pieces.swap(work.scratch);
  }
}

// Gives every piece a new text; `work.text` moves to `work.storage`.
template <typename Rewrite>
void PreTokenizer::rewrite(PreTokenized& work, Rewrite rewrite_piece) {
  work.scratch.clear();
  std::string out;
  out.reserve(work.text.size() + work.text.size() / 2 + 16);
  for (size_t i = 0; i < work.pieces.size(); ++i) {
    const auto begin = static_cast<uint32_t>(out.size());
    rewrite_piece(work[i], i, out);
    work.scratch.push_back({begin, static_cast<uint32_t>(out.size())});
  }
  work.pieces.swap(work.scratch);
  work.storage = std::move(out);
  work.text = work.storage;
}

void PreTokenizer::run_metaspace(const Metaspace& stage, bool at_start, PreTokenized& work) {
  rewrite(work, [&](std::string_view piece, size_t index, std::string& out) {
    const bool prepend = stage.prepend_always || (stage.prepend_first && at_start && index == 0);
    if (prepend && piece.front() != ' ' && !piece.starts_with(stage.replacement)) out += stage.replacement;
    for (const char c : piece) {
      if (c == ' ') {
        out += stage.replacement;
      } else {
        out += c;
      }
    }
  });
  if (!stage.split) return;
  work.scratch.clear();
  for (const Piece piece : work.pieces) {
    split(Split{stage.replacement, Behavior::kMergedWithNext, false}, work.text, piece, work.scratch);
  }
  work.pieces.swap(work.scratch);
}

void PreTokenizer::split(const Split& stage, std::string_view text, Piece part, std::vector<Piece>& out) {
  struct Part {
    Piece piece;
    bool match;
  };
  std::vector<Part> parts;
  const std::string_view view = text.substr(part.begin, part.size());
  uint32_t covered = 0;
  const auto on_match = [&](size_t begin, size_t end) {
    const auto b = static_cast<uint32_t>(begin), e = static_cast<uint32_t>(end);
    if (covered < b) parts.push_back({{part.begin + covered, part.begin + b}, stage.invert});
    parts.push_back({{part.begin + b, part.begin + e}, !stage.invert});
    covered = e;
  };
  if (const auto* literal = std::get_if<std::string>(&stage.pattern)) {
    for (size_t hit = 0; !literal->empty() && (hit = view.find(*literal, hit)) != std::string_view::npos;) {
      on_match(hit, hit + literal->size());
      hit += literal->size();
    }
  } else {
    std::get<Regex>(stage.pattern).for_each(view, on_match);
  }
  if (covered < view.size()) parts.push_back({{part.begin + covered, part.end}, stage.invert});

  const size_t first = out.size();
  for (size_t i = 0; i < parts.size(); ++i) {
    const auto& [piece, match] = parts[i];
    const bool after_match = i > 0 && parts[i - 1].match;
    const bool joins = (stage.behavior == Behavior::kMergedWithPrevious && match && !after_match) ||
                       (stage.behavior == Behavior::kContiguous && i > 0 && after_match == match) ||
                       (stage.behavior == Behavior::kMergedWithNext && !match && after_match);
    if (stage.behavior == Behavior::kRemoved && match) continue;
    if (joins && out.size() > first) {
      out.back().end = piece.end;
    } else {
      out.push_back(piece);
    }
  }
}

}  // namespace tutti
