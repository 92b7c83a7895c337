// Any bytes as a SentencePiece tokenizer.model: an error, or ids inside the vocabulary and text that is UTF-8.
#include "text/sentencepiece.h"

#include "base/check.h"
#include "base/error.h"
#include "text/detokenizer.h"
#include "text/unicode.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  try {
    const auto model = tutti::SentencePieceModel::parse(input, "fuzz");
    const tutti::SentencePieceTokenizer tokenizer(model, true, true, "fuzz");
    // The model's own bytes are a text that its pieces occur in.
    for (const std::string_view text : {std::string_view(" Hello  123 wörld\n\u3000ab"), input.substr(0, 2000)}) {
      const auto ids = tokenizer.encode(text, {.parse_special_tokens = text.size() % 2 == 0});
      for (const tutti::TokenId id : ids) CHECK(id >= 0 && id < tokenizer.vocab_size());
      CHECK(tutti::valid_utf8(tutti::repair_utf8(tokenizer.decode(ids, true))));
      tutti::Detokenizer detokenizer(tokenizer, {}, {.stop = {"ell"}});
      for (const tutti::TokenId id : ids) CHECK(tutti::valid_utf8(detokenizer.push(id)));
    }
  } catch (const tutti::Error&) {
  }
  return 0;
}
