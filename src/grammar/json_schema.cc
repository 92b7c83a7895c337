#include "grammar/json_schema.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <map>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "grammar/json_text.h"
#include "grammar/regex.h"
#include "grammar/schema_merge.h"

namespace tutti::grammar {
namespace {

constexpr int kMaxNesting = 64;
constexpr size_t kMaxRules = 16'384;
constexpr int64_t kMaxCount = 65'536;
// Schemas that are looked into, and pairs that are merged, however often they are referred to.
constexpr int kMaxVisits = 100'000;
constexpr int kMaxMerges = 512;

class SchemaCompiler {
 public:
  SchemaCompiler(const Json& document, const JsonOptions& options) : document_(document) {
    rules_.declare("the schema");
    space_ = space(options);
    const bool compact = !options.whitespace_pattern && !options.any_whitespace;
    comma_ = compact ? text(", ") : sequence({text(","), space_});
    colon_ = compact ? text(": ") : sequence({text(":"), space_});
  }

  Rules run() {
    rules_.define(0, value(document_, 0));
    for (; !waiting_.empty(); waiting_.pop_front()) {
      const auto [rule, schema] = waiting_.front();
      rules_.define(rule, value(*schema, 0));
    }
    return std::move(rules_);
  }

  ExprPtr any_object() {
    any_value();
    return call(any_object_);
  }
  Rules any_object_alone() {
    rules_.define(0, any_object());
    return std::move(rules_);
  }

 private:
  // Blank, or a line break and what indents the next line.
  ExprPtr space(const JsonOptions& options) {
    if (options.whitespace_pattern) return own_rule("whitespace", parse_regex(*options.whitespace_pattern, RegexMatch::kWhole));
    if (!options.any_whitespace) return text("");
    const ExprPtr indent = repeat(one_of(CharSet({{'\t', '\t'}, {' ', ' '}})), 0, 32);
    return own_rule("whitespace", optional(choice({text(" "), sequence({text("\n"), indent})})));
  }

  ExprPtr own_rule(std::string name, ExprPtr body) {
    if (rules_.size() >= kMaxRules) throw InvalidGrammar(fmt::format("it is too large: more than {} parts", kMaxRules));
    const int rule = rules_.declare(std::move(name));
    rules_.define(rule, std::move(body));
    return call(rule);
  }

  ExprPtr value(const Json& schema, int depth) {
    if (depth > kMaxNesting) throw InvalidGrammar(fmt::format("schemas are nested deeper than {} levels", kMaxNesting));
    if (++num_visits_ > kMaxVisits) throw InvalidGrammar(fmt::format("it is too large: more than {} schemas", kMaxVisits));
    if (schema.is_boolean()) return schema.get<bool>() ? any_value() : choice({});
    if (!schema.is_object())
      throw InvalidGrammar("a schema must be an object, true or false, not " + dump_json(schema).substr(0, 60));
    check_keywords(schema);
    if (const auto ref = schema.find("$ref"); ref != schema.end()) {
      if (!constrains_beside(schema, {"$ref", "$defs", "definitions"})) return call(rule_of(*ref));
      return value(merged(resolve(*ref), without(schema, {"$ref", "$defs", "definitions"})), depth + 1);
    }
    for (const char* name : {"anyOf", "oneOf"}) {
      const auto branches = schema.find(name);
      if (branches == schema.end()) continue;
      if (!branches->is_array() || branches->empty()) throw InvalidGrammar(fmt::format("`{}` must be a list of schemas", name));
      const Json others = without(schema, {name});
      const bool alone = !constrains_beside(others, {"$defs", "definitions"});
      std::vector<ExprPtr> ways;
      for (const Json& branch : *branches) ways.push_back(value(alone ? branch : merged(others, followed(branch)), depth + 1));
      return choice(std::move(ways));
    }
    if (const auto parts = schema.find("allOf"); parts != schema.end()) {
      if (!parts->is_array() || parts->empty()) throw InvalidGrammar("`allOf` must be a list of schemas");
      Json all = without(schema, {"allOf"});
      if (parts->size() == 1 && !constrains_beside(all, {"$defs", "definitions"})) return value(parts->front(), depth + 1);
      for (const Json& part : *parts) all = merged(all, followed(part));
      return value(all, depth + 1);
    }
    for (const char* name : {"enum", "const"}) {
      if (const auto given = schema.find(name); given != schema.end()) return known_values(schema, name, *given);
    }
    return of_types(schema, depth);
  }

