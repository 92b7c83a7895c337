#include "cluster/token.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "base/error.h"
#include "base/file.h"

namespace tutti {
namespace {

constexpr const char* kToken = "tutti1-5f0c9be2-c41a77d0e3f25b68c41a77d0e3f25b68";

// A state folder of its own for each test, and no token in the environment.
class TokenTest : public ::testing::Test {
 protected:
  TokenTest() : folder_(std::filesystem::path(::testing::TempDir()) / ("tutti-token-" + std::to_string(::getpid()))) {
    ::setenv("TUTTI_HOME", folder_.c_str(), 1);
    ::unsetenv("TUTTI_CLUSTER_TOKEN");
  }
  ~TokenTest() override {
    ::unsetenv("TUTTI_CLUSTER_TOKEN");
    std::filesystem::remove_all(folder_);
  }
  std::filesystem::path folder_;
};

mode_t mode_of(const std::string& path) {
  struct stat info{};
  ::stat(path.c_str(), &info);
  return info.st_mode & 0777;
}

TEST_F(TokenTest, GeneratedTokensHave128BitsAndAreDistinct) {
  const ClusterToken a = ClusterToken::generate();
  EXPECT_THAT(a.text(), ::testing::MatchesRegex("tutti1-[0-9a-f]+-[0-9a-f]+"));
  EXPECT_EQ(a.text().size(), std::string(kToken).size());
  EXPECT_EQ(a.text().substr(7, 8), a.cluster_id());
  EXPECT_NE(a.text(), ClusterToken::generate().text());
}

TEST_F(TokenTest, ShortOrCutTokensAreRefused) {
  EXPECT_THROW(ClusterToken::parse("secret"), ConfigError);
  EXPECT_THROW(ClusterToken::parse(""), ConfigError);
  EXPECT_THROW(ClusterToken::parse("tutti1-5f0c9be2-c41a77d0"), ConfigError);
  EXPECT_THROW(ClusterToken::parse("tutti1-5f0c9be2-C41A77D0E3F25B68C41A77D0E3F25B68"), ConfigError);
  EXPECT_EQ(ClusterToken::parse(std::string(" ") + kToken + "\n").cluster_id(), "5f0c9be2");
  EXPECT_EQ(ClusterToken::parse("0123456789abcdef0123456789abcdef-mine").cluster_id().size(), 8u);
}

TEST_F(TokenTest, TheHeadMakesItsTokenOnceAndKeepsItPrivate) {
  const ClusterToken first = head_token({});
  EXPECT_EQ(head_token({}).text(), first.text());
  EXPECT_EQ(mode_of(token_path()), 0600u);
  EXPECT_EQ(mode_of(folder_), 0700u);
}

TEST_F(TokenTest, AGivenTokenComesFirstAndIsNotKept) {
  EXPECT_EQ(head_token({.token = kToken}).text(), kToken);
  EXPECT_FALSE(file_exists(token_path()));
  const std::string file = state_folder() + "/given";
  write_file(file, std::string(kToken) + "\n");
  EXPECT_EQ(head_token({.token_file = file}).text(), kToken);
  ::setenv("TUTTI_CLUSTER_TOKEN", kToken, 1);
  EXPECT_EQ(worker_token({}, "10.0.0.1")->text(), kToken);
  ::setenv("TUTTI_CLUSTER_TOKEN", "short", 1);
  EXPECT_THROW(worker_token({}, "10.0.0.1"), ConfigError);
}

TEST_F(TokenTest, AWorkerRemembersTheTokenOfEachHead) {
  EXPECT_EQ(worker_token({}, "10.0.0.1"), std::nullopt);
  EXPECT_TRUE(keep_joined_token("10.0.0.1", ClusterToken::parse(kToken)));
  EXPECT_FALSE(keep_joined_token("10.0.0.1", ClusterToken::parse(kToken)));
  EXPECT_EQ(worker_token({}, "10.0.0.1")->text(), kToken);
  EXPECT_EQ(worker_token({}, "10.0.0.2"), std::nullopt);
  EXPECT_EQ(mode_of(state_folder() + "/joined-10.0.0.1"), 0600u);
}

}  // namespace
}  // namespace tutti
