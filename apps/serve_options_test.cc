// Every flag that vLLM's users know is sorted: it works, it is a hint, or it is an error that says what to do.
#include "apps/serve_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <set>

#include "apps/flag_parser.h"
#include "apps/flag_table.h"
#include "base/error.h"
#include "base/file.h"

namespace tutti {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string error_of(const std::vector<std::string>& arguments) {
  try {
    parse_serve_options(arguments);
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

TEST(FlagTable, NamesAreUniqueAndEveryRefusalSaysWhy) {
  std::set<std::string_view> names;
  for (const FlagRule& rule : flag_rules()) {
    EXPECT_TRUE(names.insert(rule.name).second) << rule.name;
    EXPECT_TRUE(rule.name.starts_with("--")) << rule.name;
    EXPECT_EQ(rule.why.empty(), rule.state == FlagState::kWorks) << rule.name;
  }
  EXPECT_GE(names.size(), 130u);
}

TEST(FlagTable, WhatWorksIsBoundAndNothingElseIsUnknown) {
  const std::vector<std::string> known = serve_flag_names();
  for (const FlagRule& rule : flag_rules()) {
    if (rule.name == "--config") continue;  // read before the others
    EXPECT_THAT(known, Contains(std::string(rule.name))) << rule.name;
    if (rule.kind == FlagKind::kSwitch) {
      EXPECT_THAT(known, Contains("--no-" + std::string(rule.name.substr(2))));
    }
  }
}

TEST(FlagTable, EveryErrorIsAnErrorAndEveryHintIsANote) {
  for (const FlagRule& rule : flag_rules()) {
    if (rule.state == FlagState::kWorks) continue;
    std::vector<std::string> arguments = {"M", std::string(rule.name)};
    if (rule.kind != FlagKind::kSwitch) arguments.push_back("some-value");
    if (rule.state == FlagState::kError) {
      EXPECT_THAT(error_of(arguments), HasSubstr(std::string(rule.name) + " cannot be had")) << rule.name;
    } else if (rule.harmless != "on") {
      EXPECT_EQ(parse_serve_options(arguments).notes.size(), 1u) << rule.name;
    }
  }
}

TEST(FlagTable, HarmlessValuesPassInSilence) {
  for (const FlagRule& rule : flag_rules()) {
    if (rule.state == FlagState::kWorks) continue;
    std::vector<std::string> arguments = {"M"};
    if (rule.kind == FlagKind::kSwitch) {
      arguments.push_back("--no-" + std::string(rule.name.substr(2)));
    } else if (!rule.harmless.empty()) {
      arguments.push_back(std::string(rule.name));
      arguments.push_back(std::string(rule.harmless.substr(0, rule.harmless.find('|'))));
    }
    EXPECT_TRUE(parse_serve_options(arguments).notes.empty()) << rule.name;
  }
}

TEST(ServeOptions, TheArticlesCommandLine) {
  const ServeOptions o = parse_serve_options({"model", "-tp", "2", "-pp=2", "--max_model_len", "32k", "--max-num-seqs", "64",
                                              "--no-enable-prefix-caching", "--served-model-name", "a", "b", "--nnodes", "2",
                                              "--node-rank", "1", "--master-addr", "10.0.0.1"});
  EXPECT_EQ(o.engine.model, "model");
  EXPECT_EQ(o.engine.parallel.world_size(), 4);
  EXPECT_EQ(o.engine.scheduler.max_model_len, 32000);
  EXPECT_EQ(o.engine.scheduler.max_num_seqs, 64);
  EXPECT_FALSE(o.engine.cache.enable_prefix_caching);
  EXPECT_THAT(o.engine.served_model_names, ElementsAre("a", "b"));
  EXPECT_EQ(o.launch.nnodes, 2);
  EXPECT_EQ(o.launch.node_rank, 1);
  EXPECT_THAT(o.cluster_flags, Contains(Fact{"--tensor-parallel-size", "2"}));
}

TEST(ServeOptions, TheModelMayBeAFlag) {
  EXPECT_EQ(parse_serve_options({"--model", "m"}).engine.model, "m");
  EXPECT_THAT(error_of({"m", "--model", "n"}), HasSubstr("two models"));
  EXPECT_THAT(error_of({}), HasSubstr("which model?"));
}

TEST(ServeOptions, UnknownFlagsSuggestTheNearest) {
  EXPECT_EQ(error_of({"m", "--tensor-paralel-size", "2"}), "unknown flag --tensor-paralel-size; near: --tensor-parallel-size");
  EXPECT_THAT(error_of({"m", "--zzzzzz"}), HasSubstr("--help lists all"));
  EXPECT_THAT(error_of({"m", "n"}), HasSubstr("unexpected argument \"n\""));
}

TEST(ServeOptions, TheApiIsOpenToOthersOnlyWithAKey) {
  ::unsetenv("VLLM_API_KEY");
  ::unsetenv("TUTTI_API_KEY");
  EXPECT_EQ(parse_serve_options({"m"}).server.http.host, "127.0.0.1");
  EXPECT_EQ(parse_serve_options({"m", "--api-key", "k"}).server.http.host, "0.0.0.0");
  EXPECT_EQ(parse_serve_options({"m", "--host", "10.0.0.1"}).server.http.host, "10.0.0.1");
  ::setenv("VLLM_API_KEY", "secret", 1);
  EXPECT_THAT(parse_serve_options({"m"}).server.api_keys, ElementsAre("secret"));
  ::unsetenv("VLLM_API_KEY");
}

TEST(ServeOptions, BadValuesNameTheFlag) {
  EXPECT_THAT(error_of({"m", "--port", "99999"}), HasSubstr("--port 99999"));
  EXPECT_THAT(error_of({"m", "--port", "http"}), HasSubstr("--port"));
  EXPECT_THAT(error_of({"m", "--max-model-len", "many"}), HasSubstr("--max-model-len many"));
  EXPECT_THAT(error_of({"m", "--scheduling-policy", "lifo"}), HasSubstr("fcfs or priority"));
  EXPECT_THAT(error_of({"m", "--override-generation-config", "{"}), HasSubstr("--override-generation-config"));
}

TEST(ServeOptions, AConfigFileComesBeforeTheCommandLine) {
  const std::string path = ::testing::TempDir() + "/tutti-flags.yaml";
  write_file(path, "model: m\nport: 9001\ntensor-parallel-size: 2\napi-key: [a, b]\nenable-prefix-caching: false\n");
  const ServeOptions o = parse_serve_options({"--config", path, "--port", "9002"});
  EXPECT_EQ(o.engine.model, "m");
  EXPECT_EQ(o.server.http.port, 9002);
  EXPECT_EQ(o.engine.parallel.tensor_parallel_size, 2);
  EXPECT_THAT(o.server.api_keys, ElementsAre("a", "b"));
  EXPECT_FALSE(o.engine.cache.enable_prefix_caching);
  EXPECT_THAT(error_of({"m", "--config", "/no/such.yaml"}), HasSubstr("--config /no/such.yaml"));
}

TEST(ParseCount, UnitsOfThousandsAndOf1024) {
  EXPECT_EQ(parse_count("1k", "--x"), 1000);
  EXPECT_EQ(parse_count("1K", "--x"), 1024);
  EXPECT_EQ(parse_count("25.6k", "--x"), 25600);
  EXPECT_EQ(parse_count("4G", "--x"), int64_t{4} << 30);
  EXPECT_EQ(parse_count("-1", "--x"), -1);
  EXPECT_THROW(parse_count("1.5", "--x"), ConfigError);
  EXPECT_THROW(parse_count("1kk", "--x"), ConfigError);
  EXPECT_THROW(parse_count("", "--x"), ConfigError);
}

}  // namespace
}  // namespace tutti
