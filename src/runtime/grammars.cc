#include "runtime/grammars.h"

#include <algorithm>

#include "base/error.h"

namespace tutti {
namespace {

// Those beyond are forgotten, the one that was asked for longest ago first; requests that use one keep it.
constexpr size_t kMaxKnown = 16;

}  // namespace

std::shared_ptr<grammar::Automaton> Grammars::find(const GrammarBytes& grammar) {
  if (const auto known = known_.find(grammar.bytes()); known != known_.end()) {
    known->second.used = ++clock_;
    return known->second.automaton;
  }
  if (vocabulary_ == nullptr) {
    if (!source_) throw ConfigError("a request has a grammar, but this rank knows no vocabulary");
    vocabulary_ = std::make_shared<const grammar::Vocabulary>(grammar::Vocabulary::from_bytes(source_()));
  }
  const auto automaton = std::make_shared<grammar::Automaton>(grammar::Grammar::from_bytes(grammar.bytes()), vocabulary_);
  known_.emplace(grammar.bytes(), Known{automaton, ++clock_});
  if (known_.size() > kMaxKnown) forget_oldest();
  return automaton;
}

void Grammars::forget_oldest() {
  known_.erase(std::min_element(known_.begin(), known_.end(), [](const auto& a, const auto& b) { return a.second.used < b.second.used; }));
}

}  // namespace tutti
