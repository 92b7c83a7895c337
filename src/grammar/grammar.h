// A compiled grammar: for each rule a small automaton over bytes, whose edges read a byte or call another rule. Flat, so
// that it travels to the ranks as it is.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/expression.h"

namespace tutti::grammar {

struct Edge {
  enum class Kind : uint8_t { kByte, kEmpty, kCall };
  Kind kind = Kind::kEmpty;
  uint8_t first = 0;   // kByte: from here ...
  uint8_t last = 0;    // ... to here
  int32_t rule = 0;    // kCall
  int32_t target = 0;  // a state: of a call, where it comes back to
  bool operator==(const Edge&) const = default;
};

struct State {
  std::vector<Edge> edges;
  bool ends_rule = false;
  // Nothing follows but the end of the rule: a call that comes back here need not come back.
  bool only_ends = false;
  bool operator==(const State&) const = default;
};

struct Grammar {
  std::vector<State> states;
  std::vector<int32_t> rule_starts;  // of each rule; rule 0 is the whole
  bool operator==(const Grammar&) const = default;

  std::string to_bytes() const;
  // Throws IoError on bytes that to_bytes() does not give.
  static Grammar from_bytes(std::string_view bytes);
};

constexpr size_t kMaxStates = 65'536;
constexpr size_t kMaxEdges = 4 * kMaxStates;
// Of to_bytes(): a step may bring a thousand requests with a grammar to each rank.
constexpr size_t kMaxBytes = 192 * 1024;

// From every state of the result the end can be reached, and no rule calls itself before it reads a byte. Throws InvalidGrammar:
// too large, left-recursive, or without any text.
Grammar compile(const Rules& rules);

}  // namespace tutti::grammar
