#include "text/jinja_parser.h"

#include <algorithm>

#include "base/error.h"
#include "text/jinja_resolver.h"

namespace tutti::jinja {
namespace {

constexpr int kMaxTagNesting = 100;

std::string describe(const Token& token) {
  switch (token.type) {
    case Tok::kEnd:
      return "the end of the template";
    case Tok::kData:
      return "text";
    case Tok::kVariableBegin:
      return "\"{{\"";
    case Tok::kVariableEnd:
      return "\"}}\"";
    case Tok::kBlockBegin:
      return "\"{%\"";
    case Tok::kBlockEnd:
      return "\"%}\"";
    case Tok::kString:
      return "a string";
    default:
      return "\"" + token.text + "\"";
  }
}

class TemplateParser {
 public:
  explicit TemplateParser(Lexer& lexer) : in_(lexer.run(), lexer.source()), expressions_(in_) {}

  Body run() {
    Body body = statements({});
    if (!in_.is(Tok::kEnd)) in_.unexpected("the end of the template");
    return body;
  }

 private:
  using Names = std::vector<std::string_view>;

  // Up to a tag named in `ends`, whose name is then the current token; or, without any, to the end.
  Body statements(const Names& ends) {
    if (++nesting_ > kMaxTagNesting)
      in_.error("tags are nested deeper than " + std::to_string(kMaxTagNesting) + " levels");
    Body body;
    while (!in_.is(Tok::kEnd)) {
      if (in_.is(Tok::kData)) {
        auto text = std::make_unique<Stmt>(StmtKind::kText, in_.at());
        text->text = in_.next().text;
        body.push_back(std::move(text));
      } else if (in_.is(Tok::kVariableBegin)) {
        auto output = std::make_unique<Stmt>(StmtKind::kOutput, in_.next().at);
        output->exprs.push_back(expressions_.tuple());
        in_.expect(Tok::kVariableEnd);
        body.push_back(std::move(output));
      } else {
        const size_t at = in_.expect(Tok::kBlockBegin).at;
        const auto is_end = [&](std::string_view name) { return in_.is_name(name); };
        if (std::any_of(ends.begin(), ends.end(), is_end)) {
          --nesting_;
          return body;
        }
        body.push_back(statement(at));
        in_.expect(Tok::kBlockEnd);
      }
    }
    if (!ends.empty()) {
      std::string wanted;
      for (const auto name : ends) wanted += (wanted.empty() ? "" : " or ") + std::string(name);
      in_.error("the template ends inside a tag: expected " + wanted);
    }
    --nesting_;
    return body;
  }

  // The body of a tag that is being read, up to one of `ends`.
  Body tag_body(const Names& ends) {
    in_.skip_op(":");
    in_.expect(Tok::kBlockEnd);
    return statements(ends);
  }

  Body tag_body_through(std::string_view end) {
    Body body = tag_body({end});
    in_.next();
    return body;
  }

  StmtPtr statement(size_t at) {
    struct Tag {
      std::string_view name;
      StmtPtr (TemplateParser::*parse)(size_t);
    };
    static constexpr Tag kTags[] = {
        {"for", &TemplateParser::parse_for},     {"if", &TemplateParser::parse_if},
        {"set", &TemplateParser::parse_set},     {"macro", &TemplateParser::parse_macro},
        {"call", &TemplateParser::parse_call},   {"filter", &TemplateParser::parse_filter},
        {"with", &TemplateParser::parse_with},   {"block", &TemplateParser::parse_block},
        {"print", &TemplateParser::parse_print}, {"generation", &TemplateParser::parse_generation},
        {"break", &TemplateParser::parse_break}, {"continue", &TemplateParser::parse_continue},
    };
    static constexpr std::string_view kNeedFiles[] = {"extends", "include", "import", "from"};
    if (!in_.is(Tok::kName)) in_.unexpected("the name of a tag");
    const std::string name = in_.current().text;
    for (const Tag& tag : kTags) {
      if (name != tag.name) continue;
      in_.next();
      return (this->*tag.parse)(at);
    }
    if (std::find(std::begin(kNeedFiles), std::end(kNeedFiles), name) != std::end(kNeedFiles)) {
      in_.error("the tag \"" + name + "\" reads other templates, which a chat template cannot");
    }
    if (name == "autoescape")
      in_.error("the tag \"autoescape\" is for HTML and not supported in chat templates");
    in_.error("unknown tag \"" + name + "\"");
  }

  StmtPtr parse_for(size_t at) {
    auto s = std::make_unique<Stmt>(StmtKind::kFor, at);
    s->target = expressions_.target(TupleEnd::kIn);
    in_.expect_name("in");
    s->iter = expressions_.tuple(false, TupleEnd::kRecursive);
    if (in_.skip_name("if")) s->test = expressions_.expression();
    s->recursive = in_.skip_name("recursive");
    s->body = tag_body({"endfor", "else"});
    if (in_.next().text == "else") s->else_body = tag_body_through("endfor");
    return s;
  }

  StmtPtr parse_if(size_t at) {
    auto s = std::make_unique<Stmt>(StmtKind::kIf, at);
    while (true) {
      Branch branch;
      branch.test = expressions_.tuple(false);
      branch.body = tag_body({"elif", "else", "endif"});
      s->branches.push_back(std::move(branch));
      const std::string end = in_.next().text;
      if (end == "elif") continue;
      if (end == "else") s->else_body = tag_body_through("endif");
      return s;
    }
  }

