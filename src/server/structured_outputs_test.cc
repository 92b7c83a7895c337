#include "server/structured_outputs.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>

#include "base/error.h"
#include "server/testing/test_server.h"

namespace tutti {
namespace {

using testing::HasSubstr;

struct Refusal {
  std::string param;
  std::string message;
};

// Nothing refused: both empty.
Refusal refusal(const std::string& fields) {
  const Json body = parse_json("{" + fields + "}", "fields");
  try {
    read_structured_outputs(FieldReader(body));
  } catch (const InvalidRequest& e) {
    return {e.param(), e.what()};
  }
  return {};
}

bool says_something(const std::string& fields) {
  const Json body = parse_json("{" + fields + "}", "fields");
  return !read_structured_outputs(FieldReader(body)).empty();
}

TEST(StructuredOutputs, EverySpelling) {
  for (const char* fields :
       {R"("response_format":{"type":"json_object"})", R"("response_format":{"type":"json_schema","json_schema":{"name":"x","strict":true,"schema":{"type":"null"}}})",
        R"("structured_outputs":{"json":{"type":"null"}})", R"("structured_outputs":{"json":"{\"type\":\"null\"}"})", R"("structured_outputs":{"regex":"a+"})",
        R"("structured_outputs":{"choice":["a","b"]})", R"("structured_outputs":{"grammar":"root ::= \"a\""})", R"("structured_outputs":{"json_object":true})",
        R"("structured_outputs":{"json":{},"disable_any_whitespace":true})", R"("structured_outputs":{"json":{},"whitespace_pattern":"[ ]?"})",
        R"("guided_json":{"type":"null"})", R"("guided_regex":"a")", R"("guided_choice":["a"])", R"("guided_grammar":"root ::= \"a\"")"}) {
    EXPECT_TRUE(says_something(fields)) << fields;
  }
  for (const char* fields : {R"("response_format":{"type":"text"})", R"("structured_outputs":null)", R"("structured_outputs":{})", R"("guided_json":null)", ""}) {
    EXPECT_FALSE(says_something(fields)) << fields;
  }
}