  Json merged(const Json& a, const Json& b) {
    if (++num_merges_ > kMaxMerges) throw InvalidGrammar(fmt::format("more than {} schemas that hold beside others", kMaxMerges));
    return merge_schemas(a, b);
  }

  // A reference, where a schema is looked into: what it refers to.
  const Json& followed(const Json& schema) const {
    const Json* at = &schema;
    for (int i = 0; at->is_object() && at->contains("$ref") && !constrains_beside(*at, {"$ref", "$defs", "definitions"}); ++i) {
      if (i > kMaxNesting) throw InvalidGrammar("`$ref` goes round in a circle: " + dump_json((*at)["$ref"]));
      at = &resolve((*at)["$ref"]);
    }
    return *at;
  }

  const Json& resolve(const Json& ref) const {
    const std::string name = ref.is_string() ? ref.get<std::string>() : "";
    if (!name.starts_with('#'))
      throw InvalidGrammar(
          fmt::format("`$ref` must begin with # and stay within the schema, not {}", dump_json(ref).substr(0, 80)));
    try {
      const Json::json_pointer pointer(percent_decoded(name.substr(1)));
      if (document_.contains(pointer)) return document_.at(pointer);
    } catch (const Json::exception&) {  // no pointer: below
    }
    throw InvalidGrammar(fmt::format("`$ref` {} refers to nothing in the schema", dump_json(ref).substr(0, 80)));
  }

  static std::string percent_decoded(const std::string& s) {
    std::string out;
    for (size_t i = 0; i < s.size(); ++i) {
      const auto is_hex = [&](size_t k) { return k < s.size() && std::isxdigit(static_cast<unsigned char>(s[k])); };
      if (s[i] == '%' && is_hex(i + 1) && is_hex(i + 2)) {
        out += static_cast<char>(std::stoi(s.substr(i + 1, 2), nullptr, 16));
        i += 2;
      } else {
        out += s[i];
      }
    }
    return out;
  }

  int rule_of(const Json& ref) {
    const Json& target = resolve(ref);
    if (&target == &document_) return 0;
    const auto [it, fresh] = by_ref_.emplace(&target, 0);
    if (fresh) {
      if (rules_.size() >= kMaxRules) throw InvalidGrammar(fmt::format("it is too large: more than {} parts", kMaxRules));
      it->second = rules_.declare(ref.get<std::string>());
      waiting_.emplace_back(it->second, &target);
    }
    return it->second;
  }

  ExprPtr of_types(const Json& schema, int depth) {
    std::vector<ExprPtr> ways;
    const std::vector<std::string> types = types_of(schema);
    const bool numbers_too = std::find(types.begin(), types.end(), "number") != types.end();
    for (const std::string& type : types) {
      if (type == "null") ways.push_back(text("null"));
      if (type == "boolean") ways.push_back(choice({text("true"), text("false")}));
      if (type == "integer" && !numbers_too) ways.push_back(json_integer(bounds(schema)));
      if (type == "number") ways.push_back(json_number(bounds(schema)));
      if (type == "string") ways.push_back(string(schema));
      if (type == "array") ways.push_back(array(schema, depth));
      if (type == "object") ways.push_back(object(schema, depth));
    }
    return types.empty() ? any_value() : ways.size() == 1 ? ways.front() : choice(std::move(ways));
  }

