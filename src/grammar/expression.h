// What a structured output may look like, as a tree: the one form that JSON schemas, regular expressions and written
// grammars all become before compile() (grammar.h) turns them into an automaton over bytes. Immutable and shared; any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"

namespace tutti::grammar {

// What was asked for cannot be had: a construct that is not supported, a limit that is passed, or a language without a text.
class InvalidGrammar : public Error {
 public:
  explicit InvalidGrammar(const std::string& message) : Error(message, ExitCode::kConfig) {}
};

struct CodeRange {
  uint32_t first = 0;
  uint32_t last = 0;
  bool operator==(const CodeRange&) const = default;
};

// Code points, in order, without overlaps and without surrogates.
class CharSet {
 public:
  CharSet() = default;
  CharSet(std::vector<CodeRange> ranges);  // NOLINT: in any order
  static CharSet all() { return CharSet({{0, kLast}}); }

  CharSet operator|(const CharSet& other) const;
  CharSet operator&(const CharSet& other) const;
  CharSet complement() const;
  const std::vector<CodeRange>& ranges() const { return ranges_; }
  bool empty() const { return ranges_.empty(); }

  static constexpr uint32_t kLast = 0x10FFFF;

 private:
  std::vector<CodeRange> ranges_;
};

// How a character is written: as it is, or as inside a JSON string, where some need a backslash.
enum class Encoding : uint8_t { kPlain, kJsonString };

struct Expr;
using ExprPtr = std::shared_ptr<const Expr>;

struct Expr {
  enum class Kind : uint8_t { kBytes, kChar, kSequence, kChoice, kRepeat, kRule };
  Kind kind = Kind::kSequence;
  std::string bytes;  // kBytes
  CharSet chars;      // kChar: one of these
  Encoding encoding = Encoding::kPlain;
  std::vector<ExprPtr> parts;  // kSequence, kChoice; kRepeat has one
  int64_t min = 0;             // kRepeat
  int64_t max = 0;             // kRepeat, kUnlimited for no end
  int rule = 0;                // kRule
};

constexpr int64_t kUnlimited = -1;

ExprPtr text(std::string bytes);
ExprPtr one_of(CharSet chars, Encoding encoding = Encoding::kPlain);
ExprPtr sequence(std::vector<ExprPtr> parts);  // without parts: the empty text
ExprPtr choice(std::vector<ExprPtr> parts);    // without parts: nothing at all matches
ExprPtr repeat(ExprPtr part, int64_t min, int64_t max = kUnlimited);
ExprPtr optional(ExprPtr part);
ExprPtr call(int rule);

// How many characters the texts of an expression have, at least and at most (kUnlimited); of one without calls.
struct Lengths {
  int64_t min = 0;
  int64_t max = 0;
};
Lengths lengths_of(const Expr& e);

// Named expressions that may call each other. Rule 0 is the whole.
class Rules {
 public:
  // A rule without a body yet.
  int declare(std::string name);
  void define(int rule, ExprPtr body) { bodies_[static_cast<size_t>(rule)] = std::move(body); }
  size_t size() const { return bodies_.size(); }
  const ExprPtr& body(size_t rule) const { return bodies_[rule]; }
  const std::string& name(size_t rule) const { return names_[rule]; }

 private:
  std::vector<ExprPtr> bodies_;
  std::vector<std::string> names_;
};

}  // namespace tutti::grammar
