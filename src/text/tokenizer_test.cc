// The tiny tokenizers of tests/tokenizer/data against what the Python packages made of the same texts, and damaged
// files, which must give one clear error.
#include "text/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>

#include "base/error.h"
#include "base/file.h"
#include "text/detokenizer.h"
#include "text/tokenizer_json.h"

namespace tutti {
namespace {

using ::testing::HasSubstr;

const std::string kData = "tests/tokenizer/data/";

std::unique_ptr<Tokenizer> load(const std::string& name) {
  if (name.starts_with("gguf")) return Tokenizer::from_gguf(read_json_file(kData + name + "/metadata.json"));
  return Tokenizer::from_folder(kData + name);
}

std::string stream(const Tokenizer& tokenizer, const std::vector<TokenId>& ids) {
  Detokenizer detokenizer(tokenizer, {}, {});
  std::string out;
  for (const TokenId id : ids) out += detokenizer.push(id);
  return out + detokenizer.finish();
}

class TokenizerFixture : public ::testing::TestWithParam<const char*> {};

TEST_P(TokenizerFixture, GivesTheIdsAndTextOfTheReference) {
  const auto tokenizer = load(GetParam());
  const Json expected = read_json_file(kData + GetParam() + "/expected.json");
  // The reference of these is a bare model: it adds no BOS and takes control tokens in the text for text.
  const bool plain = expected.value("plain", false);
  const EncodeOptions options{.add_special_tokens = !plain, .parse_special_tokens = !plain};
  ASSERT_GT(expected["samples"].size(), 40u);
  for (const Json& sample : expected["samples"]) {
    const auto text = sample["text"].get<std::string>();
    const auto ids = sample["ids"].get<std::vector<TokenId>>();
    EXPECT_EQ(tokenizer->encode(text, options), ids) << text;
    EXPECT_EQ(tokenizer->decode(ids, true), sample["decoded"].get<std::string>()) << text;
    EXPECT_EQ(stream(*tokenizer, ids), sample["decoded"].get<std::string>()) << text;
  }
}

INSTANTIATE_TEST_SUITE_P(All, TokenizerFixture,
                         ::testing::Values("byte_level", "other_regex", "metaspace", "gguf_gpt2", "gguf_llama",
                                           "unigram", "unigram_json", "folding", "bpe", "tekken"),
                         [](const auto& info) { return std::string(info.param); });

TEST(Tokenizer, KnowsItsTokens) {
  const auto tokenizer = load("byte_level");
  EXPECT_EQ(tokenizer->vocab_size(), 703);
  EXPECT_EQ(tokenizer->bos_id(), 0);
  EXPECT_EQ(tokenizer->eos_id(), 1);
  EXPECT_EQ(tokenizer->token_id("<|eos|>"), 1);
  EXPECT_EQ(tokenizer->token(1), "<|eos|>");
  EXPECT_TRUE(tokenizer->is_special(1));
  EXPECT_FALSE(tokenizer->is_special(2));
  EXPECT_FALSE(tokenizer->is_special(-1));
  const auto space = tokenizer->token_id("Ġ");
  ASSERT_TRUE(space);
  EXPECT_EQ(tokenizer->token_bytes(*space), " ");
  EXPECT_EQ(tokenizer->token_id("no such token"), std::nullopt);
  EXPECT_EQ(tokenizer->token(-5), "");
  EXPECT_EQ(tokenizer->token(1 << 30), "");
  EXPECT_EQ(tokenizer->decode({-1, 1 << 30}), "");
}

TEST(Tokenizer, SpecialTokensAreTextWhenTheCallerSaysSo) {
  const auto tokenizer = load("byte_level");
  const EncodeOptions as_text{.add_special_tokens = false, .parse_special_tokens = false};
  const std::vector<TokenId> ids = tokenizer->encode("<|eos|>", as_text);
  EXPECT_GT(ids.size(), 1u);
  EXPECT_EQ(tokenizer->decode(ids), "<|eos|>");
  EXPECT_EQ(tokenizer->encode("<|eos|>", {.add_special_tokens = false}), std::vector<TokenId>{1});
  EXPECT_EQ(tokenizer->decode({1}, false), "<|eos|>");
  EXPECT_EQ(tokenizer->decode({1}, true), "");
}

TEST(Tokenizer, SentencePieceAddsBosAndParsesControlTokens) {
  const auto tokenizer = load("bpe");
  const std::vector<TokenId> ids = tokenizer->encode("a</s>");
  ASSERT_GE(ids.size(), 3u);
  EXPECT_EQ(ids.front(), 1);
  EXPECT_EQ(ids.back(), 2);
  EXPECT_EQ(tokenizer->decode(ids), "a");
}

TEST(Tokenizer, InvalidBytesAreReplaced) {
  for (const char* name : {"byte_level", "bpe", "unigram"}) {
    const auto tokenizer = load(name);
    EXPECT_EQ(tokenizer->encode("a\xff\xc3"), tokenizer->encode("a\xef\xbf\xbd\xef\xbf\xbd")) << name;
  }
}

// One million letters in one word, and in words, must not take quadratic time.
TEST(Tokenizer, LongTextsTakeLinearTime) {
  for (const char* name : {"byte_level", "other_regex", "metaspace", "gguf_llama", "unigram", "bpe"}) {
    const auto tokenizer = load(name);
    for (const std::string& text : {std::string(1'000'000, 'a'), std::string(1'000'000, ' '),
                                    std::string(1'000'000, '\n'), std::string(1'000'000, '<')}) {
      const std::clock_t start = std::clock();
      const size_t tokens = tokenizer->encode(text).size();
      const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
      EXPECT_GT(tokens, 0u);
      EXPECT_LT(seconds, 5.0) << name << " on '" << text[0] << "'";  // a sanitiser build is ten times slower
    }
  }
}

std::string error_of(const std::string& tokenizer_json) {
  try {
    tokenizer_from_json(parse_sorted_json(tokenizer_json, "x"), {}, "x");
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

TEST(TokenizerErrors, NameThePartOfTokenizerJson) {
  EXPECT_THAT(error_of("[]"), HasSubstr("expected an object"));
  EXPECT_THAT(error_of("{}"), HasSubstr("\"model\" is missing"));
  EXPECT_THAT(error_of(R"({"model": {"type": "WordPiece"}})"), HasSubstr("\"WordPiece\" is not supported"));
  EXPECT_THAT(error_of(R"({"model": {"vocab": {"a": -1}, "merges": []}})"), HasSubstr("has the id -1"));
  EXPECT_THAT(error_of(R"({"model": {"vocab": {"a": 3000000000}, "merges": []}})"), HasSubstr("has the id 3000000000"));
  EXPECT_THAT(error_of(R"({"model": {"vocab": {"a": 0, "b": 0}, "merges": []}})"), HasSubstr("belongs to both"));
  EXPECT_THAT(error_of(R"({"model": {"vocab": {"a": 0}, "merges": ["a b"]}})"), HasSubstr("merges[0] names"));
  EXPECT_THAT(error_of(R"({"model": {"vocab": {"a": 0}, "merges": [7]}})"), HasSubstr("merges[0] is not a pair"));
  EXPECT_THAT(error_of(R"({"model": {"vocab": {"a": 0}, "merges": []}, "normalizer": {"type": "Nmt"}})"),
              HasSubstr("normalizer \"Nmt\" is not supported"));
  EXPECT_THAT(error_of(R"({"model": {"vocab": {}, "merges": []}, "normalizer": {"type": "Precompiled",
                           "precompiled_charsmap": "!"}})"),
              HasSubstr("precompiled_charsmap is not base64"));
  EXPECT_THAT(error_of(R"({"model": {"vocab": {}, "merges": []}, "normalizer": {"type": "Precompiled",
                           "precompiled_charsmap": "AAAA"}})"),
              HasSubstr("precompiled_charsmap of 3 bytes is damaged"));
  EXPECT_THAT(error_of(R"({"model": {"type": "Unigram", "vocab": []}})"), HasSubstr("vocab is empty"));
  EXPECT_THAT(error_of(R"({"model": {"type": "Unigram", "vocab": [["a"]]}})"),
              HasSubstr("vocab[0] must be [token, log probability]"));
  EXPECT_THAT(error_of(R"({"model": {"type": "Unigram", "vocab": [["a", -1]]}})"), HasSubstr("\"unk_id\" is missing"));
  EXPECT_THAT(error_of(R"({"model": {"type": "Unigram", "unk_id": 1, "vocab": [["a", -1]]}})"),
              HasSubstr("\"unk_id\" is 1, expected 0 to 0"));
  EXPECT_THAT(error_of(R"({"model": {"vocab": {}, "merges": []}, "pre_tokenizer": {"type": "Split",
                           "pattern": {"Regex": "(a"}, "behavior": "Isolated"}})"),
              HasSubstr("does not compile at offset"));
  EXPECT_THAT(error_of(R"({"model": {"vocab": {}, "merges": []}, "decoder": {"type": "CTC"}})"),
              HasSubstr("decoder \"CTC\" is not supported"));
  EXPECT_THAT(error_of(R"({"model": {"vocab": {}, "merges": []}, "added_tokens": [{"id": 9999999, "content": "x"}]})"),
              HasSubstr("expected 0 to"));
}