  ExprPtr known_values(const Json& schema, const char* keyword, const Json& given) {
    for (const auto& [key, unused] : schema.items()) {
      if (is_constraint(key) && key != "type" && key != keyword)
        throw InvalidGrammar(fmt::format("`{}` beside `{}` is not supported", key, keyword));
    }
    const bool list = keyword == std::string_view("enum");
    if (list && (!given.is_array() || given.empty())) throw InvalidGrammar("`enum` must be a list of values");
    const auto fits = [types = schema.contains("type") ? types_of(schema) : std::vector<std::string>()](const Json& v) {
      if (types.empty()) return true;
      return std::any_of(types.begin(), types.end(), [&](const std::string& t) {
        if (t == "integer") return v.is_number_integer();
        if (t == "number") return v.is_number();
        return t == v.type_name();
      });
    };
    std::vector<std::string> texts;
    std::vector<ExprPtr> ways;
    const auto take = [&](const Json& v) {
      if (!fits(v)) return;
      if (v.is_structured()) {
        ways.push_back(literal(v));
      } else {
        texts.push_back(dump_json(v));
      }
    };
    if (list) {
      for (const Json& v : given) take(v);
    } else {
      take(given);
    }
    if (!texts.empty()) ways.push_back(any_text(std::move(texts)));
    return ways.size() == 1 ? ways.front() : choice(std::move(ways));
  }

  // This value, with whitespace where it may be.
  ExprPtr literal(const Json& v) {
    if (!v.is_structured()) return text(dump_json(v));
    std::vector<ExprPtr> parts = {text(v.is_object() ? "{" : "["), space_};
    for (auto it = v.begin(); it != v.end(); ++it) {
      if (it != v.begin()) parts.push_back(comma_);
      if (v.is_object()) parts.insert(parts.end(), {text(dump_json(it.key())), colon_});
      parts.push_back(literal(*it));
    }
    parts.insert(parts.end(), {space_, text(v.is_object() ? "}" : "]")});
    return sequence(std::move(parts));
  }

  ExprPtr string(const Json& schema) {
    const int64_t min = count(schema, "minLength", 0), max = count(schema, "maxLength", kUnlimited);
    if (max != kUnlimited && min > max) return choice({});
    const bool has_length = schema.contains("minLength") || schema.contains("maxLength");
    for (const char* name : {"pattern", "format"}) {
      const auto given = schema.find(name);
      if (given == schema.end()) continue;
      if (!given->is_string()) throw InvalidGrammar(fmt::format("`{}` must be a string", name));
      if (name == std::string_view("pattern") && schema.contains("format"))
        throw InvalidGrammar("`format` beside `pattern` is not supported");
      const ExprPtr text_inside = inside(name, given->get<std::string>());
      const Lengths has = lengths_of(*text_inside);
      const bool long_enough = has.min >= min, short_enough = max == kUnlimited || (has.max != kUnlimited && has.max <= max);
      if (!long_enough || !short_enough) {
        throw InvalidGrammar(fmt::format("`{}` beside a `{}` that does not keep to it by itself is not supported",
                                         long_enough ? "maxLength" : "minLength", name));
      }
      return sequence({text("\""), text_inside, text("\"")});
    }
    if (has_length) return json_string(min, max);
    if (any_string_ == nullptr) any_string_ = own_rule("string", json_string());
    return any_string_;
  }

  static ExprPtr inside(std::string_view keyword, const std::string& given) {
    if (keyword == "pattern") {
      try {
        return parse_regex(given, RegexMatch::kSearch, Encoding::kJsonString);
      } catch (const InvalidGrammar& e) {
        throw InvalidGrammar(fmt::format("`pattern` {}: {}", dump_json(given).substr(0, 80), e.what()));
      }
    }
    const auto regex = regex_of_format(given);
    if (!regex)
      throw InvalidGrammar(
          fmt::format("`format` {} is not supported; {} are", dump_json(given).substr(0, 80), fmt::join(known_formats(), ", ")));
    return parse_regex(*regex, RegexMatch::kWhole, Encoding::kJsonString);
  }

