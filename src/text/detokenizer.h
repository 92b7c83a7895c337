// Turns one request's growing token ids into text pieces: never half a character, never text that may still become a
// stop string. One per request; used by one thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "text/tokenizer.h"

namespace tutti {

class Detokenizer {
 public:
  struct Options {
    std::vector<std::string> stop;            // stop strings
    bool include_stop_str_in_output = false;
    bool skip_special_tokens = true;
    int min_tokens = 0;                       // stop strings do not count before that many generated tokens
  };

  // `prompt` gives the context that decoding of the first token needs (a space before a word, a half character).
  Detokenizer(const Tokenizer& tokenizer, const std::vector<TokenId>& prompt, Options options);
  ~Detokenizer();

  // Adds one generated token; returns the text that is now certain (maybe empty). Once stopped() is true nothing more
  // is returned.
  std::string push(TokenId id);
  // The rest, at the end of the generation: held-back text; an unfinished character becomes U+FFFD.
  std::string finish();

  bool stopped() const;                         // a stop string was found
  const std::string& stop_string() const;       // which one
  const std::string& text() const;              // all that was returned so far

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tutti
