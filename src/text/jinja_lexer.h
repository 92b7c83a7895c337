// Cuts a template into text, tag borders and the tokens inside tags, with the white-space rules of
// jinja2 under trim_blocks and lstrip_blocks. Called by the parser, once per template.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::jinja {

enum class Tok : uint8_t {
  kData,
  kVariableBegin,
  kVariableEnd,
  kBlockBegin,
  kBlockEnd,
  kName,
  kString,
  kInteger,
  kFloat,
  kOperator,
  kEnd,
};

struct Token {
  Tok type;
  std::string text;  // data, name, string value, digits or operator
  size_t at;         // byte offset in Lexer::source()
};

// Throws ConfigError "chat template, line L, column C: <message>".
[[noreturn]] void syntax_error(std::string_view source, size_t at, const std::string& message);
struct LineColumn {
  int line, column;  // from 1; columns count characters
};
LineColumn line_column(std::string_view source, size_t at);

class Lexer {
 public:
  explicit Lexer(std::string_view source);
  std::vector<Token> run();
  // The template with "\n" for every kind of newline, and without the last one.
  const std::string& source() const { return source_; }

 private:
  void root();
  void comment();
  void raw();
  void tag(bool is_block);
  bool tag_end(bool is_block);
  void tag_token();
  void number(size_t start);
  void string_literal();
  void operator_token();
  size_t digits(size_t pos) const;
  void add(Tok type, std::string text, size_t at) {
    tokens_.push_back({type, std::move(text), at});
  }
  void add_data(size_t begin, size_t end, char sign, bool may_lstrip);
  char sign_at(size_t pos) const;
  bool starts(size_t pos, std::string_view text) const {
    return source_.compare(pos, text.size(), text) == 0;
  }
  size_t skip_space(size_t pos) const;
  // The end of "%}" or "-%}" or "+%}" at pos with the space it eats; npos when there is none.
  size_t closing(size_t pos, std::string_view mark) const;
  [[noreturn]] void error(size_t at, const std::string& message) const {
    syntax_error(source_, at, message);
  }

  std::string source_;
  size_t pos_ = 0;
  bool line_starting_ = true;
  std::string open_;  // closing brackets that are due
  std::vector<Token> tokens_;
};

}  // namespace tutti::jinja
