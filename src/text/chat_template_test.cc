#include "text/chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "base/error.h"
#include "base/file.h"

namespace tutti {
namespace {

using ::testing::HasSubstr;

std::string render(const std::string& source, const Json& context = Json::object()) {
  return ChatTemplate(source).render(context);
}

std::string error_of(const std::string& source, const Json& context = Json::object()) {
  try {
    render(source, context);
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

Json conversation() {
  return {{"messages",
           {{{"role", "user"}, {"content", "Hello"}},
            {{"role", "assistant"}, {"content", "Hi."}},
            {{"role", "user"}, {"content", "  Wörter? "}}}},
          {"add_generation_prompt", true},
          {"bos_token", "<s>"},
          {"eos_token", "</s>"}};
}

TEST(ChatTemplate, DefaultSystemMessageLikeSmolLm2) {
  const std::string source =
      "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
      "{{ '<|im_start|>system\nYou are helpful.<|im_end|>\n' }}{% endif %}"
      "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% "
      "endfor %}"
      "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";
  EXPECT_EQ(render(source, conversation()),
            "<|im_start|>system\nYou are helpful.<|im_end|>\n<|im_start|>user\nHello<|im_end|>\n"
            "<|im_start|>assistant\nHi.<|im_end|>\n<|im_start|>user\n  Wörter? "
            "<|im_end|>\n<|im_start|>assistant\n");
}

TEST(ChatTemplate, Chatml) {
  EXPECT_EQ(render(ChatTemplate::chatml(), conversation()),
            "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\nHi.<|im_end|>\n"
            "<|im_start|>user\n  Wörter? <|im_end|>\n<|im_start|>assistant\n");
}

TEST(ChatTemplate, AlternatingRolesAreEnforcedByTheTemplate) {
  const std::string source =
      "{{ bos_token }}{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
      "{{ raise_exception('Roles must alternate') }}{% endif %}{{ '[' ~ m.content | trim ~ ']' "
      "}}{% endfor %}";
  EXPECT_EQ(render(source, conversation()), "<s>[Hello][Hi.][Wörter?]");
  Json twice = conversation();
  twice["messages"][1]["role"] = "user";
  EXPECT_EQ(error_of(source, twice), "Roles must alternate");
}

TEST(ChatTemplate, ToolsAsJson) {
  const Json context = {
      {"tools", {{{"type", "function"}, {"function", {{"name", "f<x>"}, {"n", 1.0}}}}}}};
  EXPECT_EQ(render("{% for t in tools %}{{ t | tojson }}{% endfor %}", context),
            R"({"type": "function", "function": {"name": "f<x>", "n": 1.0}})");
  EXPECT_EQ(render("{{ tools[0].function | tojson(indent=2) }}", context),
            "{\n  \"name\": \"f<x>\",\n  \"n\": 1.0\n}");
}

TEST(ChatTemplate, GenerationTagOnlyMarksItsBody) {
  EXPECT_EQ(render("a{% generation %}{% set x = 2 %}{{ x }}{% endgeneration %}{{ x }}"), "a2");
}

TEST(ChatTemplate, CompileErrorsNameLineAndColumn) {
  EXPECT_THAT(error_of("ok\n  {{ 1 + }}"),
              HasSubstr("line 2, column 10: expected an expression, found \"}}\""));
  EXPECT_THAT(error_of("{% for x in y %}"),
              HasSubstr("line 1, column 17: the template ends inside a tag"));
  EXPECT_THAT(error_of("{{ x | nosuch }}"), HasSubstr("there is no filter 'nosuch'"));
  EXPECT_THAT(error_of("{% include 'x' %}"), HasSubstr("reads other templates"));
  EXPECT_THAT(error_of("{% break %}"), HasSubstr("outside a loop"));
  EXPECT_THROW(ChatTemplate("{% if %}"), ConfigError);
}

TEST(ChatTemplate, RunErrorsAreTheRequestsFault) {
  EXPECT_THROW(render("{{ x.y }}"), InvalidRequest);
  EXPECT_EQ(error_of("\n\n{{ x.y }}"), "chat template, line 3: 'x' is undefined");
  EXPECT_THAT(error_of("{{ [1].append(2) }}"),
              HasSubstr("access to attribute 'append' of 'list' object is unsafe"));
}

TEST(ChatTemplate, LimitsStopTheRender) {
  EXPECT_THAT(
      error_of("{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"),
      HasSubstr("loops too long"));
  EXPECT_THAT(error_of("{{ range(1000000) }}"), HasSubstr("Range too big"));
  EXPECT_THAT(error_of("{{ 'abcdefgh' * 100000000 }}"), HasSubstr("over the limit"));
  EXPECT_THAT(error_of("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}"),
              HasSubstr("nested deeper"));
  EXPECT_THAT(error_of("{% set ns = namespace(x=[]) %}{% for i in range(999) %}{% set ns.x = "
                       "[ns.x] %}{% endfor %}"),
              HasSubstr("nested deeper"));
  EXPECT_THAT(error_of("{{ " + std::string(1000, '(') + "1" + std::string(1000, ')') + " }}"),
              HasSubstr("nested deeper"));
}

class SourceFromFolder : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern =
        (std::filesystem::temp_directory_path() / "tutti-template-XXXXXX").string();
    folder_ = mkdtemp(pattern.data());
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  void write(const std::string& name, const std::string& text) {
    write_file(folder_ + "/" + name, text);
  }

  std::string folder_;
};

TEST_F(SourceFromFolder, NothingThere) { EXPECT_EQ(ChatTemplate::source_from_folder(folder_), ""); }

TEST_F(SourceFromFolder, TokenizerConfig) {
  write("tokenizer_config.json", R"({"chat_template": "A"})");
  EXPECT_EQ(ChatTemplate::source_from_folder(folder_), "A");
  write(
      "tokenizer_config.json",
      R"({"chat_template": [{"name": "rag", "template": "R"}, {"name": "default", "template": "D"}]})");
  EXPECT_EQ(ChatTemplate::source_from_folder(folder_), "D");
  write("tokenizer_config.json", R"({"chat_template": 3})");
  EXPECT_THROW(ChatTemplate::source_from_folder(folder_), ConfigError);
}

TEST_F(SourceFromFolder, FilesOfTheirOwnComeFirst) {
  write("tokenizer_config.json", R"({"chat_template": "A"})");
  write("chat_template.json", R"({"chat_template": "B"})");
  EXPECT_EQ(ChatTemplate::source_from_folder(folder_), "B");
  write("chat_template.jinja", "C");
  EXPECT_EQ(ChatTemplate::source_from_folder(folder_), "C");
}

}  // namespace
}  // namespace tutti
