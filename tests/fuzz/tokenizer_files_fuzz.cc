// Any bytes as a tiktoken rank file, a tekken.json or the tokenizer keys of GGUF metadata.
#include "base/check.h"
#include "base/error.h"
#include "text/tiktoken.h"
#include "text/unicode.h"

namespace {

std::unique_ptr<tutti::Tokenizer> load(std::string_view input) {
  if (!input.starts_with('{')) return tutti::tokenizer_from_ranks(input, "fuzz");
  if (input.find("tokenizer.ggml.model") == input.npos) return tutti::tokenizer_from_tekken(input, "fuzz");
  return tutti::Tokenizer::from_gguf(tutti::parse_json(input, "fuzz"));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  try {
    const auto tokenizer = load(input);
    const auto ids = tokenizer->encode(input.substr(0, 2000));
    for (const tutti::TokenId id : ids) CHECK(id >= 0 && id < tokenizer->vocab_size());
    tokenizer->decode(ids);
  } catch (const tutti::Error&) {
  }
  return 0;
}
