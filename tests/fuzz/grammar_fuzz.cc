// Schemas, patterns and written grammars: any bytes become an automaton, from which texts are then drawn token by token, or
// an InvalidGrammar. Masks are never wrong: what they allow, the automaton takes.
//
// The first byte says what the rest is: 's' schema, 'r' and 'p' regular expression (whole, search within a JSON string),
// 'g' grammar, 'b' compiled bytes.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "base/error.h"
#include "grammar/ebnf.h"
#include "grammar/json_schema.h"
#include "grammar/regex.h"
#include "grammar/testing.h"

using namespace tutti;
using namespace tutti::grammar;

namespace {

Grammar read(char kind, std::string_view source) {
  Rules rules;
  switch (kind) {
    case 's':
      return compile(json_schema_rules(parse_json(source, "schema", 64), {}));
    case 'r':
    case 'p':
      rules.declare("pattern");
      rules.define(0, kind == 'r' ? parse_regex(source, RegexMatch::kWhole) : parse_regex(source, RegexMatch::kSearch, Encoding::kJsonString));
      return compile(rules);
    case 'g':
      return compile(parse_ebnf(source));
    default:
      return Grammar::from_bytes(source);
  }
}

void draw(const Grammar& grammar, uint64_t seed, bool compiled_here) {
  Automaton automaton(grammar, test_vocabulary());
  std::mt19937_64 random(seed);
  for (int i = 0; i < 3; ++i) {
    const auto text = draw_text(automaton, *test_vocabulary(), random, 20, 60);
    if (!text) continue;
    CHECK(automaton.matches(*text));
    if (!compiled_here) continue;
    // A text that ended can be told from one that has not: without its last byte it is the beginning of a text.
    Progress progress;
    std::vector<int32_t> bytes;
    for (size_t b = 0; b + 1 < text->size(); ++b) bytes.push_back(static_cast<uint8_t>((*text)[b]));
    if (!text->empty()) CHECK(automaton.next(progress, bytes)->allows(static_cast<uint8_t>(text->back())));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0 || size > 8192) return 0;
  const char kind = static_cast<char>(data[0]);
  const std::string_view source(reinterpret_cast<const char*>(data) + 1, size - 1);
  try {
    const Grammar grammar = read(kind, source);
    const bool compiled = kind == 's' || kind == 'r' || kind == 'p' || kind == 'g';
    if (compiled) CHECK(Grammar::from_bytes(grammar.to_bytes()) == grammar);
    draw(grammar, size, compiled);
  } catch (const InvalidGrammar& e) {
    CHECK(e.what()[0] != '\0');
  } catch (const IoError& e) {
    CHECK(e.what()[0] != '\0');
  }
  return 0;
}
