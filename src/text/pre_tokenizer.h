// Cuts normalised text into the pieces that the model encodes one by one: the "pre_tokenizer" of a tokenizer.json, or
// the one that a GGUF file names. Const and thread-safe once built.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "text/json_fields.h"
#include "text/regex.h"
#include "text/word_scanner.h"

namespace tutti {

// Working memory and result of one run: pieces of `text`, which is the input or a rewritten copy in `storage`.
struct PreTokenized {
  std::string_view text;
  std::string storage;
  std::vector<Piece> pieces;
  std::vector<Piece> scratch;

  std::string_view operator[](size_t i) const { return text.substr(pieces[i].begin, pieces[i].size()); }
};

class PreTokenizer {
 public:
  PreTokenizer() = default;  // one piece
  // `node` may be null. Throws ConfigError for kinds and regexes that are not understood.
  PreTokenizer(const SortedJson& node, const std::string& where);
  // By tokenizer.ggml.pre. Throws ConfigError for names that are not known.
  static PreTokenizer from_gguf_name(const std::string& name);
  // Cut at the matches of one regex, which a rank file's model documents.
  static PreTokenizer from_regex(const std::string& pattern);

  // `at_start` says that nothing precedes this text in the input.
  void apply(std::string_view text, bool at_start, PreTokenized& out) const;
  // The pieces are bytes spelled with the byte-level alphabet.
  bool byte_level() const { return byte_level_; }

 private:
  enum class Behavior : uint8_t { kIsolated, kRemoved, kMergedWithPrevious, kMergedWithNext, kContiguous };
  struct Split {
    std::variant<std::string, Regex> pattern;
    Behavior behavior;
    bool invert;
  };
  struct PrefixSpace {};  // a space before every piece that does not begin with one
  struct Metaspace {
    std::string replacement;
    bool prepend_first, prepend_always, split;
  };
  using Stage = std::variant<ScannerKind, Split, PrefixSpace, Metaspace>;

  void add(const JsonFields& node);
  void add_regex(const std::string& pattern, Behavior behavior, bool invert);
  static Behavior behavior_of(const JsonFields& node);
  static void split(const Split& stage, std::string_view text, Piece part, std::vector<Piece>& out);
  template <typename Rewrite>
  static void rewrite(PreTokenized& work, Rewrite rewrite_piece);
  static void run_metaspace(const Metaspace& stage, bool at_start, PreTokenized& work);

  std::vector<Stage> stages_;
  bool byte_level_ = false;
};

}  // namespace tutti