  static int64_t count(const Json& schema, const char* name, int64_t otherwise) {
    const auto given = schema.find(name);
    if (given == schema.end()) return otherwise;
    const double number = given->is_number() ? given->get<double>() : -1;
    if (number < 0 || number != static_cast<double>(static_cast<int64_t>(std::min(number, 1e15))))
      throw InvalidGrammar(fmt::format("`{}` must be an integer of at least 0", name));
    if (number > kMaxCount) throw InvalidGrammar(fmt::format("`{}` is supported up to {}", name, kMaxCount));
    return static_cast<int64_t>(number);
  }

  static Bounds bounds(const Json& schema) {
    Bounds b;
    const auto number = [&](const char* name) -> std::optional<double> {
      const auto given = schema.find(name);
      if (given == schema.end()) return std::nullopt;
      if (!given->is_number()) throw InvalidGrammar(fmt::format("`{}` must be a number", name));
      return given->get<double>();
    };
    b.min = number("minimum");
    b.max = number("maximum");
    if (const auto min = number("exclusiveMinimum"); min && (!b.min || *min >= *b.min)) b.min = min, b.excludes_min = true;
    if (const auto max = number("exclusiveMaximum"); max && (!b.max || *max <= *b.max)) b.max = max, b.excludes_max = true;
    return b;
  }

  ExprPtr array(const Json& schema, int depth) {
    const int64_t min = count(schema, "minItems", 0), max = count(schema, "maxItems", kUnlimited);
    std::vector<ExprPtr> fixed;
    const auto items = schema.find("items");
    const bool old_tuple = items != schema.end() && items->is_array();  // before 2020: `items` as a list is a tuple
    if (const auto prefix = old_tuple ? items : schema.find("prefixItems"); prefix != schema.end()) {
      if (!prefix->is_array()) throw InvalidGrammar("`prefixItems` must be a list of schemas");
      for (const Json& item : *prefix) fixed.push_back(value(item, depth + 1));
    }
    const auto num_fixed = static_cast<int64_t>(fixed.size());
    // Tuples without a word about what follows end there, as objects do.
    const bool more = items != schema.end() ? !old_tuple && *items != false : fixed.empty() || min > num_fixed;
    const ExprPtr item = !more ? nullptr : own_rule("items", items != schema.end() ? value(*items, depth + 1) : any_value());
    const int64_t most = more ? max : max == kUnlimited ? num_fixed : std::min(max, num_fixed);
    if (most != kUnlimited && min > most) return choice({});

    // From the back: what may follow item number i.
    ExprPtr rest = text("");
    if (more && (most == kUnlimited || most > num_fixed)) {
      const auto left = [&](int64_t n) { return n == kUnlimited ? n : n - std::max<int64_t>(num_fixed, 1); };
      const ExprPtr following = repeat(sequence({comma_, item}), std::max<int64_t>(0, left(min)), left(most));
      rest = num_fixed > 0 ? following : sequence({item, following});
      if (num_fixed == 0 && min == 0) rest = optional(rest);
    }
    for (int64_t i = std::min(num_fixed, most == kUnlimited ? num_fixed : most) - 1; i >= 0; --i) {
      rest = sequence({fixed[static_cast<size_t>(i)], std::move(rest)});
      if (i > 0) rest = sequence({comma_, std::move(rest)});
      if (i >= min) rest = optional(std::move(rest));
    }
    return own_rule("array", sequence({text("["), space_, std::move(rest), space_, text("]")}));
  }

  struct Member {
    ExprPtr pair;
    bool required;
  };