  StmtPtr parse_set(size_t at) {
    auto s = std::make_unique<Stmt>(StmtKind::kSet, at);
    s->target = expressions_.target(TupleEnd::kTag, true);
    if (in_.skip_op("=")) {
      s->value = expressions_.tuple();
      return s;
    }
    s->kind = StmtKind::kSetBlock;
    s->filter = expressions_.filters(nullptr);
    s->body = tag_body_through("endset");
    return s;
  }

  void parse_signature(Stmt& s) {
    in_.expect_op("(");
    while (!in_.is_op(")")) {
      if (!s.params.empty()) in_.expect_op(",");
      s.params.push_back(expressions_.name_target());
      if (in_.skip_op("=")) {
        s.defaults.push_back(expressions_.expression());
      } else if (!s.defaults.empty()) {
        in_.error("a parameter without a default follows one with a default");
      }
    }
    in_.expect_op(")");
  }

  StmtPtr parse_macro(size_t at) {
    auto s = std::make_unique<Stmt>(StmtKind::kMacro, at);
    s->target = expressions_.name_target();
    s->name = s->target->name;
    parse_signature(*s);
    s->body = tag_body_through("endmacro");
    return s;
  }

  StmtPtr parse_call(size_t at) {
    auto s = std::make_unique<Stmt>(StmtKind::kCallBlock, at);
    if (in_.is_op("(")) parse_signature(*s);
    s->value = expressions_.expression();
    if (s->value->kind != ExprKind::kCall) in_.error(s->value->at, "expected a call");
    s->body = tag_body_through("endcall");
    return s;
  }

  StmtPtr parse_generation(size_t at) {
    auto s = std::make_unique<Stmt>(StmtKind::kCallBlock, at);
    s->body = tag_body_through("endgeneration");
    return s;
  }

  StmtPtr parse_filter(size_t at) {
    auto s = std::make_unique<Stmt>(StmtKind::kFilterBlock, at);
    s->filter = expressions_.filters(nullptr, true);
    s->body = tag_body_through("endfilter");
    return s;
  }

  StmtPtr parse_with(size_t at) {
    auto s = std::make_unique<Stmt>(StmtKind::kWith, at);
    while (!in_.is(Tok::kBlockEnd)) {
      if (!s->exprs.empty()) in_.expect_op(",");
      s->exprs.push_back(expressions_.target());
      in_.expect_op("=");
      s->exprs.push_back(expressions_.expression());
    }
    s->body = tag_body_through("endwith");
    return s;
  }

  StmtPtr parse_block(size_t at) {
    auto s = std::make_unique<Stmt>(StmtKind::kBlock, at);
    s->name = in_.expect(Tok::kName).text;
    if (in_.skip_name("scoped") || in_.is_name("required")) {
      in_.error(at,
                "scoped and required blocks are for template inheritance, which a chat template "
                "does not have");
    }
    s->body = tag_body_through("endblock");
    in_.skip_name(s->name);
    return s;
  }

  StmtPtr parse_print(size_t at) {
    auto s = std::make_unique<Stmt>(StmtKind::kOutput, at);
    while (!in_.is(Tok::kBlockEnd)) {
      if (!s->exprs.empty()) in_.expect_op(",");
      s->exprs.push_back(expressions_.expression());
    }
    return s;
  }

  StmtPtr parse_break(size_t at) { return std::make_unique<Stmt>(StmtKind::kBreak, at); }
  StmtPtr parse_continue(size_t at) { return std::make_unique<Stmt>(StmtKind::kContinue, at); }

  TokenStream in_;
  ExpressionParser expressions_;
  int nesting_ = 0;
};

}  // namespace

const Token& TokenStream::next() {
  const Token& token = tokens_[i_];
  if (i_ + 1 < tokens_.size()) ++i_;
  return token;
}

bool TokenStream::skip_name(std::string_view name) {
  if (!is_name(name)) return false;
  next();
  return true;
}

bool TokenStream::skip_op(std::string_view op) {
  if (!is_op(op)) return false;
  next();
  return true;
}

const Token& TokenStream::expect(Tok type) {
  if (is(type)) return next();
  switch (type) {
    case Tok::kName:
      unexpected("a name");
    case Tok::kBlockEnd:
      unexpected("\"%}\"");
    case Tok::kVariableEnd:
      unexpected("\"}}\"");
    default:
      unexpected("a tag");
  }
}

void TokenStream::expect_name(std::string_view name) {
  if (!skip_name(name)) unexpected("\"" + std::string(name) + "\"");
}

void TokenStream::expect_op(std::string_view op) {
  if (!skip_op(op)) unexpected("\"" + std::string(op) + "\"");
}

void TokenStream::unexpected(const std::string& wanted) const {
  error("expected " + wanted + ", found " + describe(current()));
}

Template compile(std::string_view source) {
  Lexer lexer(source);
  Template out;
  TemplateParser parser(lexer);
  out.body = parser.run();
  out.source = lexer.source();
  resolve(out);
  return out;
}

}  // namespace tutti::jinja
