#include "models/generation_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace tutti {
namespace {

TEST(GenerationConfig, ReadsWhatIsThere) {
  const Json json = {{"temperature", 0.6}, {"top_k", 20}, {"eos_token_id", {1, 2}}, {"do_sample", true}};
  const GenerationConfig config = parse_generation_config(json, "generation_config.json");
  EXPECT_EQ(config.temperature, 0.6);
  EXPECT_EQ(config.top_k, 20);
  EXPECT_EQ(config.top_p, std::nullopt);
  EXPECT_EQ(config.eos_token_ids, (std::vector<int32_t>{1, 2}));
}

TEST(GenerationConfig, WrongKindsNameTheKey) {
  EXPECT_THAT([] { parse_generation_config({{"top_p", "high"}}, "generation_config.json"); },
              testing::ThrowsMessage<ConfigError>(testing::HasSubstr("\"top_p\" must be a number")));
}

TEST(GenerationConfig, NoFileSaysNothing) {
  const GenerationConfig config = read_generation_config("/nonexistent/model.gguf");
  EXPECT_EQ(config.temperature, std::nullopt);
  EXPECT_TRUE(config.eos_token_ids.empty());
}

}  // namespace
}  // namespace tutti