std::string error_of_folder(const std::string& file, const std::string& contents) {
  const std::string folder = ::testing::TempDir() + "/tokenizer_errors";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  write_file(folder + "/" + file, contents);
  std::string error = "no error";
  try {
    Tokenizer::from_folder(folder);
  } catch (const Error& e) {
    error = e.what();
  }
  std::filesystem::remove_all(folder);
  return error;
}

TEST(TokenizerErrors, NameTheFile) {
  EXPECT_THAT(error_of_folder("readme", ""), HasSubstr("no tokenizer in"));
  EXPECT_THAT(error_of_folder("tokenizer.json", "{"), HasSubstr("not valid JSON at byte"));
  EXPECT_THAT(error_of_folder("tokenizer.model", ""), HasSubstr("no pieces"));
  EXPECT_THAT(error_of_folder("tokenizer.model", "\x0a\xff\xff\x03zzz"), HasSubstr("not a SentencePiece model"));
  EXPECT_THAT(error_of_folder("x.tiktoken", "IQ== 0\n"), HasSubstr("has no rank"));
  EXPECT_THAT(error_of_folder("x.tiktoken", "IQ== 0\n?? 1\n"), HasSubstr("line 2: expected \"base64 rank\""));
  EXPECT_THAT(error_of_folder("tekken.json", "{}"), HasSubstr("\"config\" is missing"));
  std::string model = read_file(kData + "unigram/tokenizer.model");
  EXPECT_THAT(error_of_folder("tokenizer.model", model.substr(0, model.size() - 3)), HasSubstr("bytes where"));
}

TEST(TokenizerErrors, GgufNamesTheKey) {
  const auto error = [](const char* json) -> std::string {
    try {
      Tokenizer::from_gguf(parse_json(json, "x"));
    } catch (const Error& e) {
      return e.what();
    }
    return "no error";
  };
  EXPECT_THAT(error("{}"), HasSubstr("tokenizer.ggml.model"));
  EXPECT_THAT(error(R"({"tokenizer.ggml.model": "rwkv"})"), HasSubstr("known: gpt2, llama"));
  EXPECT_THAT(error(R"({"tokenizer.ggml.model": "gpt2"})"), HasSubstr("tokenizer.ggml.tokens is missing"));
  EXPECT_THAT(error(R"({"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.tokens": [], "tokenizer.ggml.pre": "zz"})"),
              HasSubstr("known: llama-bpe"));
  EXPECT_THAT(error(R"({"tokenizer.ggml.model": "llama", "tokenizer.ggml.tokens": ["a"],
                        "tokenizer.ggml.scores": []})"),
              HasSubstr("scores does not have one entry"));
}

}  // namespace
}  // namespace tutti
