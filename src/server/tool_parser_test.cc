#include "server/tool_parser.h"

#include <gtest/gtest.h>

namespace tutti {
namespace {

// The same result however the text is cut into pieces.
ToolParser::Piece parse(const char* parser_name, const std::string& text, size_t piece) {
  const auto parser = ToolParser::make(parser_name);
  ToolParser::Piece all;
  const auto add = [&all](ToolParser::Piece p) {
    all.content += p.content;
    for (ToolCall& call : p.calls) all.calls.push_back(std::move(call));
  };
  for (size_t at = 0; at < text.size(); at += piece)
    add(parser->push(std::string_view(text).substr(at, piece)));
  add(parser->finish());
  return all;
}

TEST(ToolParser, Hermes) {
  const std::string text =
      "Let me see.<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Paris\", \"n\": "
      "2}}\n</tool_call>\n"
      "<tool_call>{\"name\": \"time\", \"arguments\": {}}</tool_call>";
  for (size_t piece = 1; piece < 30; ++piece) {
    const ToolParser::Piece p = parse("hermes", text, piece);
    EXPECT_EQ(p.content, "Let me see.");
    ASSERT_EQ(p.calls.size(), 2u) << piece;
    EXPECT_EQ(p.calls[0].name, "weather");
    EXPECT_EQ(p.calls[0].arguments, "{\"city\":\"Paris\",\"n\":2}");
    EXPECT_EQ(p.calls[1].name, "time");
  }
}

TEST(ToolParser, HermesKeepsWhatIsNoCall) {
  for (const std::string text :
       {"a < b and <tool", "<tool_call>not json</tool_call>", "<tool_call>{\"name\": \"cut o", "plain",
        "<tool_call>{\"arguments\": {}}</tool_call> after"}) {
    for (size_t piece = 1; piece < 20; ++piece) {
      const ToolParser::Piece p = parse("hermes", text, piece);
      EXPECT_EQ(p.content, text);
      EXPECT_TRUE(p.calls.empty());
    }
  }
}

TEST(ToolParser, HermesGivesContentAtOnce) {
  const auto parser = ToolParser::make("hermes");
  EXPECT_EQ(parser->push("Hello <").content, "Hello ");
  EXPECT_EQ(parser->push("b>").content, "<b>");
}

TEST(ToolParser, Llama3Json) {
  for (const std::string prefix : {"", "<|python_tag|>", "\n"}) {
    const std::string text =
        prefix + "{\"name\": \"f\", \"parameters\": {\"q\": \"a;b\"}}; {\"name\": \"g\", \"parameters\": {}}";
    for (size_t piece = 1; piece < 30; ++piece) {
      const ToolParser::Piece p = parse("llama3_json", text, piece);
      EXPECT_EQ(p.content, "");
      ASSERT_EQ(p.calls.size(), 2u) << text;
      EXPECT_EQ(p.calls[0].arguments, "{\"q\":\"a;b\"}");
    }
  }
  EXPECT_EQ(parse("llama3_json", "Hello {\"name\": \"f\"}", 3).content, "Hello {\"name\": \"f\"}");
  EXPECT_EQ(parse("llama3_json", "{not json", 3).content, "{not json");
}

TEST(ToolParser, UnknownNames) {
  EXPECT_EQ(ToolParser::make("pythonic"), nullptr);
  for (const std::string& name : ToolParser::names()) EXPECT_NE(ToolParser::make(name), nullptr);
}

}  // namespace
}  // namespace tutti