  ExprPtr object(const Json& schema, int depth) {
    const Json none = Json::object();
    const auto given = schema.find("properties");
    const Json& properties = given == schema.end() ? none : *given;
    if (!properties.is_object()) throw InvalidGrammar("`properties` must be an object of schemas");
    const auto additional = schema.find("additionalProperties");
    std::set<std::string> required;
    if (const auto list = schema.find("required"); list != schema.end()) {
      if (!list->is_array()) throw InvalidGrammar("`required` must be a list of names");
      for (const Json& name : *list) {
        if (!name.is_string()) throw InvalidGrammar("`required` must be a list of names");
        required.insert(name.get<std::string>());
      }
    }
    std::vector<Member> members;
    std::vector<std::string> names;
    for (const auto& [name, property] : properties.items()) {
      names.push_back(name);
      const bool needed = required.erase(name) > 0;
      members.push_back({own_rule("", sequence({text(dump_json(name)), colon_, value(property, depth + 1)})), needed});
    }
    const bool closed = additional == schema.end() ? !names.empty() : *additional == false;
    for (const std::string& name : required) {  // of no property
      if (additional != schema.end() && *additional == false) return choice({});
      names.push_back(name);
      const Json anything = true;
      const Json& kind = additional != schema.end() ? *additional : anything;
      members.push_back({own_rule("", sequence({text(dump_json(name)), colon_, value(kind, depth + 1)})), true});
    }
    ExprPtr other;
    if (!closed) {
      const ExprPtr kind = additional == schema.end() ? any_value() : value(*additional, depth + 1);
      other = own_rule("", sequence({json_key_except(names), colon_, kind}));
    }
    return own_rule("object", sequence({text("{"), space_, members_of(members, other), space_, text("}")}));
  }

  // The members in their order, those that are not required maybe left out, then any number of `other` (if not null).
  ExprPtr members_of(const std::vector<Member>& members, const ExprPtr& other) {
    const ExprPtr more = other ? repeat(sequence({comma_, other}), 0) : text("");
    // after[i]: what may follow a member when number i is next.
    std::vector<ExprPtr> after(members.size() + 1);
    after[members.size()] = more;
    for (size_t i = members.size(); i-- > 0;) {
      ExprPtr pair = sequence({comma_, members[i].pair});
      if (!members[i].required) pair = optional(std::move(pair));
      after[i] = own_rule("", sequence({std::move(pair), after[i + 1]}));
    }
    std::vector<ExprPtr> ways;  // by the first member that is there
    size_t i = 0;
    for (; i < members.size(); ++i) {
      ways.push_back(sequence({members[i].pair, after[i + 1]}));
      if (members[i].required) break;
    }
    if (i == members.size()) {
      if (other) ways.push_back(sequence({other, more}));
      ways.push_back(text(""));
    }
    return choice(std::move(ways));
  }

  ExprPtr any_value() {
    if (any_value_ >= 0) return call(any_value_);
    any_value_ = rules_.declare("value");
    any_object_ = rules_.declare("object");
    const ExprPtr self = call(any_value_);
    if (any_string_ == nullptr) any_string_ = own_rule("string", json_string());
    const ExprPtr pair = own_rule("member", sequence({any_string_, colon_, self}));
    const auto list = [&](const char* open, const ExprPtr& part, const char* close) {
      return sequence({text(open), space_, optional(sequence({part, repeat(sequence({comma_, part}), 0)})), space_, text(close)});
    };
    rules_.define(any_object_, list("{", pair, "}"));
    const ExprPtr array = own_rule("array", list("[", self, "]"));
    rules_.define(any_value_,
                  choice({any_string_, json_number({}), call(any_object_), array, text("true"), text("false"), text("null")}));
    return self;
  }

  const Json& document_;
  Rules rules_;
  ExprPtr space_, comma_, colon_;
  ExprPtr any_string_;
  int any_value_ = -1, any_object_ = -1;
  int num_visits_ = 0, num_merges_ = 0;
  std::map<const Json*, int> by_ref_;
  std::deque<std::pair<int, const Json*>> waiting_;
};

}  // namespace

Rules json_schema_rules(const Json& schema, const JsonOptions& options) { return SchemaCompiler(schema, options).run(); }
Rules json_object_rules(const JsonOptions& options) {
  const Json any = Json::object();
  return SchemaCompiler(any, options).any_object_alone();
}

}  // namespace tutti::grammar
