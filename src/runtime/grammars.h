// The automata of the grammars that requests bring, shared by all requests of the same one, so that what one has learnt of
// it is there for the next. Worker thread only.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>

#include "grammar/automaton.h"
#include "protocol/sampling_params.h"

namespace tutti {

// The tokens' bytes, as grammar::Vocabulary::to_bytes() writes them; asked for once, with the first grammar.
using VocabularySource = std::function<std::string()>;

class Grammars {
 public:
  explicit Grammars(VocabularySource source) : source_(std::move(source)) {}

  // Throws IoError on bytes that are no grammar.
  std::shared_ptr<grammar::Automaton> find(const GrammarBytes& grammar);

 private:
  struct Known {
    std::shared_ptr<grammar::Automaton> automaton;
    uint64_t used = 0;
  };
  void forget_oldest();

  VocabularySource source_;
  std::shared_ptr<const grammar::Vocabulary> vocabulary_;
  std::unordered_map<std::string, Known> known_;
  uint64_t clock_ = 0;
};

}  // namespace tutti
