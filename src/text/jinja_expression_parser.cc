#include <algorithm>
#include <cstdlib>

#include "base/error.h"
#include "text/jinja_parser.h"

namespace tutti::jinja {
namespace {

constexpr int kMaxNesting = 150;  // brackets in brackets
constexpr int kMaxDepth =
    400;  // of an expression's tree, which a long a + b + c + ... makes deep too

Int parse_integer(const Token& token, const TokenStream& in) {
  const std::string& text = token.text;
  const char prefix = text.size() > 2 ? static_cast<char>(text[1] | 0x20) : '\0';
  const int base = prefix == 'x' ? 16 : prefix == 'o' ? 8 : prefix == 'b' ? 2 : 10;
  Int value = 0;
  for (size_t i = base == 10 ? 0 : 2; i < text.size(); ++i) {
    const char c = static_cast<char>(text[i] | 0x20);
    const int digit = c >= 'a' ? c - 'a' + 10 : text[i] - '0';
    if (__builtin_mul_overflow(value, Int{base}, &value) ||
        __builtin_add_overflow(value, Int{digit}, &value)) {
      in.error(token.at, "the number does not fit into 128 bits");
    }
  }
  return value;
}

bool is_literal_name(const std::string& name) {
  return name == "true" || name == "True" || name == "false" || name == "False" || name == "none" ||
         name == "None";
}

int depth_of(const ExprPtr& e) { return e ? e->depth : 0; }

}  // namespace

ExprPtr ExpressionParser::make(ExprKind kind, size_t at, std::vector<ExprPtr> operands) {
  auto e = std::make_unique<Expr>(kind, at);
  e->operands = std::move(operands);
  return finish(std::move(e));
}

// Computes the depth of a node whose parts are all in place.
ExprPtr ExpressionParser::finish(ExprPtr e) {
  int deepest = std::max(depth_of(e->arguments.star), depth_of(e->arguments.star_star));
  for (const auto& operand : e->operands) deepest = std::max(deepest, depth_of(operand));
  for (const auto& arg : e->arguments.positional) deepest = std::max(deepest, depth_of(arg));
  for (const auto& arg : e->arguments.named) deepest = std::max(deepest, depth_of(arg.second));
  e->depth = deepest + 1;
  if (e->depth > kMaxDepth)
    in_.error(e->at, "the expression is too deep: over " + std::to_string(kMaxDepth) + " levels");
  return e;
}

template <typename... Operands>
static std::vector<ExprPtr> operands(Operands... each) {
  std::vector<ExprPtr> out;
  (out.push_back(std::move(each)), ...);
  return out;
}

ExprPtr ExpressionParser::expression(bool with_conditional) {
  if (++nesting_ > kMaxNesting)
    in_.error("brackets are nested deeper than " + std::to_string(kMaxNesting) + " levels");
  ExprPtr e = with_conditional ? conditional() : logical_or();
  --nesting_;
  return e;
}

ExprPtr ExpressionParser::conditional() {
  size_t at = in_.at();
  ExprPtr e = logical_or();
  while (in_.skip_name("if")) {
    ExprPtr condition = logical_or();
    ExprPtr otherwise = in_.skip_name("else") ? expression() : nullptr;
    e = make(ExprKind::kConditional, at,
             operands(std::move(condition), std::move(e), std::move(otherwise)));
    at = in_.at();
  }
  return e;
}

ExprPtr ExpressionParser::logical_or() {
  ExprPtr e = logical_and();
  while (in_.is_name("or")) {
    const size_t at = in_.next().at;
    e = make(ExprKind::kOr, at, operands(std::move(e), logical_and()));
  }
  return e;
}

ExprPtr ExpressionParser::logical_and() {
  ExprPtr e = logical_not();
  while (in_.is_name("and")) {
    const size_t at = in_.next().at;
    e = make(ExprKind::kAnd, at, operands(std::move(e), logical_not()));
  }
  return e;
}

ExprPtr ExpressionParser::logical_not() {
  if (!in_.is_name("not")) return comparison();
  const size_t at = in_.next().at;
  if (++nesting_ > kMaxNesting) in_.error("too many \"not\" in a row");
  ExprPtr e = make(ExprKind::kNot, at, operands(logical_not()));
  --nesting_;
  return e;
}

ExprPtr ExpressionParser::comparison() {
  static constexpr std::pair<std::string_view, Op> kOps[] = {{"==", Op::kEq}, {"!=", Op::kNe},
                                                             {"<", Op::kLt},  {"<=", Op::kLe},
                                                             {">", Op::kGt},  {">=", Op::kGe}};
  const size_t at = in_.at();
  auto e = std::make_unique<Expr>(ExprKind::kCompare, at);
  e->operands.push_back(sum());
  while (true) {
    const auto op = std::find_if(std::begin(kOps), std::end(kOps),
                                 [&](const auto& o) { return in_.is_op(o.first); });
    if (op != std::end(kOps)) {
      in_.next();
      e->ops.push_back(op->second);
    } else if (in_.skip_name("in")) {
      e->ops.push_back(Op::kIn);
    } else if (in_.is_name("not") && in_.look().type == Tok::kName && in_.look().text == "in") {
      in_.next();
      in_.next();
      e->ops.push_back(Op::kNotIn);
    } else {
      break;
    }
    e->operands.push_back(sum());
  }
  if (e->ops.empty()) return std::move(e->operands[0]);
  return finish(std::move(e));
}

template <typename Next>
ExprPtr ExpressionParser::left_associative(
    std::initializer_list<std::pair<std::string_view, Op>> ops, Next next) {
  ExprPtr e = next();
  while (true) {
    const auto op =
        std::find_if(ops.begin(), ops.end(), [&](const auto& o) { return in_.is_op(o.first); });
    if (op == ops.end()) return e;
    const size_t at = in_.next().at;
    e = make(ExprKind::kBinary, at, operands(std::move(e), next()));
    e->op = op->second;
  }
}

ExprPtr ExpressionParser::sum() {
  return left_associative({{"+", Op::kAdd}, {"-", Op::kSub}}, [this] { return concatenation(); });
}

ExprPtr ExpressionParser::concatenation() {
  const size_t at = in_.at();
  std::vector<ExprPtr> parts = operands(product());
  while (in_.skip_op("~")) parts.push_back(product());
  if (parts.size() == 1) return std::move(parts[0]);
  return make(ExprKind::kConcat, at, std::move(parts));
}

ExprPtr ExpressionParser::product() {
  return left_associative(
      {{"*", Op::kMul}, {"/", Op::kDiv}, {"//", Op::kFloorDiv}, {"%", Op::kMod}},
      [this] { return power(); });
}

ExprPtr ExpressionParser::power() {
  return left_associative({{"**", Op::kPow}}, [this] { return unary(); });
}

ExprPtr ExpressionParser::unary(bool with_filter) {
  const size_t at = in_.at();
  ExprPtr e;
  if (in_.is_op("-") || in_.is_op("+")) {
    const Op op = in_.next().text == "-" ? Op::kNeg : Op::kPos;
    if (++nesting_ > kMaxNesting) in_.error("too many signs in a row");
    e = make(ExprKind::kUnary, at, operands(unary(false)));
    --nesting_;
    e->op = op;
  } else {
    e = primary();
  }
  e = postfix(std::move(e));
  return with_filter ? filters_and_tests(std::move(e)) : std::move(e);
}

ExprPtr ExpressionParser::name(bool with_namespace) {
  const Token& token = in_.next();
  if (is_literal_name(token.text)) {
    ExprPtr e = make(ExprKind::kConst, token.at);
    const char c = static_cast<char>(token.text[0] | 0x20);
    e->constant = c == 'n' ? Value(None{}) : Value(c == 't');
    e->name = token.text;  // "true" cannot be assigned to
    return e;
  }
  const bool is_attribute = with_namespace && in_.skip_op(".");
  ExprPtr e = make(is_attribute ? ExprKind::kNamespaceAttr : ExprKind::kName, token.at);
  e->name = token.text;
  e->undefined = Value::undefined(quote(token.text) + " is undefined");
  if (is_attribute) e->attribute = in_.expect(Tok::kName).text;
  return e;
}

ExprPtr ExpressionParser::primary(bool with_namespace) {
  const size_t at = in_.at();
  switch (in_.current().type) {
    case Tok::kName:
      return name(with_namespace);
    case Tok::kString: {
      std::string text;
      while (in_.is(Tok::kString)) text += in_.next().text;
      ExprPtr e = make(ExprKind::kConst, at);
      e->constant = Value(std::move(text));
      return e;
    }
    case Tok::kInteger: {
      ExprPtr e = make(ExprKind::kConst, at);
      e->constant = Value(parse_integer(in_.next(), in_));
      return e;
    }
    case Tok::kFloat: {
      ExprPtr e = make(ExprKind::kConst, at);
      e->constant = Value(std::strtod(in_.next().text.c_str(), nullptr));
      return e;
    }
    default:
      break;
  }
  if (in_.skip_op("(")) {
    ExprPtr e = tuple(true, TupleEnd::kTag, true);
    in_.expect_op(")");
    return e;
  }
  if (in_.is_op("[")) return list();
  if (in_.is_op("{")) return dict();
  in_.unexpected("an expression");
}

bool ExpressionParser::at_tuple_end(TupleEnd end) const {
  if (in_.is(Tok::kVariableEnd) || in_.is(Tok::kBlockEnd) || in_.is_op(")")) return true;
  return (end == TupleEnd::kIn && in_.is_name("in")) ||
         (end == TupleEnd::kRecursive && in_.is_name("recursive"));
}

ExprPtr ExpressionParser::tuple(bool with_conditional, TupleEnd end, bool in_parentheses) {
  const size_t at = in_.at();
  std::vector<ExprPtr> items;
  bool is_tuple = false;
  while (!at_tuple_end(end)) {
    items.push_back(expression(with_conditional));
    if (!in_.skip_op(",")) break;
    is_tuple = true;
  }
  if (!is_tuple && !items.empty()) return std::move(items[0]);
  if (!is_tuple && !in_parentheses) in_.unexpected("an expression");
  return make(ExprKind::kTuple, at, std::move(items));
}

// Names and namespace attributes only: what may be assigned to.
ExprPtr ExpressionParser::simple_tuple(TupleEnd end, bool with_namespace) {
  const size_t at = in_.at();
  std::vector<ExprPtr> items;
  bool is_tuple = false;
  while (!at_tuple_end(end)) {
    items.push_back(primary(with_namespace));
    if (!in_.skip_op(",")) break;
    is_tuple = true;
  }
  if (!is_tuple && !items.empty()) return std::move(items[0]);
  if (!is_tuple) in_.unexpected("a name");
  return make(ExprKind::kTuple, at, std::move(items));
}

void ExpressionParser::check_target(const Expr& e) const {
  if (e.kind == ExprKind::kTuple) {
    for (const auto& item : e.operands) check_target(*item);
    return;
  }
  if (e.kind == ExprKind::kName || e.kind == ExprKind::kNamespaceAttr) return;
  in_.error(e.at, "cannot assign to " + (e.name.empty() ? "this expression" : quote(e.name)));
}

static void mark_stored(Expr& e) {
  if (e.kind == ExprKind::kName) e.is_store = true;
  for (auto& item : e.operands) mark_stored(*item);
}

ExprPtr ExpressionParser::target(TupleEnd end, bool with_namespace) {
  ExprPtr e = simple_tuple(end, with_namespace);
  check_target(*e);
  mark_stored(*e);
  return e;
}

ExprPtr ExpressionParser::name_target() {
  if (!in_.is(Tok::kName)) in_.unexpected("a name");
  ExprPtr e = name(false);
  check_target(*e);
  mark_stored(*e);
  return e;
}

ExprPtr ExpressionParser::list() {
  const size_t at = in_.next().at;
  std::vector<ExprPtr> items;
  while (!in_.is_op("]")) {
    items.push_back(expression());
    if (!in_.skip_op(",")) break;
  }
  in_.expect_op("]");
  return make(ExprKind::kList, at, std::move(items));
}

ExprPtr ExpressionParser::dict() {
  const size_t at = in_.next().at;
  std::vector<ExprPtr> items;
  while (!in_.is_op("}")) {
    items.push_back(expression());
    in_.expect_op(":");
    items.push_back(expression());
    if (!in_.skip_op(",")) break;
  }
  in_.expect_op("}");
  return make(ExprKind::kDict, at, std::move(items));
}

ExprPtr ExpressionParser::postfix(ExprPtr e) {
  while (true) {
    if (in_.is_op(".") || in_.is_op("[")) {
      e = subscript(std::move(e));
    } else if (in_.is_op("(")) {
      e = call(std::move(e));
    } else {
      return e;
    }
  }
}

ExprPtr ExpressionParser::filters_and_tests(ExprPtr e) {
  while (true) {
    if (in_.is_op("|")) {
      e = filters(std::move(e));
    } else if (in_.is_name("is")) {
      e = test(std::move(e));
    } else if (in_.is_op("(")) {
      e = call(std::move(e));
    } else {
      return e;
    }
  }
}

ExprPtr ExpressionParser::subscript(ExprPtr e) {
  const size_t at = in_.at();
  if (in_.skip_op(".")) {
    const Token& token = in_.next();
    if (token.type == Tok::kName) {
      ExprPtr attribute = make(ExprKind::kGetAttr, at, operands(std::move(e)));
      attribute->name = token.text;
      return attribute;
    }
    if (token.type != Tok::kInteger)
      in_.error(token.at, "expected a name or a number behind the dot");
    ExprPtr index = make(ExprKind::kConst, token.at);
    index->constant = Value(parse_integer(token, in_));
    return make(ExprKind::kGetItem, at, operands(std::move(e), std::move(index)));
  }
  in_.expect_op("[");
  if (in_.is_op("]")) {
    in_.next();
    return make(ExprKind::kGetItem, at, operands(std::move(e), make(ExprKind::kTuple, at)));
  }
  ExprPtr item = subscribed(std::move(e));
  if (in_.is_op(",")) {
    if (item->kind == ExprKind::kSlice) in_.error("a slice cannot be part of a tuple");
    std::vector<ExprPtr> keys = operands(std::move(item->operands[1]));
    while (in_.skip_op(",")) keys.push_back(expression());
    item->operands[1] = make(ExprKind::kTuple, at, std::move(keys));
    item = finish(std::move(item));
  }
  in_.expect_op("]");
  return item;
}

// One index, or a slice with up to three bounds.
ExprPtr ExpressionParser::subscribed(ExprPtr e) {
  const size_t at = in_.at();
  const auto bound = [&]() -> ExprPtr {
    return in_.is_op(":") || in_.is_op("]") || in_.is_op(",") ? nullptr : expression();
  };
  ExprPtr first = in_.is_op(":") ? nullptr : expression();
  if (!in_.skip_op(":"))
    return make(ExprKind::kGetItem, at, operands(std::move(e), std::move(first)));
  ExprPtr stop = bound();
  ExprPtr step = in_.skip_op(":") ? bound() : nullptr;
  return make(ExprKind::kSlice, at,
              operands(std::move(e), std::move(first), std::move(stop), std::move(step)));
}

Arguments ExpressionParser::arguments() {
  const size_t at = in_.at();
  in_.expect_op("(");
  Arguments out;
  const auto ensure = [&](bool ok) {
    if (!ok) in_.error(at, "invalid order of arguments in a call");
  };
  bool first = true;
  while (!in_.is_op(")")) {
    if (!first) {
      in_.expect_op(",");
      if (in_.is_op(")")) break;  // a trailing comma
    }
    first = false;
    if (in_.skip_op("*")) {
      ensure(!out.star && !out.star_star);
      out.star = expression();
    } else if (in_.skip_op("**")) {
      ensure(!out.star_star);
      out.star_star = expression();
    } else if (in_.is(Tok::kName) && in_.look().type == Tok::kOperator && in_.look().text == "=") {
      ensure(!out.star_star);
      std::string key = in_.next().text;
      in_.next();
      for (const auto& other : out.named) {
        if (other.first == key) in_.error("keyword argument repeated: " + key);
      }
      out.named.emplace_back(std::move(key), expression());
    } else {
      ensure(!out.star && !out.star_star && out.named.empty());
      out.positional.push_back(expression());
    }
  }
  in_.expect_op(")");
  return out;
}

ExprPtr ExpressionParser::call(ExprPtr e) {
  ExprPtr out = std::make_unique<Expr>(ExprKind::kCall, in_.at());
  out->operands.push_back(std::move(e));
  out->arguments = arguments();
  return finish(std::move(out));
}

std::string ExpressionParser::dotted_name() {
  std::string name = in_.expect(Tok::kName).text;
  while (in_.skip_op(".")) name += "." + in_.expect(Tok::kName).text;
  return name;
}

ExprPtr ExpressionParser::filters(ExprPtr input, bool first) {
  while (first || in_.skip_op("|")) {
    first = false;
    ExprPtr e = std::make_unique<Expr>(ExprKind::kFilter, in_.at());
    e->name = dotted_name();
    e->operands.push_back(std::move(input));
    if (in_.is_op("(")) e->arguments = arguments();
    input = finish(std::move(e));
  }
  return input;
}

ExprPtr ExpressionParser::test(ExprPtr input) {
  ExprPtr e = std::make_unique<Expr>(ExprKind::kTest, in_.next().at);
  const bool negated = in_.skip_name("not");
  e->name = dotted_name();
  e->operands.push_back(std::move(input));
  const bool starts_argument = in_.is(Tok::kName) || in_.is(Tok::kString) ||
                               in_.is(Tok::kInteger) || in_.is(Tok::kFloat) || in_.is_op("[") ||
                               in_.is_op("{");
  if (in_.is_op("(")) {
    e->arguments = arguments();
  } else if (starts_argument && !in_.is_name("else") && !in_.is_name("or") && !in_.is_name("and")) {
    if (in_.is_name("is")) in_.error("You cannot chain multiple tests with is");
    e->arguments.positional.push_back(postfix(primary()));
  }
  const size_t at = e->at;
  ExprPtr out = finish(std::move(e));
  return negated ? make(ExprKind::kNot, at, operands(std::move(out))) : std::move(out);
}

}  // namespace tutti::jinja
