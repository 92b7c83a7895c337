#include "server/openai_types.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace tutti {
namespace {

class OpenAiTypes : public ::testing::Test {
 protected:
  OpenAiTypes() {
    model.served_names = {"m"};
    model.max_model_len = 1000;
    model.vocab_size = 260;
  }
  ApiRequest completion(const std::string& body) {
    return parse_completion_request(parse_request_body(body), config, model);
  }
  ApiRequest chat(const std::string& fields) {
    return parse_chat_request(
        parse_request_body(R"({"messages":[{"role":"user","content":"hi"}],)" + fields + "}"), config, model);
  }
  // The field that the error names; "" when there is none, "accepted" when the request is fine.
  std::string completion_error(const std::string& fields) {
    try {
      completion(R"({"prompt":"hi",)" + fields + "}");
    } catch (const InvalidRequest& e) {
      EXPECT_NE(std::string(e.what()).find(e.param()), std::string::npos) << e.what();
      return e.param();
    }
    return "accepted";
  }
  std::string chat_error(const std::string& fields) {
    try {
      chat(fields);
    } catch (const InvalidRequest& e) {
      return e.param();
    }
    return "accepted";
  }

  ServerConfig config;
  ModelInfo model;
};

TEST_F(OpenAiTypes, DefaultsOfACompletion) {
  const ApiRequest r = completion(R"({"prompt":"hi"})");
  EXPECT_EQ(std::get<std::string>(r.prompts.at(0)), "hi");
  EXPECT_EQ(r.sampling, SamplingParams());
  EXPECT_EQ(r.max_tokens, 16);
  EXPECT_EQ(r.n, 1);
  EXPECT_FALSE(r.stream);
  EXPECT_FALSE(r.echo);
  EXPECT_TRUE(r.add_special_tokens);
  EXPECT_TRUE(r.skip_special_tokens);
}

TEST_F(OpenAiTypes, DefaultsOfAChat) {
  const ApiRequest r = chat(R"("stream":false)");
  EXPECT_EQ(r.max_tokens, std::nullopt);
  EXPECT_FALSE(r.add_special_tokens);
  EXPECT_TRUE(r.chat->add_generation_prompt);
  EXPECT_EQ(chat(R"("max_tokens":5)").max_tokens, 5);
  EXPECT_EQ(chat(R"("max_tokens":5,"max_completion_tokens":7)").max_tokens, 7);
}

TEST_F(OpenAiTypes, TheModelsSamplingDefaultsComeBeforeTheApis) {
  model.defaults = GenerationDefaults::from_json(
      Json::parse(
          R"({"temperature":0.6,"top_p":0.9,"top_k":20,"min_p":0.1,"repetition_penalty":1.1,"max_new_tokens":64})"),
      "generation_config.json");
  SamplingParams s = completion(R"({"prompt":"hi"})").sampling;
  EXPECT_EQ(s.temperature, 0.6);
  EXPECT_EQ(s.top_p, 0.9);
  EXPECT_EQ(s.top_k, 20);
  EXPECT_EQ(s.min_p, 0.1);
  EXPECT_EQ(s.repetition_penalty, 1.1);
  EXPECT_EQ(model.defaults.max_tokens, 64);
  s = completion(R"({"prompt":"hi","temperature":0,"top_p":1,"top_k":-1,"min_p":0,"repetition_penalty":1})")
          .sampling;
  EXPECT_EQ(s, [] {
    SamplingParams greedy;
    greedy.temperature = 0;
    return greedy;
  }());
  EXPECT_THROW(GenerationDefaults::from_json(Json::parse(R"({"top_p":"x"})"), "file"), ConfigError);
}

TEST_F(OpenAiTypes, EverySamplingFieldArrives) {
  const ApiRequest r = completion(R"({"prompt":"hi","temperature":0.5,"top_p":0.8,"top_k":7,"min_p":0.05,
    "repetition_penalty":1.2,"frequency_penalty":0.3,"presence_penalty":-0.4,"seed":42,"max_tokens":9,"min_tokens":2,
    "ignore_eos":true,"stop_token_ids":[5,6],"logit_bias":{"7":200,"8":-1.5},"allowed_token_ids":[1,2],
    "logprobs":3,"prompt_logprobs":2,"n":4,"stop":["a","b"],"bad_words":["c"],"include_stop_str_in_output":true,
    "skip_special_tokens":false,"truncate_prompt_tokens":10,"echo":true,"cache_salt":"s","request_id":"r-1",
    "return_token_ids":true,"return_tokens_as_token_ids":true,"add_special_tokens":false,"user":"u","best_of":4})");
  const SamplingParams& s = r.sampling;
  EXPECT_EQ(s.temperature, 0.5);
  EXPECT_EQ(s.top_p, 0.8);
  EXPECT_EQ(s.top_k, 7);
  EXPECT_EQ(s.min_p, 0.05);
  EXPECT_EQ(s.repetition_penalty, 1.2);
  EXPECT_EQ(s.frequency_penalty, 0.3);
  EXPECT_EQ(s.presence_penalty, -0.4);
  EXPECT_EQ(s.seed, 42u);
  EXPECT_EQ(s.min_tokens, 2);
  EXPECT_TRUE(s.ignore_eos);
  EXPECT_EQ(s.stop_token_ids, (std::vector<int32_t>{5, 6}));
  EXPECT_EQ(s.logit_bias, (std::vector<std::pair<int32_t, float>>{{7, 100.0f}, {8, -1.5f}}));
  EXPECT_EQ(s.allowed_token_ids, (std::vector<int32_t>{1, 2}));
  EXPECT_EQ(s.logprobs, 3);
  EXPECT_EQ(s.prompt_logprobs, 2);
  EXPECT_EQ(r.max_tokens, 9);
  EXPECT_EQ(r.n, 4);
  EXPECT_EQ(r.stop, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(r.bad_words, (std::vector<std::string>{"c"}));
  EXPECT_TRUE(r.include_stop_str_in_output && r.echo && r.return_token_ids && r.tokens_as_ids);
  EXPECT_FALSE(r.skip_special_tokens || r.add_special_tokens);
  EXPECT_EQ(r.truncate_prompt_tokens, 10);
  EXPECT_EQ(r.cache_salt, "s");
  EXPECT_EQ(r.request_id, "r-1");
}

TEST_F(OpenAiTypes, ATemperatureIsGreedyOrANumberToDivideBy) {
  EXPECT_EQ(completion(R"({"prompt":"a","temperature":0})").sampling.temperature, 0.0);
  EXPECT_EQ(completion(R"({"prompt":"a","temperature":1e-300})").sampling.temperature, 0.01);
  EXPECT_EQ(completion(R"({"prompt":"a","temperature":0.02})").sampling.temperature, 0.02);
  model.defaults.temperature = 1e-9;
  EXPECT_EQ(completion(R"({"prompt":"a"})").sampling.temperature, 0.01);
}

TEST_F(OpenAiTypes, UsageThatTheServerForcesMayBeContinuous) {
  const std::string body = R"({"prompt":"a","stream":true,"stream_options":{"continuous_usage_stats":true}})";
  EXPECT_FALSE(completion(body).include_usage || completion(body).continuous_usage);
  config.enable_force_include_usage = true;
  EXPECT_TRUE(completion(body).include_usage && completion(body).continuous_usage);
}

TEST_F(OpenAiTypes, PromptsInAllForms) {
  using Ids = std::vector<int32_t>;
  EXPECT_EQ(std::get<Ids>(completion(R"({"prompt":[1,2,3]})").prompts.at(0)), (Ids{1, 2, 3}));
  const ApiRequest strings = completion(R"({"prompt":["a","b"]})");
  EXPECT_EQ(strings.prompts.size(), 2u);
  const ApiRequest lists = completion(R"({"prompt":[[1],[2,3]]})");
  EXPECT_EQ(std::get<Ids>(lists.prompts.at(1)), (Ids{2, 3}));
  const ApiRequest mixed = completion(R"({"prompt":["a",[2,3]]})");
  EXPECT_EQ(mixed.prompts.size(), 2u);
  for (const char* bad :
       {R"({"prompt":[]})", R"({"prompt":[1,"a"]})", R"({"prompt":[260]})", R"({"prompt":[-1]})",
        R"({"prompt":[1.5]})", R"({"prompt":5})", R"({"prompt":null})", R"({})", R"({"prompt":[[]]})"}) {
    EXPECT_THROW(completion(bad), InvalidRequest) << bad;
  }
}

TEST_F(OpenAiTypes, ErrorsNameTheField) {
  const std::vector<std::pair<const char*, const char*>> cases = {
      {R"("temperature":-1)", "temperature"},
      {R"("temperature":"hot")", "temperature"},
      {R"("temperature":1e999)", ""},
      {R"("top_p":0)", "top_p"},
      {R"("top_p":1.1)", "top_p"},
      {R"("top_k":-2)", "top_k"},
      {R"("top_k":1.5)", "top_k"},
      {R"("min_p":2)", "min_p"},
      {R"("presence_penalty":3)", "presence_penalty"},
      {R"("frequency_penalty":-3)", "frequency_penalty"},
      {R"("repetition_penalty":0)", "repetition_penalty"},
      {R"("seed":"x")", "seed"},
      {R"("seed":18446744073709551615)", "seed"},
      {R"("n":0)", "n"},
      {R"("n":129)", "n"},
      {R"("max_tokens":0)", "max_tokens"},
      {R"("max_tokens":-1)", "max_tokens"},
      {R"("min_tokens":17)", "min_tokens"},
      {R"("logprobs":21)", "logprobs"},
      {R"("logprobs":-1)", "logprobs"},
      {R"("logprobs":true)", "logprobs"},
      {R"("prompt_logprobs":21)", "prompt_logprobs"},
      {R"("stop":[""])", "stop"},
      {R"("stop":5)", "stop"},
      {R"("stop_token_ids":[999])", "stop_token_ids"},
      {R"("logit_bias":{"x":1})", "logit_bias"},
      {R"("logit_bias":{"999":1})", "logit_bias"},
      {R"("logit_bias":{"9":"1"})", "logit_bias"},
      {R"("allowed_token_ids":[])", "allowed_token_ids"},
      {R"("stream_options":{"include_usage":true})", "stream_options"},
      {R"("stream":"yes")", "stream"},
      {R"("stream":true,"stream_options":{"include_usage":1})", "stream_options.include_usage"},
      {R"("stream":true,"prompt_logprobs":1)", "prompt_logprobs"},
      {R"("priority":1)", "priority"},
      {R"("request_id":"a b")", "request_id"},
      {R"("truncate_prompt_tokens":0)", "truncate_prompt_tokens"},
      {R"("best_of":2)", "best_of"},
      {R"("use_beam_search":true)", "use_beam_search"},
      {R"("suffix":"x")", "suffix"},
      {R"("prompt_embeds":"x")", "prompt_embeds"},
      {R"("response_format":{"type":"xml"})", "response_format"},
      {R"("structured_outputs":{"structural_tag":{}})", "structured_outputs.structural_tag"},
      {R"("guided_json":{"a":1})", "guided_json"},
      {R"("kv_transfer_params":{"a":1})", "kv_transfer_params"},
      {R"("vllm_xargs":{"a":1})", "vllm_xargs"},
      {R"("repetition_detection":{"a":1})", "repetition_detection"},
      {R"("model":5)", "model"}};
  for (const auto& [fields, param] : cases) EXPECT_EQ(completion_error(fields), param) << fields;
  for (const char* fine :
       {R"("suffix":null)", R"("suffix":"")", R"("response_format":{"type":"text"})", R"("logit_bias":{})",
        R"("use_beam_search":false)", R"("max_tokens":null)", R"("unknown_field":[1,2])", R"("seed":-1)",
        R"("kv_transfer_params":{})", R"("n":2.0)", R"("length_penalty":1.0)"}) {
    EXPECT_EQ(completion_error(fine), "accepted") << fine;
  }
}

TEST_F(OpenAiTypes, ListsHaveAnEnd) {
  const auto many = [](const char* name, size_t count, size_t size) {
    Json list = Json::array();
    for (size_t i = 0; i < count; ++i) list.push_back(std::string(size, 'x'));
    return "\"" + std::string(name) + "\":" + list.dump();
  };
  for (const char* name : {"stop", "bad_words"}) {
    EXPECT_EQ(completion_error(many(name, 1024, 64)), "accepted");
    EXPECT_EQ(completion_error(many(name, 1025, 1)), name);
    EXPECT_EQ(completion_error(many(name, 1, 65537)), name);
  }
  std::string ids = "3,1,3";
  for (int i = 0; i < 1000; ++i) ids += ",1";
  const SamplingParams s =
      completion(R"({"prompt":"a","allowed_token_ids":[)" + ids + R"(],"stop_token_ids":[)" + ids + "]}").sampling;
  EXPECT_EQ(s.allowed_token_ids, (std::vector<int32_t>{1, 3}));
  EXPECT_EQ(s.stop_token_ids, (std::vector<int32_t>{1, 3}));
}

TEST_F(OpenAiTypes, ErrorsOfChatNameTheField) {
  EXPECT_EQ(chat_error(R"("top_logprobs":2)"), "top_logprobs");
  EXPECT_EQ(chat_error(R"("logprobs":true,"top_logprobs":21)"), "top_logprobs");
  EXPECT_EQ(chat_error(R"("max_completion_tokens":0)"), "max_completion_tokens");
  EXPECT_EQ(chat_error(R"("continue_final_message":true)"), "continue_final_message");
  EXPECT_EQ(chat_error(R"("chat_template":"x")"), "chat_template");
  EXPECT_EQ(chat_error(R"("tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":"required")"),
            "accepted");
  EXPECT_EQ(chat_error(R"("tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":"none")"),
            "accepted");
  EXPECT_EQ(chat_error(R"("tools":[{"type":"function","function":{"name":"f"}}])"), "tool_choice");
  config.enable_auto_tool_choice = true;
  EXPECT_EQ(chat_error(R"("tools":[{"type":"function","function":{"name":"f"}}])"), "accepted");
  EXPECT_EQ(chat_error(R"("tools":[5])"), "tools");
  EXPECT_EQ(chat_error(R"("modalities":["audio"])"), "modalities");
  EXPECT_EQ(chat(R"("logprobs":true,"top_logprobs":2)").sampling.logprobs, 2);
  EXPECT_EQ(chat(R"("logprobs":true)").sampling.logprobs, 0);
  EXPECT_EQ(chat(R"("top_logprobs":0)").sampling.logprobs, -1);
}

TEST_F(OpenAiTypes, MessagesAreChecked) {
  const auto message_error = [&](const std::string& messages) -> std::string {
    try {
      parse_chat_request(parse_request_body(R"({"messages":)" + messages + "}"), config, model);
    } catch (const InvalidRequest& e) {
      return e.param();
    }
    return "accepted";
  };
  EXPECT_EQ(message_error("[]"), "messages");
  EXPECT_EQ(message_error("\"x\""), "messages");
  EXPECT_EQ(message_error("[5]"), "messages[0]");
  EXPECT_EQ(message_error(R"([{"content":"x"}])"), "messages[0].role");
  EXPECT_EQ(message_error(R"([{"role":"user"}])"), "messages[0].content");
  EXPECT_EQ(message_error(R"([{"role":"user","content":5}])"), "messages[0].content");
  EXPECT_EQ(message_error(R"([{"role":"user","content":[{"type":"text","text":"a"},{"type":"image_url"}]}])"),
            "messages[0].content[1]");
  EXPECT_EQ(message_error(R"([{"role":"assistant","tool_calls":[{"function":{"arguments":"{"}}]}])"),
            "messages[0]");
  const ApiRequest r = parse_chat_request(
      parse_request_body(R"({"messages":[{"role":"user","content":[{"type":"text","text":"a"},"b"]},
        {"role":"assistant","content":null,"tool_calls":[{"function":{"name":"f","arguments":"{\"x\": 1}"}}]}]})"),
      config, model);
  EXPECT_EQ(r.chat->messages[0]["content"], "a\nb");
  EXPECT_EQ(r.chat->messages[1]["tool_calls"][0]["function"]["arguments"]["x"], 1);
}

TEST(RequestBody, HostileBodies) {
  EXPECT_THROW(parse_request_body(""), InvalidRequest);
  EXPECT_THROW(parse_request_body("[1]"), InvalidRequest);
  EXPECT_THROW(parse_request_body("{\"a\":1}}"), InvalidRequest);
  EXPECT_THROW(parse_request_body("{\"a\":\"\xff\"}"), InvalidRequest);
  EXPECT_THROW(parse_request_body(std::string(1'000'000, '[')), InvalidRequest);
  EXPECT_THROW(parse_request_body("{\"a\":" + std::string(70, '[') + std::string(70, ']') + "}"),
               InvalidRequest);
  std::string wide = "{";
  for (int i = 0; i < 200'000; ++i) wide += "\"k" + std::to_string(i) + "\":1,";
  wide += "\"end\":1}";
  EXPECT_THROW(parse_request_body(wide), InvalidRequest);
  EXPECT_EQ(parse_request_body(R"({"a":"[[{{::\"","b":{"c":1}})").size(), 2u);
}

}  // namespace
}  // namespace tutti
