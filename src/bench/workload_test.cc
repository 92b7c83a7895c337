#include "bench/workload.h"

#include <gtest/gtest.h>

#include <numeric>
#include <set>

#include "base/error.h"
#include "base/file.h"

namespace tutti {
namespace {

// Small letters are tokens, "ab" is one too: text made of tokens does not always come back as the same tokens.
class LetterTokenizer final : public Tokenizer {
 public:
  std::vector<TokenId> encode(std::string_view text, const EncodeOptions&) const override {
    std::vector<TokenId> ids;
    while (!text.empty()) {
      ids.push_back(text.starts_with("ab") ? 26 : text[0] - 'a');
      text.remove_prefix(text.starts_with("ab") ? 2 : 1);
    }
    return ids;
  }
  std::string decode(const std::vector<TokenId>& ids, bool) const override {
    std::string text;
    for (TokenId id : ids) text += token(id);
    return text;
  }
  int64_t vocab_size() const override { return 28; }
  std::string token(TokenId id) const override { return std::string(token_bytes(id)); }
  std::optional<TokenId> token_id(std::string_view) const override { return std::nullopt; }
  bool is_special(TokenId id) const override { return id == 27; }
  std::string_view token_bytes(TokenId id) const override {
    static constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyz";
    return id == 27 ? "<s>" : id == 26 ? "ab" : kLetters.substr(static_cast<size_t>(id), 1);
  }
  int leading_spaces_dropped() const override { return 0; }
};

TEST(Workload, RandomPromptsHaveTheLengthThatWasAskedFor) {
  const LetterTokenizer tokenizer;
  const WorkloadOptions options{.num_prompts = 50, .seed = 3, .random_input_len = 40, .random_output_len = 7, .random_prefix_len = 8};
  const auto prompts = make_prompts(options, tokenizer);
  ASSERT_EQ(prompts.size(), 50u);
  std::set<std::string> texts;
  for (const BenchPrompt& prompt : prompts) {
    EXPECT_EQ(prompt.num_tokens, 48);
    EXPECT_EQ(tokenizer.encode(prompt.text, {}).size(), 48u);
    EXPECT_EQ(prompt.output_len, 7);
    EXPECT_EQ(prompt.text.substr(0, 6), prompts[0].text.substr(0, 6));
    EXPECT_EQ(prompt.text.find('<'), std::string::npos);
    texts.insert(prompt.text);
  }
  EXPECT_EQ(texts.size(), 50u);
  EXPECT_EQ(make_prompts(options, tokenizer)[9].text, prompts[9].text);
}

TEST(Workload, LengthsVaryWithinTheRange) {
  const LetterTokenizer tokenizer;
  const auto prompts = make_prompts({.num_prompts = 200, .random_input_len = 40, .random_output_len = 20, .random_range_ratio = 0.5}, tokenizer);
  std::set<int64_t> inputs;
  for (const BenchPrompt& prompt : prompts) {
    inputs.insert(prompt.num_tokens);
    EXPECT_TRUE(prompt.num_tokens >= 20 && prompt.num_tokens <= 60) << prompt.num_tokens;
    EXPECT_TRUE(prompt.output_len >= 10 && prompt.output_len <= 30) << prompt.output_len;
  }
  EXPECT_GT(inputs.size(), 20u);
}

TEST(Workload, PrefixesRepeat) {
  const LetterTokenizer tokenizer;
  WorkloadOptions options{.dataset = "prefix_repetition", .num_prompts = 40};
  options.prefix_len = 30;
  options.suffix_len = 10;
  options.num_prefixes = 4;
  std::set<std::string> prefixes;
  for (const BenchPrompt& prompt : make_prompts(options, tokenizer)) prefixes.insert(prompt.text.substr(0, 28));
  EXPECT_EQ(prefixes.size(), 4u);
}

TEST(Workload, FilesOfConversationsAndOfLines) {
  const LetterTokenizer tokenizer;
  const std::string sharegpt = ::testing::TempDir() + "/conversations.json";
  write_file(sharegpt, R"([{"conversations": [{"value": "question"}, {"value": "answers"}]}, {"conversations": [{"value": "x"}]},
                           {"conversations": [{"value": "a"}, {"value": "tooshort"}]}])");
  const auto one = make_prompts({.dataset = "sharegpt", .path = sharegpt, .num_prompts = 2}, tokenizer);
  ASSERT_EQ(one.size(), 2u);  // the only one that fits, twice
  EXPECT_EQ(one[0].text, "question");
  EXPECT_EQ(one[0].output_len, 7);
  EXPECT_EQ(make_prompts({.dataset = "sharegpt", .path = sharegpt, .num_prompts = 2, .oversample = false}, tokenizer).size(), 1u);

  const std::string lines = ::testing::TempDir() + "/prompts.jsonl";
  write_file(lines, "{\"prompt\": \"abc\", \"output_tokens\": 5}\n\n{\"prompt\": \"defg\"}\n");
  const auto two = make_prompts({.dataset = "custom", .path = lines, .num_prompts = 2, .shuffle = false}, tokenizer);
  EXPECT_EQ(two[0].output_len, 5);
  EXPECT_EQ(two[0].num_tokens, 2);
  EXPECT_EQ(two[1].output_len, 256);
  write_file(lines, "{\"prompt\": 3}\n");
  EXPECT_THROW(make_prompts({.dataset = "custom", .path = lines}, tokenizer), IoError);
  EXPECT_THROW(make_prompts({.dataset = "custom"}, tokenizer), ConfigError);
  EXPECT_THROW(make_prompts({.dataset = "sonnet"}, tokenizer), ConfigError);
}

TEST(Arrivals, KeepTheRateAndTheShape) {
  EXPECT_EQ(make_arrivals({}, 3), (std::vector<double>{0, 0, 0}));
  for (double burstiness : {0.2, 1.0, 50.0}) {
    const auto times = make_arrivals({.rate = 20, .burstiness = burstiness, .seed = 1}, 2000);
    EXPECT_NEAR(times.back(), 100, 1e-6);
    double squares = 0;
    for (size_t i = 1; i < times.size(); ++i) {
      const double gap = (times[i] - times[i - 1]) * 20;
      ASSERT_GE(gap, 0);
      squares += (gap - 1) * (gap - 1);
    }
    // A gamma distribution of that shape and mean 1 has the variance 1 / shape.
    EXPECT_NEAR(squares / 2000, 1 / burstiness, 0.25 / burstiness);
  }
}

TEST(Arrivals, RampsUp) {
  const auto times = make_arrivals({.burstiness = 1000, .ramp_up = "linear", .ramp_start = 1, .ramp_end = 10}, 100);
  EXPECT_GT(times[1] - times[0], 8 * (times[99] - times[98]));
  EXPECT_THROW(make_arrivals({.ramp_up = "linear"}, 3), ConfigError);
  EXPECT_THROW(make_arrivals({.ramp_up = "cubic", .ramp_start = 1, .ramp_end = 2}, 3), ConfigError);
  EXPECT_THROW(make_arrivals({.rate = 1, .burstiness = 0}, 3), ConfigError);
}

}  // namespace
}  // namespace tutti