TEST(StructuredOutputs, RefusalsNameTheField) {
  const std::pair<const char*, const char*> cases[] = {
      {R"("response_format":{"type":"xml"})", "response_format"},
      {R"("response_format":{"type":"json_schema"})", "response_format"},
      {R"("response_format":{"type":"json_schema","json_schema":{"name":"x"}})", "response_format"},
      {R"("response_format":{"type":"json_schema","json_schema":{"schema":{"not":{}}}})", "response_format.json_schema.schema"},
      {R"("response_format":{"type":"json_object"},"guided_regex":"a")", "guided_regex"},
      {R"("structured_outputs":{"regex":"a","choice":["b"]})", "structured_outputs.choice"},
      {R"("structured_outputs":{"whitespace_pattern":" "})", "structured_outputs"},
      {R"("structured_outputs":{"regex":3})", "structured_outputs.regex"},
      {R"("structured_outputs":{"choice":[]})", "structured_outputs.choice"},
      {R"("structured_outputs":{"choice":[1]})", "structured_outputs.choice"},
      {R"("structured_outputs":{"json":"{"})", "structured_outputs.json"},
      {R"("structured_outputs":{"json":{},"whitespace_pattern":"("})", "structured_outputs.whitespace_pattern"},
      {R"("guided_json":{"type":"integer","multipleOf":2})", "guided_json"},
      {R"("guided_grammar":"start: \"a\"")", "guided_grammar"}};
  for (const auto& [fields, param] : cases) EXPECT_EQ(refusal(fields).param, param) << fields;
  EXPECT_THAT(refusal(R"("guided_json":{"type":"integer","multipleOf":2})").message, HasSubstr("`guided_json`: the keyword `multipleOf` is not supported"));
  EXPECT_THAT(refusal("\"guided_regex\":\"" + std::string(300'000, 'a') + "\"").message, HasSubstr("at most 262144 are taken"));
  EXPECT_THAT(refusal("\"guided_regex\":\"" + std::string(60'000, 'a') + "\"").message, HasSubstr("too large"));
  std::string doubling = "root ::= a0 a0\\n";  // 2^40 ways to begin
  for (int i = 0; i < 40; ++i) doubling += fmt::format("a{0} ::= a{1} a{1}\\n", i, i + 1);
  EXPECT_THAT(refusal("\"guided_grammar\":\"" + doubling + "a40 ::= [x]?\"").message, HasSubstr("too ambiguous"));
}

Json chat(const Json& more) {
  Json body = {{"messages", {{{"role", "user"}, {"content", "hi"}}}}, {"max_tokens", 500}};
  body.update(more);
  return body;
}

const char* const kSchema = R"({"type":"object","properties":{"name":{"type":"string","maxLength":9},"n":{"type":"integer"}},"required":["name","n"]})";

TEST(StructuredOutputs, AnswersAreOfTheSchema) {
  TestServer server;
  const Json format = {{"type", "json_schema"}, {"json_schema", {{"name", "x"}, {"schema", parse_json(kSchema, "schema")}}}};
  for (int seed = 0; seed < 20; ++seed) {
    const Json choices = server.post("/v1/chat/completions", chat({{"response_format", format}, {"n", 2}, {"seed", seed}})).json()["choices"];
    ASSERT_EQ(choices.size(), 2u);
    for (const Json& choice : choices) {
      EXPECT_EQ(choice["finish_reason"], "stop");
      const Json answer = parse_json(choice["message"]["content"].get<std::string>(), "answer");
      EXPECT_TRUE(answer["name"].is_string() && answer["n"].is_number_integer());
    }
  }
}

TEST(StructuredOutputs, CompletionsAndStreams) {
  TestServer server;
  for (int seed = 0; seed < 10; ++seed) {
    const Json body = {{"prompt", {"a", "b"}}, {"max_tokens", 200}, {"seed", seed}, {"structured_outputs", {{"regex", "[a-c]{3,5}-\\d+"}}}};
    const Json answer = server.post("/v1/completions", body).json();
    for (const Json& choice : answer["choices"]) {
      EXPECT_TRUE(std::regex_match(choice["text"].get<std::string>(), std::regex("[a-c]{3,5}-\\d+")));
    }
    Json streamed = chat({{"guided_choice", {"yes", "yesterday", "no"}}, {"stream", true}, {"seed", seed}});
    const auto events = server.post("/v1/chat/completions", streamed).events();
    std::string text;
    for (size_t i = 0; i + 1 < events.size(); ++i) text += parse_json(events[i], "event")["choices"][0]["delta"].value("content", "");
    EXPECT_TRUE(text == "yes" || text == "yesterday" || text == "no") << text;
  }
}

const Json& tools() {
  static const Json list = parse_json(R"([
    {"type":"function","function":{"name":"weather","parameters":{"type":"object","properties":{"city":{"$ref":"#/$defs/city"}},"required":["city"],
     "$defs":{"city":{"enum":["Paris","Rome"]}}}}},
    {"type":"function","function":{"name":"now"}}])", "tools");
  return list;
}

TEST(StructuredOutputs, NamedTool) {
  TestServer server;
  const Json named = {{"type", "function"}, {"function", {{"name", "weather"}}}};
  const Json choice = server.post("/v1/chat/completions", chat({{"tools", tools()}, {"tool_choice", named}})).json()["choices"][0];
  EXPECT_EQ(choice["finish_reason"], "stop");
  EXPECT_TRUE(choice["message"]["content"].is_null());
  ASSERT_EQ(choice["message"]["tool_calls"].size(), 1u);
  const Json function = choice["message"]["tool_calls"][0]["function"];
  EXPECT_EQ(function["name"], "weather");
  const Json arguments = parse_json(function["arguments"].get<std::string>(), "arguments");
  EXPECT_TRUE(arguments["city"] == "Paris" || arguments["city"] == "Rome");

  const auto events = server.post("/v1/chat/completions", chat({{"tools", tools()}, {"tool_choice", named}, {"stream", true}})).events();
  std::string streamed;
  size_t pieces = 0;
  for (size_t i = 0; i + 1 < events.size(); ++i) {
    const Json delta = parse_json(events[i], "event")["choices"][0]["delta"];
    if (!delta.contains("tool_calls")) continue;
    const Json& call = delta["tool_calls"][0];
    EXPECT_EQ(call["index"], 0);
    EXPECT_EQ(call["function"].contains("name"), pieces == 0);
    streamed += call["function"]["arguments"].get<std::string>();
    ++pieces;
  }
  EXPECT_GT(pieces, 2u);
  EXPECT_TRUE(parse_json(streamed, "arguments").contains("city"));
}

TEST(StructuredOutputs, RequiredTools) {
  TestServer server;
  for (const bool parallel : {true, false}) {
    for (int seed = 0; seed < 20; ++seed) {
      const Json body = chat({{"tools", tools()}, {"tool_choice", "required"}, {"parallel_tool_calls", parallel}, {"seed", seed}});
      const Json choice = server.post("/v1/chat/completions", body).json()["choices"][0];
      const Json& calls = choice["message"]["tool_calls"];
      EXPECT_EQ(choice["finish_reason"], "tool_calls");
      ASSERT_GE(calls.size(), 1u);
      EXPECT_LE(calls.size(), parallel ? 100u : 1u);
      for (const Json& call : calls) {
        const Json arguments = parse_json(call["function"]["arguments"].get<std::string>(), "arguments");
        if (call["function"]["name"] == "now") continue;
        EXPECT_EQ(call["function"]["name"], "weather");
        EXPECT_TRUE(arguments["city"] == "Paris" || arguments["city"] == "Rome");
      }
    }
  }
}

TEST(StructuredOutputs, ToolChoicesThatCannotBe) {
  TestServer server;
  const auto error = [&](const Json& more) { return server.post("/v1/chat/completions", chat(more)).json()["error"]; };
  EXPECT_EQ(error({{"tools", tools()}, {"tool_choice", {{"type", "function"}, {"function", {{"name", "other"}}}}}})["param"], "tool_choice");
  EXPECT_EQ(error({{"tools", tools()}, {"tool_choice", Json::object()}})["param"], "tool_choice");
  EXPECT_EQ(error({{"tools", tools()}, {"tool_choice", "required"}, {"guided_regex", "a"}})["param"], "tool_choice");
  const Json odd = {{{"type", "function"}, {"function", {{"name", "f"}, {"parameters", {{"if", true}}}}}}};
  EXPECT_THAT(error({{"tools", odd}, {"tool_choice", "required"}})["message"].get<std::string>(), HasSubstr("`if` is not supported"));
}

}  // namespace
}  // namespace tutti
