// The API over a real engine and a fake model, through sockets.
#include <gtest/gtest.h>

#include "server/testing/test_server.h"

namespace tutti {
namespace {

using namespace std::chrono_literals;

Json completion(const Json& more = Json::object()) {
  Json body = {{"model", "test-model"}, {"prompt", "say"}};
  body.update(more);
  return body;
}

Json chat(const Json& more = Json::object()) {
  Json body = {{"model", "test-model"}, {"messages", {{{"role", "user"}, {"content", "say"}}}}};
  body.update(more);
  return body;
}

TEST(OpenAiApi, PlainCompletion) {
  TestServer server;
  const ClientResponse response = server.post("/v1/completions", completion({{"max_tokens", 11}}));
  ASSERT_EQ(response.status, 200) << response.body;
  const Json body = response.json();
  EXPECT_EQ(body["object"], "text_completion");
  EXPECT_TRUE(body["id"].get<std::string>().starts_with("cmpl-"));
  EXPECT_EQ(body["model"], "test-model");
  const Json& choice = body["choices"][0];
  EXPECT_EQ(choice["text"], "hello world");
  EXPECT_EQ(choice["finish_reason"], "length");
  EXPECT_EQ(choice["index"], 0);
  EXPECT_TRUE(choice["logprobs"].is_null());
  // <bos> s a y
  EXPECT_EQ(body["usage"]["prompt_tokens"], 4);
  EXPECT_EQ(body["usage"]["completion_tokens"], 11);
  EXPECT_EQ(body["usage"]["total_tokens"], 15);
}

TEST(OpenAiApi, SixteenTokensUnlessSaid) {
  TestServer server;
  EXPECT_EQ(server.post("/v1/completions", completion()).json()["usage"]["completion_tokens"], 16);
  // null: what is left of the context.
  const Json body = server.post("/v1/completions", completion({{"max_tokens", nullptr}})).json();
  EXPECT_EQ(body["usage"]["total_tokens"], 4096);
}

TEST(OpenAiApi, StreamedCompletion) {
  TestServer server;
  const ClientResponse response = server.post(
      "/v1/completions",
      completion({{"max_tokens", 11}, {"stream", true}, {"stream_options", {{"include_usage", true}}}}));
  ASSERT_EQ(response.status, 200);
  EXPECT_TRUE(response.complete);
  const auto events = response.events();
  ASSERT_GE(events.size(), 3u);
  EXPECT_EQ(events.back(), "[DONE]");
  std::string text;
  std::string finish;
  for (size_t i = 0; i + 2 < events.size(); ++i) {
    const Json event = parse_json(events[i], "event");
    EXPECT_EQ(event["object"], "text_completion");
    text += event["choices"][0]["text"].get<std::string>();
    if (!event["choices"][0]["finish_reason"].is_null()) finish = event["choices"][0]["finish_reason"];
  }
  EXPECT_EQ(text, "hello world");
  EXPECT_EQ(finish, "length");
  const Json usage = parse_json(events[events.size() - 2], "event");
  EXPECT_TRUE(usage["choices"].empty());
  EXPECT_EQ(usage["usage"]["completion_tokens"], 11);
  EXPECT_EQ(usage["usage"]["prompt_tokens"], 4);
}

TEST(OpenAiApi, Chat) {
  TestServer server;
  const Json body = server.post("/v1/chat/completions", chat({{"max_tokens", 5}})).json();
  EXPECT_EQ(body["object"], "chat.completion");
  EXPECT_TRUE(body["id"].get<std::string>().starts_with("chatcmpl-"));
  const Json& message = body["choices"][0]["message"];
  EXPECT_EQ(message["role"], "assistant");
  EXPECT_EQ(message["content"], "hello");
  // <|im_start|>user\nsay<|im_end|>\n<|im_start|>assistant\n
  EXPECT_EQ(body["usage"]["prompt_tokens"], 1 + 5 + 3 + 1 + 1 + 1 + 10);
}

TEST(OpenAiApi, ChatWithoutALimitTakesTheRestOfTheContext) {
  TestServer server({.max_model_len = 100});
  const Json body = server.post("/v1/chat/completions", chat()).json();
  EXPECT_EQ(body["usage"]["total_tokens"], 100);
  EXPECT_EQ(body["choices"][0]["finish_reason"], "length");
}

TEST(OpenAiApi, StreamedChat) {
  TestServer server;
  const auto events =
      server
          .post("/v1/chat/completions",
                chat({{"max_tokens", 5},
                      {"stream", true},
                      {"stream_options", {{"include_usage", true}, {"continuous_usage_stats", true}}}}))
          .events();
  ASSERT_GE(events.size(), 4u);
  const Json first = parse_json(events[0], "event");
  EXPECT_EQ(first["object"], "chat.completion.chunk");
  EXPECT_EQ(first["choices"][0]["delta"]["role"], "assistant");
  std::string text;
  for (size_t i = 1; i + 2 < events.size(); ++i) {
    const Json event = parse_json(events[i], "event");
    text += event["choices"][0]["delta"]["content"].get<std::string>();
    EXPECT_TRUE(event.contains("usage"));
  }
  EXPECT_EQ(text, "hello");
  EXPECT_EQ(events.back(), "[DONE]");
}

TEST(OpenAiApi, StreamsBeginWithThePromptsIds) {
  TestServer server;
  const Json ids = {{"max_tokens", 4}, {"stream", true}, {"return_token_ids", true}};
  for (const bool echo : {false, true}) {
    Json body = completion(ids);
    body["echo"] = echo;
    const auto events = server.post("/v1/completions", body).events();
    Json tokens = Json::array();
    int with_prompt = 0;
    for (size_t i = 0; i + 1 < events.size(); ++i) {
      const Json choice = parse_json(events[i], "event")["choices"][0];
      if (choice.contains("prompt_token_ids")) {
        EXPECT_EQ(i, 0u);
        EXPECT_EQ(choice["prompt_token_ids"], Json({256, 's', 'a', 'y'}));
        ++with_prompt;
      }
      if (!choice.contains("token_ids")) continue;
      for (const Json& id : choice["token_ids"]) tokens.push_back(id);
    }
    EXPECT_EQ(with_prompt, 1);
    EXPECT_EQ(tokens, Json({'h', 'e', 'l', 'l'}));
  }
  const auto events = server.post("/v1/chat/completions", chat(ids)).events();
  EXPECT_EQ(parse_json(events[0], "event")["prompt_token_ids"].size(), 22u);
  EXPECT_FALSE(parse_json(events[1], "event").contains("prompt_token_ids"));
}

TEST(OpenAiApi, StopStringsEndTheSequenceAndTheCountIsRight) {
  TestServer server;
  const Json stop = {{"max_tokens", 1000}, {"stop", {"zzz", "o w"}}};
  Json body = server.post("/v1/completions", completion(stop)).json();
  EXPECT_EQ(body["choices"][0]["text"], "hell");
  EXPECT_EQ(body["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(body["choices"][0]["stop_reason"], "o w");
  EXPECT_EQ(body["usage"]["completion_tokens"], 7);
  Json included = stop;
  included["include_stop_str_in_output"] = true;
  body = server.post("/v1/completions", completion(included)).json();
  EXPECT_EQ(body["choices"][0]["text"], "hello w");
  // A stop string counts only after min_tokens.
  Json later = stop;
  later["min_tokens"] = 10;
  body = server.post("/v1/completions", completion(later)).json();
  EXPECT_EQ(body["choices"][0]["text"], "hello world hell");
  EXPECT_TRUE(eventually([&] { return server.engine().stats().num_running == 0; }));
  const std::string metrics = server.get("/metrics").body;
  EXPECT_NE(metrics.find("finished_reason=\"stop\",model_name=\"test-model\"} 3"), std::string::npos)
      << metrics;
}

TEST(OpenAiApi, StopTokens) {
  TestServer::Options options;
  options.rule = [](const std::vector<int32_t>&, int64_t index) {
    return index == 3 ? ByteTokenizer::kEos : static_cast<int32_t>('a' + index);
  };
  TestServer server(options);
  Json body = server.post("/v1/completions", completion()).json();
  EXPECT_EQ(body["choices"][0]["text"], "abc");
  EXPECT_EQ(body["choices"][0]["finish_reason"], "stop");
  EXPECT_TRUE(body["choices"][0]["stop_reason"].is_null());
  EXPECT_EQ(body["usage"]["completion_tokens"], 4);
  body = server.post("/v1/completions", completion({{"stop_token_ids", {'b'}}})).json();
  EXPECT_EQ(body["choices"][0]["text"], "a");
  EXPECT_EQ(body["choices"][0]["stop_reason"], 'b');
  body = server
             .post("/v1/completions",
                   completion({{"ignore_eos", true}, {"max_tokens", 5}, {"skip_special_tokens", false}}))
             .json();
  EXPECT_EQ(body["choices"][0]["text"], "abc<eos>e");
}

TEST(OpenAiApi, ManyPromptsTimesN) {
  TestServer::Options options;
  // The answer shows which prompt it belongs to.
  options.rule = [](const std::vector<int32_t>& prompt, int64_t) { return prompt.back(); };
  TestServer server(options);
  const Json prompts = {"a", Json::array({1, 2, 'b'}), "c"};
  const Json body =
      server.post("/v1/completions", completion({{"prompt", prompts}, {"n", 2}, {"max_tokens", 3}})).json();
  ASSERT_EQ(body["choices"].size(), 6u);
  for (int i = 0; i < 6; ++i) {
    EXPECT_EQ(body["choices"][i]["index"], i);
    EXPECT_EQ(body["choices"][i]["text"], std::string(3, static_cast<char>('a' + i / 2)));
  }
  EXPECT_EQ(body["usage"]["prompt_tokens"], 2 + 3 + 2);
  EXPECT_EQ(body["usage"]["completion_tokens"], 18);
  const auto events =
      server
          .post("/v1/completions",
                completion({{"prompt", prompts}, {"n", 2}, {"max_tokens", 3}, {"stream", true}}))
          .events();
  std::map<int, std::string> texts;
  for (size_t i = 0; i + 1 < events.size(); ++i) {
    const Json choice = parse_json(events[i], "event")["choices"][0];
    texts[choice["index"]] += choice["text"].get<std::string>();
  }
  EXPECT_EQ(texts.size(), 6u);
  EXPECT_EQ(texts[5], "ccc");
}

TEST(OpenAiApi, Logprobs) {
  TestServer server;
  Json body = server.post("/v1/completions", completion({{"max_tokens", 2}, {"logprobs", 2}})).json();
  const Json& logprobs = body["choices"][0]["logprobs"];
  EXPECT_EQ(logprobs["tokens"], Json({"h", "e"}));
  EXPECT_EQ(logprobs["token_logprobs"], Json({-0.5, -0.5}));
  EXPECT_EQ(logprobs["text_offset"], Json({0, 1}));
  EXPECT_EQ(logprobs["top_logprobs"][0], Json({{"h", -0.5}, {"i", -1.0}}));
  body =
      server.post("/v1/chat/completions", chat({{"max_tokens", 1}, {"logprobs", true}, {"top_logprobs", 2}}))
          .json();
  const Json& entry = body["choices"][0]["logprobs"]["content"][0];
  EXPECT_EQ(entry["token"], "h");
  EXPECT_EQ(entry["bytes"], Json({104}));
  EXPECT_EQ(entry["top_logprobs"].size(), 2u);
  body = server
             .post("/v1/completions",
                   completion({{"max_tokens", 1}, {"logprobs", 0}, {"return_tokens_as_token_ids", true}}))
             .json();
  EXPECT_EQ(body["choices"][0]["logprobs"]["tokens"][0], "token_id:104");
  const auto events =
      server.post("/v1/completions", completion({{"max_tokens", 4}, {"logprobs", 1}, {"stream", true}}))
          .events();
  Json offsets = Json::array();
  for (size_t i = 0; i + 1 < events.size(); ++i) {
    const Json l = parse_json(events[i], "event")["choices"][0]["logprobs"];
    if (!l.is_null()) offsets.insert(offsets.end(), l["text_offset"].begin(), l["text_offset"].end());
  }
  EXPECT_EQ(offsets, Json({0, 1, 2, 3}));
}

TEST(OpenAiApi, EchoAndPromptLogprobs) {
  TestServer server;
  Json body =
      server.post("/v1/completions", completion({{"echo", true}, {"max_tokens", 2}, {"logprobs", 1}})).json();
  EXPECT_EQ(body["choices"][0]["text"], "sayhe");
  const Json& logprobs = body["choices"][0]["logprobs"];
  EXPECT_EQ(logprobs["tokens"], Json({"<bos>", "s", "a", "y", "h", "e"}));
  EXPECT_TRUE(logprobs["token_logprobs"][0].is_null());
  EXPECT_EQ(logprobs["token_logprobs"][3], -0.5);
  body =
      server.post("/v1/completions", completion({{"echo", true}, {"max_tokens", 0}, {"logprobs", 1}})).json();
  EXPECT_EQ(body["choices"][0]["text"], "say");
  EXPECT_EQ(body["choices"][0]["logprobs"]["tokens"].size(), 4u);
  EXPECT_EQ(body["usage"]["completion_tokens"], 0);
  body = server.post("/v1/completions", completion({{"prompt_logprobs", 1}, {"max_tokens", 1}})).json();
  const Json& prompt = body["choices"][0]["prompt_logprobs"];
  ASSERT_EQ(prompt.size(), 4u);
  EXPECT_TRUE(prompt[0].is_null());
  EXPECT_EQ(prompt[1]["115"]["decoded_token"], "s");
  const auto events =
      server.post("/v1/completions", completion({{"echo", true}, {"max_tokens", 1}, {"stream", true}}))
          .events();
  EXPECT_EQ(parse_json(events[0], "event")["choices"][0]["text"], "say");
}

TEST(OpenAiApi, TruncationAndLengthErrors) {
  TestServer server({.max_model_len = 50});
  const std::string long_prompt(60, 'p');
  Json error = server.post("/v1/completions", completion({{"prompt", long_prompt}})).json()["error"];
  EXPECT_EQ(error["param"], "prompt");
  EXPECT_EQ(error["code"], 400);
  EXPECT_NE(error["message"].get<std::string>().find("maximum context length is 50"), std::string::npos);
  Json body = server
                  .post("/v1/completions", completion({{"prompt", long_prompt},
                                                       {"truncate_prompt_tokens", 8},
                                                       {"echo", true},
                                                       {"max_tokens", 1}}))
                  .json();
  EXPECT_EQ(body["usage"]["prompt_tokens"], 8);
  EXPECT_EQ(body["choices"][0]["text"], "pppppppph");
  body = server
             .post("/v1/completions",
                   completion({{"prompt", long_prompt}, {"truncate_prompt_tokens", -1}, {"max_tokens", 10}}))
             .json();
  EXPECT_EQ(body["usage"]["total_tokens"], 50);
  error = server.post("/v1/completions", completion({{"max_tokens", 47}})).json()["error"];
  EXPECT_EQ(error["param"], "max_tokens");
  error =
      server.post("/v1/completions", completion({{"prompt", std::string(1'000'000, 'p')}})).json()["error"];
  EXPECT_EQ(error["code"], 400);
}

TEST(OpenAiApi, ErrorShapes) {
  TestServer server;
  ClientResponse response = server.post("/v1/completions", completion({{"model", "other"}}));
  EXPECT_EQ(response.status, 404);
  EXPECT_EQ(response.json()["error"]["type"], "NotFoundError");
  EXPECT_EQ(response.json()["error"]["param"], "model");
  response = server.post("/v1/completions", completion({{"temperature", -1}}));
  EXPECT_EQ(response.status, 400);
  EXPECT_EQ(response.json()["error"]["param"], "temperature");
  EXPECT_EQ(server.get("/nothing").status, 404);
  response = server.get("/v1/completions");
  EXPECT_EQ(response.status, 405);
  EXPECT_EQ(response.headers.at("allow"), "POST");
  TestClient client(server.port());
  client.send("POST /v1/completions HTTP/1.1\r\ncontent-type: text/plain\r\ncontent-length: 2\r\n\r\n{}");
  EXPECT_EQ(client.read_response().status, 415);
  EXPECT_EQ(
      server.post("/v1/completions", completion({{"model", "alias"}, {"max_tokens", 1}})).json()["model"],
      "alias");
}

TEST(OpenAiApi, ModelsTokenizeDetokenizeVersion) {
  TestServer::Options options;
  options.config.version = "1.2.3";
  TestServer server(options);
  const Json models = server.get("/v1/models").json();
  EXPECT_EQ(models["data"].size(), 2u);
  EXPECT_EQ(models["data"][0]["id"], "test-model");
  EXPECT_EQ(models["data"][0]["max_model_len"], 4096);
  EXPECT_EQ(server.get("/v1/models/alias").json()["id"], "alias");
  for (const char* name : {"none", "owner/none", "/models/of/none"}) {
    const ClientResponse unknown = server.get("/v1/models/" + std::string(name));
    EXPECT_EQ(unknown.status, 404);
    EXPECT_EQ(unknown.json()["error"]["param"], "model") << name;
  }
  const Json tokens = server.post("/tokenize", {{"prompt", "ab"}, {"return_token_strs", true}}).json();
  EXPECT_EQ(tokens["tokens"], Json({256, 97, 98}));
  EXPECT_EQ(tokens["token_strs"], Json({"<bos>", "a", "b"}));
  EXPECT_EQ(tokens["count"], 3);
  EXPECT_GT(server.post("/tokenize", chat()).json()["count"], 10);
  EXPECT_EQ(server.post("/detokenize", {{"tokens", {97, 98}}}).json()["prompt"], "ab");
  EXPECT_EQ(server.post("/detokenize", {{"tokens", {-1}}}).status, 400);
  EXPECT_EQ(server.get("/version").json()["version"], "1.2.3");
}

TEST(OpenAiApi, RequestIds) {
  TestServer::Options options;
  options.config.enable_request_id_headers = true;
  TestServer server(options);
  ClientResponse response = server.post("/v1/completions", completion(), "x-request-id: abc\r\n");
  EXPECT_EQ(response.json()["id"], "cmpl-abc");
  EXPECT_EQ(response.headers.at("x-request-id"), "abc");
  response = server.post("/v1/completions", completion({{"request_id", "mine"}}));
  EXPECT_EQ(response.json()["id"], "cmpl-mine");
  response = server.post("/v1/completions", completion({{"stream", true}}), "x-request-id: two words\r\n");
  EXPECT_EQ(response.headers.at("x-request-id").size(), 32u);
}

TEST(OpenAiApi, StreamIntervalMergesTokens) {
  TestServer::Options options;
  options.config.stream_interval = 5;
  TestServer server(options);
  server.executor().step_delay_us = 2000;
  const auto events =
      server.post("/v1/completions", completion({{"max_tokens", 16}, {"stream", true}})).events();
  // At best 1 + 5 + 5 + 5 and [DONE]; where the server's thread gets its turn late, an event holds more, never less.
  ASSERT_GE(events.size(), 3u);
  ASSERT_LE(events.size(), 5u);
  std::string text;
  for (size_t i = 0; i + 1 < events.size(); ++i) {
    const std::string piece = parse_json(events[i], "event")["choices"][0]["text"];
    if (i > 0 && i + 2 < events.size()) {
      EXPECT_GE(piece.size(), 5u) << "event " << i;
    }
    text += piece;
  }
  EXPECT_EQ(text.size(), 16u);
  EXPECT_EQ(text.substr(0, 6), "hello ");
}

TEST(OpenAiApi, ToolCalls) {
  TestServer::Options options;
  options.config.enable_auto_tool_choice = true;
  options.config.tool_call_parser = "hermes";
  options.rule = [](const std::vector<int32_t>&, int64_t index) -> int32_t {
    const std::string text = "Hm <tool_call>{\"name\": \"f\", \"arguments\": {\"x\": 1}}</tool_call>";
    return index < static_cast<int64_t>(text.size()) ? text[static_cast<size_t>(index)] : ByteTokenizer::kEos;
  };
  TestServer server(options);
  const Json tools = {{{"type", "function"}, {"function", {{"name", "f"}}}}};
  const Json choice = server.post("/v1/chat/completions", chat({{"tools", tools}})).json()["choices"][0];
  EXPECT_EQ(choice["finish_reason"], "tool_calls");
  EXPECT_EQ(choice["message"]["content"], "Hm ");
  EXPECT_EQ(choice["message"]["tool_calls"][0]["function"],
            Json({{"name", "f"}, {"arguments", "{\"x\":1}"}}));
  const auto events =
      server.post("/v1/chat/completions", chat({{"tools", tools}, {"stream", true}})).events();
  std::string content;
  Json calls = Json::array();
  for (size_t i = 0; i + 1 < events.size(); ++i) {
    const Json delta = parse_json(events[i], "event")["choices"][0]["delta"];
    content += delta.value("content", "");
    if (delta.contains("tool_calls"))
      calls.insert(calls.end(), delta["tool_calls"].begin(), delta["tool_calls"].end());
  }
  EXPECT_EQ(content, "Hm ");
  ASSERT_EQ(calls.size(), 1u);
  EXPECT_EQ(calls[0]["index"], 0);
  EXPECT_EQ(calls[0]["function"]["name"], "f");
}

TEST(OpenAiApi, ChatContinuesTheFinalMessage) {
  TestServer::Options options;
  options.rule = [](const std::vector<int32_t>& prompt, int64_t) { return prompt.back(); };
  TestServer server(options);
  Json body = chat({{"add_generation_prompt", false},
                    {"continue_final_message", true},
                    {"max_tokens", 2},
                    {"echo", true}});
  body["messages"].push_back({{"role", "assistant"}, {"content", "The answer is X"}});
  const Json answer = server.post("/v1/chat/completions", body).json();
  EXPECT_EQ(answer["choices"][0]["message"]["content"], "The answer is XXX");
}

}  // namespace
}  // namespace tutti
