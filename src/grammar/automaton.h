// Runs a compiled grammar over bytes, and knows which tokens may come next.
//
// Where a text stands in a grammar is a configuration: a set of pairs of a state and the stack of calls around it. Stacks are
// shared trees in which equal ones are one (hash-consing), with alternatives merged level by level, so a configuration has each
// state once and its size is bounded by the grammar, however ambiguous it is. Configurations are numbered when they are first
// met and remember where each class of bytes leads: what was walked once is a table look-up, as in a lazily built DFA.
//
// The tokens allowed in a configuration are found by a walk over the vocabulary's trie. What happens inside the innermost
// call depends on its states alone, so that part of the walk is kept for all stacks (LocalMask), and only tokens that go
// on behind the end of the call are walked again.
//
// All limits count work, not time: a mask whose walk is cut short lacks tokens, but has none that is wrong.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "grammar/grammar.h"
#include "grammar/vocabulary.h"

namespace tutti::grammar {

// The tokens that may come next: a bit each, or their list where they are few.
struct TokenMask {
  std::vector<uint64_t> bits;
  std::vector<int32_t> tokens;  // in order; used when `bits` is empty
  bool may_end = false;         // the text is complete as it is

  bool none() const { return bits.empty() && tokens.empty(); }
  bool allows(int32_t token) const;
};

// How far one text has come. Values of one thread; only the automaton looks inside.
struct Progress {
  uint64_t generation = 0;
  int32_t configuration = -1;
  size_t num_tokens = 0;
};

// Thread-safe: shared by all texts of one grammar.
class Automaton {
 public:
  Automaton(Grammar grammar, std::shared_ptr<const Vocabulary> vocabulary);
  ~Automaton();

  // The mask after `tokens`, of which the first progress.num_tokens were seen before. A token without bytes ends the text.
  std::shared_ptr<const TokenMask> next(Progress& progress, std::span<const int32_t> tokens);
  // Whether all ways to begin a text were found within the limit of work: rules that call each other and may be empty can have
  // more than there is time for.
  bool start_is_whole();
  // Whether the grammar has exactly this text. For tests.
  bool matches(std::string_view text);

  struct Counts {
    size_t configurations = 0;
    size_t masks = 0;
    uint64_t generation = 0;
  };
  Counts counts() const;

 private:
  struct Item {
    int32_t state;
    int32_t stack;
    bool operator==(const Item&) const = default;
  };
  using Items = std::vector<Item>;
  struct Configuration;
  struct LocalMask;
  struct Frame {
    int32_t target;  // where to go on
    int32_t parent;  // the stack then
    bool operator==(const Frame&) const = default;
  };
  struct Stack {
    bool bottom = false;        // may be the outermost
    std::vector<Frame> frames;  // by target
    int depth = 0;
  };

  void clear();
  int32_t start();
  int32_t advance(int32_t configuration, std::string_view bytes);
  int32_t step(int32_t configuration, uint8_t byte);
  int32_t follow_edges(int32_t configuration, uint8_t byte);
  // Configuration of the states added since the last one, with all that they reach without a byte.
  void add(int32_t state, int32_t stack);
  int32_t close();
  void spend(size_t work);
  bool closure_is_spent();
  int32_t intern(Items items, bool accepts);
  int32_t intern_stack(bool bottom, std::vector<Frame> frames);
  int32_t push(int32_t target, int32_t stack);
  int32_t unite(int32_t a, int32_t b);
  int32_t resume(int32_t stack);

  std::shared_ptr<const TokenMask> mask(int32_t configuration);
  std::shared_ptr<const LocalMask> local_mask(int32_t configuration);
  // Visits the nodes below `top` that the grammar allows: visit(node, configuration).
  template <typename Visit>
  void walk(int32_t configuration, int32_t top, const Visit& visit);
  void allow(std::vector<uint64_t>& bits, int32_t token) const;

  const Grammar grammar_;
  const std::shared_ptr<const Vocabulary> vocabulary_;
  std::array<uint8_t, 256> class_of_{};
  size_t num_classes_ = 0;

  mutable std::mutex mutex_;
  uint64_t generation_ = 1;
  std::vector<Configuration> configurations_;
  std::unordered_map<uint64_t, std::vector<int32_t>> by_hash_;
  std::vector<Stack> stacks_;
  std::unordered_map<uint64_t, std::vector<int32_t>> stacks_by_hash_;
  std::unordered_map<uint64_t, int32_t> unions_;
  std::unordered_map<int32_t, int32_t> resumed_;
  size_t memory_ = 0;  // roughly, of all of these
  size_t mask_memory_ = 0;
  int64_t work_left_ = 0;  // of the walk under way

  // Of close().
  std::vector<int32_t> stack_of_;  // by state, -1 = not reached
  std::vector<int32_t> reached_;
  std::vector<int32_t> todo_;
  bool accepts_ = false;
  int64_t closure_left_;
  bool cut_short_ = false;
  std::vector<int32_t> path_;  // of walk(): the configuration at each depth
};

}  // namespace tutti::grammar
