// Any bytes as a tokenizer.json and, after a NUL, a text: an error, or ids and text that fit together.
#include "text/tokenizer_json.h"

#include "base/check.h"
#include "base/error.h"
#include "text/detokenizer.h"
#include "text/unicode.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t nul = input.find('\0');
  const std::string_view text = nul == input.npos ? " Hello 123 wörld\n" : input.substr(nul + 1);
  try {
    const auto tokenizer = tutti::tokenizer_from_json(tutti::parse_sorted_json(input.substr(0, nul), "fuzz"), {}, "fuzz");
    for (const bool special : {true, false}) {
      const auto ids = tokenizer->encode(text, {.add_special_tokens = special, .parse_special_tokens = special});
      CHECK(tutti::valid_utf8(tokenizer->decode(ids, special)));
      tutti::Detokenizer detokenizer(*tokenizer, {}, {.stop = {"ell"}, .skip_special_tokens = special});
      for (const tutti::TokenId id : ids) CHECK(tutti::valid_utf8(detokenizer.push(id)));
      CHECK(tutti::valid_utf8(detokenizer.finish()));
    }
  } catch (const tutti::Error&) {
  }
  return 0;
}
