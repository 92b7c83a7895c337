#include "apps/argv.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace tutti {
namespace {

using Arguments = std::vector<std::string>;

TEST(NormalizeArguments, ShortNamesOfSeveralLetters) {
  EXPECT_EQ(normalize_arguments({"M", "-tp", "2", "-pp=3", "-dpl", "1", "-asc", "4", "-q", "fp8"}),
            (Arguments{"M", "--tensor-parallel-size", "2", "--pipeline-parallel-size", "3", "--data-parallel-size-local",
                       "1", "--api-server-count", "4", "--quantization", "fp8"}));
  EXPECT_EQ(normalize_arguments({"-O3"}), (Arguments{"--optimization-level", "3"}));
  EXPECT_EQ(normalize_arguments({"-O", "2"}), (Arguments{"--optimization-level", "2"}));
}

TEST(NormalizeArguments, UnderscoresInNamesButNotInValues) {
  EXPECT_EQ(normalize_arguments({"--max_model_len", "1_000", "--served-model-name=my_model"}),
            (Arguments{"--max-model-len", "1_000", "--served-model-name", "my_model"}));
}

TEST(NormalizeArguments, NegativeNumbersAreValues) {
  EXPECT_EQ(normalize_arguments({"--max-model-len", "-1", "--x", "-.5"}), (Arguments{"--max-model-len", "-1", "--x", "-.5"}));
}

TEST(NormalizeArguments, DottedPartsBecomeJson) {
  EXPECT_EQ(normalize_arguments({"--eplb_config.window_size", "1000", "-cc.mode=3", "M"}),
            (Arguments{"M", "--eplb-config", R"({"window_size":1000})", "--compilation-config", R"({"mode":3})"}));
  EXPECT_EQ(normalize_arguments({"--compilation-config.pass.fuse", "true", "--compilation-config", R"({"mode":3})"}),
            (Arguments{"--compilation-config", R"({"mode":3,"pass":{"fuse":true}})"}));
  EXPECT_EQ(normalize_arguments({"--x.name", "plain text"}), (Arguments{"--x", R"({"name":"plain text"})"}));
  EXPECT_THROW(normalize_arguments({"--x.y", "1", "--x.y.z", "2"}), ConfigError);
  EXPECT_THROW(normalize_arguments({"--x.y"}), ConfigError);
  EXPECT_THROW(normalize_arguments({"--x", "[1]", "--x.y", "2"}), ConfigError);
}

TEST(NormalizeArguments, NothingChangesAfterTwoDashes) {
  EXPECT_EQ(normalize_arguments({"--a_b", "--", "-tp", "--c_d"}), (Arguments{"--a-b", "--", "-tp", "--c_d"}));
}

}  // namespace
}  // namespace tutti
