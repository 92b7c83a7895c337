// For tests and fuzzing: a small vocabulary with tokens that cross borders, and texts drawn from a grammar token by token.
#pragma once

#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "grammar/automaton.h"

namespace tutti::grammar {

// Every byte, then pieces of JSON and of words that go over structural borders, halves of characters, one token that is
// there twice, and at the end one without bytes (the end of a text).
inline std::vector<std::string> test_tokens() {
  std::vector<std::string> tokens;
  for (int b = 0; b < 256; ++b) tokens.emplace_back(1, static_cast<char>(b));
  for (const char* t :
       {"{\"",      "\":",      "\": \"", "\",\"",        "\", \"", "\"}",  "\"},{\"", "}}",    "]}", "[{",   "[[",  "],[",
        "true",     "false",    "null",   "tru",          "e,",     "12",   "345",     "0.",    "1}", "-1",   "e1",  "name",
        "age",      "na",       "me\":",  "ab",           "abc",    "bc",   "aaaa",    "ba",    " a", "\n  ", ",\n", "  ",
        "\xC3\xA9", "\xE2\x82", "\xAC\"", "\xF0\x9F\x98", "\\u00",  "\\\"", "\\",      "\\n\"", "ab", ""}) {
    tokens.emplace_back(t);
  }
  return tokens;
}

inline std::shared_ptr<const Vocabulary> test_vocabulary() {
  static const auto vocabulary = std::make_shared<const Vocabulary>(test_tokens());
  return vocabulary;
}

// Tokens are drawn evenly until the text ends; past `soft_limit` tokens, those that close something come first. Nothing when
// the text has not ended after `hard_limit` tokens.
inline std::optional<std::string> draw_text(Automaton& automaton, const Vocabulary& vocabulary, std::mt19937_64& random,
                                            size_t soft_limit = 60, size_t hard_limit = 5000) {
  const auto end = static_cast<int32_t>(vocabulary.size() - 1);
  Progress progress;
  std::vector<int32_t> tokens;
  std::string out;
  while (tokens.size() < hard_limit) {
    const auto mask = automaton.next(progress, tokens);
    std::vector<int32_t> allowed;
    for (int32_t t = 0; t < end; ++t) {
      if (mask->allows(t)) allowed.push_back(t);
    }
    if (mask->may_end && (allowed.empty() || tokens.size() > soft_limit || random() % 4 == 0)) return out;
    if (allowed.empty()) return std::nullopt;
    int32_t next = allowed[random() % allowed.size()];
    if (tokens.size() > soft_limit) {
      for (const int32_t closing : {'"', '}', ']', ')', '0'}) {
        if (mask->allows(closing)) {
          next = closing;
          break;
        }
      }
    }
    out += vocabulary.bytes(next);
    tokens.push_back(next);
  }
  return std::nullopt;
}

}  // namespace tutti::grammar
