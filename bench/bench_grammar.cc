// Time to find the tokens that a grammar allows, at a vocabulary of 128k tokens: while the grammar is new, and once it is known.
//   bench_grammar [TOKENS]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/json.h"
#include "grammar/automaton.h"
#include "grammar/json_schema.h"
#include "grammar/regex.h"

using namespace tutti;
using namespace tutti::grammar;

namespace {

// As vocabularies of text have them: bytes, punctuation of JSON in many combinations, words with and without a space before
// them, numbers, and pieces of other scripts.
std::vector<std::string> make_tokens(size_t count) {
  std::mt19937_64 random(1);
  const auto pick = [&](const auto& list) { return std::string(list[random() % std::size(list)]); };
  static const char* const onsets[] = {"",  "b", "c", "d",  "f",  "g",  "h",  "l", "m", "n", "p",
                                       "r", "s", "t", "st", "tr", "ch", "pl", "B", "S", "T"};
  static const char* const vowels[] = {"a", "e", "i", "o", "u", "ea", "io", "\xC3\xA9", "\xD0\xB0", "\xE4\xB8\xAD"};
  static const char* const codas[] = {"", "", "n", "r", "s", "t", "ng", "ll", "ck", "ment"};
  static const char* const marks[] = {"\"", ",", ":", "{", "}", "[", "]", " ", "\n", "  ", ".", "(", ")", "/", "-", "_", "\\"};
  std::set<std::string> known;
  for (int b = 0; b < 256; ++b) known.emplace(1, static_cast<char>(b));
  for (int n = 0; n < 1000; ++n) known.insert(std::to_string(n));
  while (known.size() < count / 16) {
    std::string token;
    for (size_t n = 1 + random() % 4; n > 0; --n) token += pick(marks);
    known.insert(token);
  }
  while (known.size() < count - 1) {
    std::string token = random() % 2 == 0 ? " " : "";
    for (size_t n = 1 + random() % 4; n > 0; --n) token += pick(onsets) + pick(vowels) + pick(codas);
    if (random() % 32 == 0) token += pick(marks);
    known.insert(token);
  }
  std::vector<std::string> tokens(known.begin(), known.end());
  tokens.emplace_back();
  return tokens;
}

double percentile(std::vector<double> values, double p) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(p * static_cast<double>(values.size() - 1))];
}

// Texts of up to 400 tokens, drawn evenly from what is allowed, their ends preferred after 100.
void run_text(Automaton& automaton, const Vocabulary& vocabulary, uint64_t seed, std::vector<double>& times) {
  std::mt19937_64 random(seed);
  Progress progress;
  std::vector<int32_t> tokens;
  while (tokens.size() < 400) {
    const auto begin = Clock::now();
    const auto mask = automaton.next(progress, tokens);
    times.push_back(std::chrono::duration<double, std::micro>(Clock::now() - begin).count());
    if (mask->none() || (mask->may_end && tokens.size() > 100)) return;
    int32_t next = -1;
    for (int32_t t = 0; tokens.size() > 100 && t < vocabulary.size() && next < 0; ++t) {
      const std::string_view text = vocabulary.bytes(t);
      if ((text == "\"" || text == "}" || text == "]") && mask->allows(t)) next = t;
    }
    while (next < 0) {
      const auto t = mask->bits.empty() ? mask->tokens[random() % mask->tokens.size()]
                                        : static_cast<int32_t>(random() % static_cast<uint64_t>(vocabulary.size()));
      if (mask->allows(t)) next = t;
    }
    tokens.push_back(next);
  }
}

void measure(const char* name, const Rules& rules, const std::shared_ptr<const Vocabulary>& vocabulary) {
  const auto begin = Clock::now();
  Automaton automaton(Grammar::from_bytes(compile(rules).to_bytes()), vocabulary);
  const double compiled = std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
  std::vector<double> first, later;
  run_text(automaton, *vocabulary, 1, first);
  for (uint64_t seed = 2; seed < 40; ++seed) run_text(automaton, *vocabulary, seed, seed < 20 ? first : later);
  for (const auto& [phase, times] : {std::pair("first 19 texts", &first), std::pair("next 20 texts", &later)}) {
    std::printf(
        "{\"name\": \"grammar_mask\", \"grammar\": \"%s\", \"phase\": \"%s\", \"vocab\": %ld, \"masks\": %zu, \"p50_us\": %.2f, "
        "\"p90_us\": %.2f, "
        "\"p99_us\": %.1f, \"max_us\": %.0f, \"compile_us\": %.0f}\n",
        name, phase, static_cast<long>(vocabulary->size()), times->size(), percentile(*times, 0.5), percentile(*times, 0.9),
        percentile(*times, 0.99), percentile(*times, 1.0), compiled);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const size_t count = argc > 1 ? static_cast<size_t>(std::atoll(argv[1])) : 128 * 1024;
  const auto begin = Clock::now();
  const auto vocabulary = std::make_shared<const Vocabulary>(make_tokens(count));
  std::printf("{\"name\": \"grammar_vocabulary\", \"vocab\": %zu, \"nodes\": %zu, \"build_ms\": %.0f}\n", count,
              vocabulary->nodes().size(), std::chrono::duration<double, std::milli>(Clock::now() - begin).count());
  measure("json_object", json_object_rules({}), vocabulary);
  measure(
      "schema",
      json_schema_rules(
          parse_json(R"({"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0},
    "email": {"type": "string", "format": "email"}, "tags": {"type": "array", "items": {"enum": ["red", "green", "blue"]}},
    "notes": {"type": "array", "items": {"type": "object", "properties": {"title": {"type": "string", "maxLength": 60}, "text": {"type": "string"}},
    "required": ["title", "text"]}}}, "required": ["name", "age", "tags", "notes"]})",
                     "schema"),
          {}),
      vocabulary);
  Rules regex;
  regex.declare("pattern");
  regex.define(0, parse_regex("(\\w+( \\w+)*\\. ){3,}", RegexMatch::kWhole));
  measure("regex", regex, vocabulary);
  return 0;
}
