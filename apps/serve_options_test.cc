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

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

std::string error_of(const std::vector<std::string>& arguments) {
  try {
    parse_serve_options(arguments);
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

TEST(ServeOptions, StepsOfCpusAreSmallUnlessPromptsMustStayWhole) {
  const auto tokens = [](std::vector<std::string> more) {
    more.insert(more.begin(), {"M", "--device", "cpu"});
    return parse_serve_options(more).engine.scheduler.max_num_batched_tokens;
  };
  EXPECT_EQ(tokens({}), 256);
  EXPECT_EQ(tokens({"--max-num-batched-tokens", "2048"}), 2048);
  EXPECT_EQ(tokens({"--no-enable-chunked-prefill"}), 2048);
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

// docs/compat.md has each flag under the heading of its state, with its reason.
TEST(FlagTable, TheDocsSayTheSame) {
  const std::string page = read_file("docs/compat.md");
  const size_t works = page.find("## Flags that work");
  const size_t hints = page.find("## Hints");
  const size_t errors = page.find("## Errors");
  const size_t end = page.find("## Variables");
  ASSERT_TRUE(works < hints && hints < errors && errors < end && end != std::string::npos);
  const std::string parts[] = {page.substr(works, hints - works), page.substr(hints, errors - hints), page.substr(errors, end - errors)};
  for (const FlagRule& rule : flag_rules()) {
    for (const FlagState state : {FlagState::kWorks, FlagState::kHint, FlagState::kError}) {
      const bool there = parts[static_cast<int>(state)].find("`" + std::string(rule.name) + "`") != std::string::npos;
      EXPECT_EQ(there, rule.state == state) << rule.name;
    }
    EXPECT_NE(page.find(rule.why), std::string::npos) << rule.name;
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

TEST(ServeOptions, WhatCrossesBetweenRanks) {
  const ServeOptions plain = parse_serve_options({"m"});
  EXPECT_EQ(plain.engine.comm.dtype, "auto");
  EXPECT_EQ(plain.engine.comm.transport, "tcp");
  EXPECT_EQ(plain.engine.comm.port_min, 0);
  const ServeOptions o = parse_serve_options({"m", "-tp", "2", "-pp", "2", "--comm-dtype", "fp8", "--comm-transport", "ucx", "--tcp-streams",
                                              "4", "--data-ports", "30000-30010", "--network-interface", "eth1", "--tensor-split",
                                              "2,1", "--pipeline-layer-partition", "9,7"});
  EXPECT_EQ(o.engine.comm.dtype, "fp8");
  EXPECT_EQ(o.engine.comm.transport, "ucx");
  EXPECT_EQ(o.engine.comm.tcp_streams, 4);
  EXPECT_EQ(o.engine.comm.port_min, 30000);
  EXPECT_EQ(o.engine.comm.port_max, 30010);
  EXPECT_EQ(o.interface, "eth1");
  EXPECT_THAT(o.engine.parallel.tensor_split, ElementsAre(2, 1));
  EXPECT_THAT(o.engine.parallel.pipeline_layer_partition, ElementsAre(9, 7));
  // Nodes that type the same command must agree on these.
  for (const Fact& flag : {Fact{"--comm-dtype", "fp8"}, Fact{"--tensor-split", "2,1"}, Fact{"--pipeline-layer-partition", "9,7"}}) {
    EXPECT_THAT(o.cluster_flags, Contains(flag));
  }
  EXPECT_EQ(parse_serve_options({"m", "--data-ports", "30000"}).engine.comm.port_max, 30000);
  EXPECT_THAT(error_of({"m", "--comm-dtype", "int4"}), HasSubstr("--comm-dtype int4: expected auto, int8 or fp8"));
  EXPECT_THAT(error_of({"m", "--comm-transport", "mpi"}), HasSubstr("--comm-transport mpi: expected tcp or ucx"));
  EXPECT_THAT(error_of({"m", "--tcp-streams", "65"}), HasSubstr("--tcp-streams 65: expected 1 to 64"));
  for (const char* ports : {"0-9", "9-1", "1-70000", "a-b", "1-2-3"}) {
    EXPECT_THAT(error_of({"m", "--data-ports", ports}), HasSubstr(std::string("--data-ports ") + ports)) << ports;
  }
}

TEST(ServeOptions, TheModelMayBeAFlag) {
  EXPECT_EQ(parse_serve_options({"--model", "m"}).engine.model, "m");
  EXPECT_THAT(error_of({"m", "--model", "n"}), HasSubstr("two models"));
  EXPECT_THAT(error_of({}), HasSubstr("which model?"));
}

TEST(ServeOptions, ValuesThatAreMissingOrOfAnotherType) {
  EXPECT_EQ(error_of({"m", "--port", "abc"}), "--port abc: expected a number");
  EXPECT_EQ(error_of({"m", "--port"}), "--port needs a value");
  EXPECT_EQ(error_of({"m", "--served-model-name"}), "--served-model-name needs a value");
}

TEST(GenerateOptions, SamplingThatCannotBe) {
  for (const auto& [flag, value] : {std::pair{"--temperature", "-1"}, {"--top-p", "0"}, {"--top-p", "1.5"}, {"--top-k", "-5"}, {"--min-p", "2"},
                                    {"--max-tokens", "0"}}) {
    EXPECT_THAT([&] { parse_generate_options({"m", "--prompt", "x", flag, value}); },
                ThrowsMessage<ConfigError>(HasSubstr(std::string(flag) + " " + value + ": expected "))) << flag;
  }
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

TEST(ServeOptions, Fp8WeightsAreForGpus) {
  EXPECT_TRUE(parse_serve_options({"m", "--device", "cpu", "--batch-invariant"}).engine.batch_invariant);
  EXPECT_THAT(error_of({"m", "--device", "cpu", "--fp8-weight-only"}), HasSubstr("--fp8-weight-only --device cpu"));
}

TEST(ServeOptions, WhatPrometheusCannotReadIsNoPrefix) {
  for (const char* prefix : {"a b\n", "1a", "\xC3\xA9", "a-b:"}) EXPECT_THAT(error_of({"m", "--metrics-prefix", prefix}), HasSubstr("--metrics-prefix")) << prefix;
  EXPECT_EQ(error_of({"m", "--metrics-prefix", "my_1:"}), "no error");
}

TEST(ServeOptions, AControlPortIsAPort) {
  for (const char* port : {"-1", "0", "65536"}) EXPECT_THAT(error_of({"m", "--master-port", port}), HasSubstr("expected 1 to 65535")) << port;
}

TEST(ServeOptions, AnEmptyKeyIsNoKey) { EXPECT_THAT(error_of({"m", "--api-key", ""}), HasSubstr("--api-key")); }

TEST(ServeOptions, VariablesOfScripts) {
  const std::vector<std::pair<const char*, const char*>> variables = {
      {"VLLM_ENGINE_READY_TIMEOUT_S", "77"}, {"VLLM_HOST_IP", "10.1.2.3"},          {"VLLM_LOGGING_LEVEL", "DEBUG"},
      {"VLLM_PP_LAYER_PARTITION", "3,2"},    {"VLLM_HTTP_TIMEOUT_KEEP_ALIVE", "5"}, {"VLLM_KEEP_ALIVE_ON_ENGINE_DEATH", "1"},
      {"VLLM_BATCH_INVARIANT", "1"}};
  for (const auto& [name, value] : variables) ::setenv(name, value, 1);
  const ServeOptions o = parse_serve_options({"m", "-pp", "2"});
  const ServeOptions flags = parse_serve_options({"m", "-pp", "2", "--ready-timeout", "5", "--network-interface", "eth0",
                                                  "--pipeline-layer-partition", "1,4"});
  ::setenv("VLLM_HTTP_TIMEOUT_KEEP_ALIVE", "0", 1);
  EXPECT_THAT(error_of({"m"}), HasSubstr("VLLM_HTTP_TIMEOUT_KEEP_ALIVE=0"));
  ::unsetenv("VLLM_HTTP_TIMEOUT_KEEP_ALIVE");
  EXPECT_THAT(error_of({"m"}), HasSubstr("VLLM_PP_LAYER_PARTITION=3,2: --pipeline-layer-partition has 2 numbers"));
  for (const auto& [name, value] : variables) ::unsetenv(name);
  EXPECT_THAT(o.notes, ElementsAre("VLLM_HOST_IP=10.1.2.3 stands for --network-interface 10.1.2.3/32",
                                   "VLLM_PP_LAYER_PARTITION=3,2 stands for --pipeline-layer-partition 3,2"));
  EXPECT_THAT(flags.notes, ElementsAre());
  EXPECT_EQ(o.ready_timeout_s, 77);
  EXPECT_EQ(o.interface, "10.1.2.3/32");
  EXPECT_TRUE(o.log.debug);
  EXPECT_THAT(o.engine.parallel.pipeline_layer_partition, ElementsAre(3, 2));
  EXPECT_EQ(o.server.http.idle_timeout, std::chrono::seconds(5));
  EXPECT_TRUE(o.server.keep_alive_on_engine_failure);
  EXPECT_TRUE(o.engine.batch_invariant);
  EXPECT_EQ(flags.ready_timeout_s, 5);
  EXPECT_EQ(flags.interface, "eth0");
  EXPECT_THAT(flags.engine.parallel.pipeline_layer_partition, ElementsAre(1, 4));
}

// A working flag is read: its value arrives where it belongs.
TEST(ServeOptions, EveryWorkingFlagArrives) {
  const ServeOptions o = parse_serve_options(
      {"m", "--host", "h", "--port", "1", "--uds", "/u", "--api-key", "k1", "k2", "--served-model-name", "n", "--root-path", "/r",
       "--allowed-origins", R"(["http://a"])", "--allowed-methods", R"(["GET"])", "--allowed-headers", R"(["x"])", "--allow-credentials",
       "--ssl-keyfile", "key", "--ssl-certfile", "cert", "--ssl-ca-certs", "ca", "--ssl-cert-reqs", "2", "--ssl-ciphers", "c",
       "--enable-log-requests", "--enable-log-outputs", "--max-log-len", "9", "--enable-request-id-headers",
       "--enable-force-include-usage", "--enable-prompt-tokens-details", "--chat-template", "{{t}}", "--default-chat-template-kwargs",
       R"({"a": 1})", "--default-chat-template-kwargs.b", "2", "--trust-request-chat-template", "--response-role", "bot",
       "--enable-auto-tool-choice", "--tool-call-parser", "hermes", "--return-tokens-as-token-ids", "--headless", "--shutdown-timeout", "3",
       "--tokenizer", "t", "--dtype", "float16", "--seed", "5", "--max-model-len", "25.6k", "--max-logprobs", "-1",
       "--generation-config", "vllm", "--override-generation-config", R"({"top_k": 3})", "--revision", "rev", "--load-format", "dummy",
       "-tp", "3", "-pp", "2", "-n", "2", "-r", "1", "--master-addr", "a", "--master-port", "7", "--distributed-timeout-seconds", "4.5",
       "--block-size", "32", "--gpu-memory-utilization", "0.5", "--kv-cache-memory-bytes", "1G", "--num-gpu-blocks-override", "99",
       "--kv-cache-dtype", "float16", "--no-enable-prefix-caching", "--kv-cache-metrics", "--kv-cache-metrics-sample", "0.5", "--max-num-batched-tokens", "4k", "--max-num-seqs", "17",
       "--no-enable-chunked-prefill", "--long-prefill-token-threshold", "100", "--scheduling-policy", "priority", "--stream-interval", "4",
       "--disable-log-stats"});
  const ServerConfig& s = o.server;
  EXPECT_EQ(s.http.host, "h");
  EXPECT_EQ(s.http.port, 1);
  EXPECT_EQ(s.http.uds, "/u");
  EXPECT_THAT(s.api_keys, ElementsAre("k1", "k2"));
  EXPECT_THAT(o.engine.served_model_names, ElementsAre("n"));
  EXPECT_EQ(s.root_path, "/r");
  EXPECT_THAT(s.cors.allowed_origins, ElementsAre("http://a"));
  EXPECT_THAT(s.cors.allowed_methods, ElementsAre("GET"));
  EXPECT_THAT(s.cors.allowed_headers, ElementsAre("x"));
  EXPECT_TRUE(s.cors.allow_credentials);
  EXPECT_EQ(s.http.tls.key_file + s.http.tls.cert_file + s.http.tls.ca_certs + s.http.tls.ciphers, "keycertcac");
  EXPECT_EQ(s.http.tls.cert_reqs, 2);
  EXPECT_TRUE(s.log_requests && s.log_outputs && s.enable_request_id_headers && s.enable_force_include_usage &&
              s.enable_prompt_tokens_details && s.trust_request_chat_template && s.enable_auto_tool_choice &&
              s.return_tokens_as_token_ids && s.priority_policy);
  EXPECT_EQ(s.max_log_len, 9);
  EXPECT_EQ(o.chat_template, "{{t}}");
  EXPECT_EQ(s.default_chat_template_kwargs, (Json{{"a", 1}, {"b", 2}}));
  EXPECT_EQ(s.response_role, "bot");
  EXPECT_EQ(s.tool_call_parser, "hermes");
  EXPECT_TRUE(o.launch.headless);
  EXPECT_EQ(o.shutdown_timeout_s, 3);
  EXPECT_EQ(o.tokenizer, "t");
  EXPECT_EQ(o.engine.dtype, "float16");
  EXPECT_EQ(o.engine.seed, 5u);
  EXPECT_EQ(o.engine.scheduler.max_model_len, 25600);
  EXPECT_EQ(s.max_logprobs, -1);
  EXPECT_EQ(o.generation_config, "vllm");
  EXPECT_EQ(o.override_generation_config, (Json{{"top_k", 3}}));
  EXPECT_EQ(o.revision, "rev");
  EXPECT_EQ(o.engine.load_format, "dummy");
  EXPECT_EQ(o.engine.parallel.tensor_parallel_size, 3);
  EXPECT_EQ(o.engine.parallel.pipeline_parallel_size, 2);
  EXPECT_EQ(o.launch.nnodes, 2);
  EXPECT_EQ(o.launch.node_rank, 1);
  EXPECT_EQ(o.launch.master_addr, "a");
  EXPECT_EQ(o.launch.master_port, 7);
  EXPECT_EQ(o.engine.collective_timeout_s, 4.5);
  EXPECT_EQ(o.engine.cache.block_size, 32);
  EXPECT_EQ(o.engine.cache.gpu_memory_utilization, 0.5);
  EXPECT_EQ(o.engine.cache.kv_cache_memory_bytes, int64_t{1} << 30);
  EXPECT_EQ(o.engine.cache.num_blocks_override, 99);
  EXPECT_EQ(o.engine.cache.kv_cache_dtype, "float16");
  EXPECT_TRUE(o.engine.cache.kv_cache_metrics);
  EXPECT_EQ(o.engine.cache.kv_cache_metrics_sample, 0.5);
  EXPECT_FALSE(o.engine.cache.enable_prefix_caching);
  EXPECT_EQ(o.engine.scheduler.max_num_batched_tokens, 4000);
  EXPECT_EQ(o.engine.scheduler.max_num_seqs, 17);
  EXPECT_FALSE(o.engine.scheduler.enable_chunked_prefill);
  EXPECT_EQ(o.engine.scheduler.long_prefill_token_threshold, 100);
  EXPECT_TRUE(o.engine.scheduler.priority_policy);
  EXPECT_EQ(s.stream_interval, 4);
  EXPECT_FALSE(o.log_stats);
}

TEST(ServeOptions, RequestsMayHaveADeadlineByDefault) {
  EXPECT_EQ(parse_serve_options({"m"}).server.request_timeout, std::nullopt);
  EXPECT_EQ(parse_serve_options({"m", "--request-timeout", "2.5"}).server.request_timeout, std::chrono::milliseconds(2500));
  EXPECT_THAT(error_of({"m", "--request-timeout", "-1"}), HasSubstr("--request-timeout -1"));
}

TEST(ServeOptions, BadValuesNameTheFlag) {
  EXPECT_THAT(error_of({"m", "--port", "99999"}), HasSubstr("--port 99999"));
  EXPECT_THAT(error_of({"m", "--port", "http"}), HasSubstr("--port"));
  EXPECT_THAT(error_of({"m", "--max-model-len", "many"}), HasSubstr("--max-model-len many"));
  EXPECT_THAT(error_of({"m", "--scheduling-policy", "lifo"}), HasSubstr("fcfs or priority"));
  EXPECT_THAT(error_of({"m", "--override-generation-config", "{"}), HasSubstr("--override-generation-config"));
}

TEST(ServeOptions, NumbersThatNobodyCanServeAreRefused) {
  const std::vector<std::pair<const char*, const char*>> cases = {
      {"--max-num-seqs", "0"},         {"--max-num-batched-tokens", "0"}, {"--block-size", "0"},      {"--max-queue-size", "0"},
      {"--gpu-memory-utilization", "1.5"}, {"--kv-cache-memory-bytes", "0"}, {"--num-gpu-blocks-override", "-1"},
      {"--cpu-threads", "-1"},         {"--long-prefill-token-threshold", "-1"}, {"--ready-timeout", "1e12"},
      {"--recovery-wait", "-1"},       {"--shutdown-timeout", "-5"},      {"--distributed-timeout-seconds", "-1"},
      {"--stream-interval", "0"},      {"--max-logprobs", "-2"},          {"--ssl-cert-reqs", "3"}};
  for (const auto& [flag, value] : cases) EXPECT_THAT(error_of({"m", flag, value}), HasSubstr(std::string(flag) + " ")) << flag;
}

TEST(ServeOptions, HalfATlsConfigurationIsAnError) {
  for (const char* flag : {"--ssl-keyfile", "--ssl-ca-certs", "--ssl-ciphers"}) {
    EXPECT_THAT(error_of({"m", flag, "x"}), HasSubstr("without --ssl-certfile")) << flag;
  }
  EXPECT_THAT(error_of({"m", "--ssl-cert-reqs", "2"}), HasSubstr("without --ssl-certfile"));
  EXPECT_THAT(error_of({"m", "--ssl-certfile", "c", "--ssl-cert-reqs", "2"}), HasSubstr("without --ssl-ca-certs"));
  EXPECT_EQ(error_of({"m", "--ssl-certfile", "c"}), "no error");
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
  EXPECT_THAT(error_of({"m", "--config", "/no/such.yaml"}),
              AllOf(HasSubstr("--config /no/such.yaml: expected a YAML file of flags"), HasSubstr("No such file")));
  write_file(path, "enable_log_requests: True\nenable-chunked-prefill: FALSE\nserved-model-name: \"true\"\n"
                   "override-generation-config: {top_k: 3, temperature: 0.5}\nmax-model-len: 32k\n"
                   "default-chat-template-kwargs:\n  enable_thinking: false\n  names: [a, \"1\"]\n");
  const ServeOptions more = parse_serve_options({"m", "--config", path});
  EXPECT_TRUE(more.server.log_requests);
  EXPECT_FALSE(more.engine.scheduler.enable_chunked_prefill);
  EXPECT_THAT(more.engine.served_model_names, ElementsAre("true"));
  EXPECT_EQ(more.override_generation_config, (Json{{"top_k", 3}, {"temperature", 0.5}}));
  EXPECT_EQ(more.server.default_chat_template_kwargs, (Json{{"enable_thinking", false}, {"names", {"a", "1"}}}));
  EXPECT_EQ(more.engine.scheduler.max_model_len, 32000);
  write_file(path, "port:\n");
  EXPECT_THAT(error_of({"m", "--config", path}), HasSubstr("--port has no value"));
  write_file(path, "prot: 1\n");
  EXPECT_THAT(error_of({"m", "--config", path}), HasSubstr("--config " + path + ": unknown flag --prot; near: --port"));
  EXPECT_THAT(error_of({"m", "--prot", "1"}), ::testing::StartsWith("unknown flag --prot"));
}

TEST(ServeOptions, WithoutAModelTheCommandIsNamed) {
  EXPECT_EQ(error_of({}), "which model? tutti serve MODEL, a folder or a .gguf file");
  EXPECT_THAT([] { parse_generate_options({}); }, ThrowsMessage<ConfigError>(HasSubstr("which model? tutti generate MODEL")));
}

TEST(ParseCount, UnitsOfThousandsAndOf1024) {
  EXPECT_EQ(parse_count("1T", "--x"), int64_t{1} << 40);
  EXPECT_EQ(parse_count("2t", "--x"), 2'000'000'000'000);
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
