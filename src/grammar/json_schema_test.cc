#include "grammar/json_schema.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "grammar/testing_languages.h"

namespace tutti::grammar {
namespace {

using testing::HasSubstr;

void expect(const char* schema, std::initializer_list<const char*> yes, std::initializer_list<const char*> no) {
  const auto automaton = of_schema(schema);
  for (const char* text : yes) EXPECT_TRUE(automaton->matches(text)) << schema << " on " << text;
  for (const char* text : no) EXPECT_FALSE(automaton->matches(text)) << schema << " on " << text;
}

TEST(JsonSchema, Scalars) {
  expect(R"({"type": "null"})", {"null"}, {"", "nul", "true", "0"});
  expect(R"({"type": "boolean"})", {"true", "false"}, {"1", "null"});
  expect(R"({"type": "integer"})", {"0", "-7", "1234567890"}, {"01", "1.5", "-", "1e3", "", "-0x"});
  expect(R"({"type": "number"})", {"0", "-0.5", "12.25", "1e9", "3E-2"}, {"01", ".5", "1.", "1e", "+1"});
  expect(R"({"type": ["string", "null"]})", {"null", "\"a\""}, {"1", "'a'"});
  expect(R"({"type": "string"})", {R"("")", R"("é€😀 \n\"\\\/\u00e9")"},
         {"\"\n\"", R"("\x")", R"("\ud800")", "\"\xC3\"", "\"a", "a"});
  expect(R"({"enum": ["a", "ab", 1, null, {"k": [true]}]})",
         {"\"a\"", "\"ab\"", "1", "null", "{\"k\":[true]}", "{ \"k\": [ true ] }"}, {"\"b\"", "{}", "2"});
  expect(R"({"const": "x"})", {"\"x\""}, {"\"y\""});
  expect(R"({"type": "string", "enum": ["a", 1]})", {"\"a\""}, {"1"});
  expect("true", {"{}", "[1, {\"a\": \"b\"}]", "\"x\"", "null"}, {"", "x", "[1,]", "{\"a\"}"});
}

TEST(JsonSchema, Numbers) {
  expect(R"({"type": "integer", "minimum": 3, "maximum": 1205})", {"3", "9", "10", "999", "1000", "1199", "1205"},
         {"2", "0", "-3", "1206", "2000", "03"});
  expect(R"({"type": "integer", "minimum": -15, "maximum": 7})", {"-15", "-1", "0", "7", "-9"}, {"-16", "8", "-20", "10"});
  expect(R"({"type": "integer", "exclusiveMinimum": 0})", {"1", "99999"}, {"0", "-1"});
  expect(R"({"type": "integer", "exclusiveMaximum": -10})", {"-11", "-123"}, {"-10", "-1", "0", "5"});
  expect(R"({"type": "integer", "minimum": 2.5, "maximum": 3.5})", {"3"}, {"2", "4"});
  expect(R"({"type": "number", "minimum": 0, "maximum": 1})", {"0", "1", "0.5", "0.999", "1.0", "0.0"},
         {"1.01", "-0.1", "2", "1.1"});
  expect(R"({"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1})", {"0.5", "0.01", "0.99"},
         {"0", "1", "0.0", "1.0", "2"});
  expect(R"({"type": "number", "minimum": 0.25, "maximum": 0.75})", {"0.25", "0.3", "0.75", "0.749", "0.2500"},
         {"0.2", "0.24", "0.76", "0.751", "0", "1"});
  expect(R"({"type": "number", "minimum": -2.5, "maximum": 10.5})", {"-2.5", "-2", "-2.49", "0", "-0.1", "10.5", "9.99", "10.49"},
         {"-2.51", "-3", "10.51", "11"});
  expect(R"({"type": "number", "exclusiveMinimum": 99.5})", {"99.6", "99.51", "100", "12345.5"}, {"99.5", "99.50", "99", "10"});
}

TEST(JsonSchema, Strings) {
  expect(R"({"type": "string", "minLength": 2, "maxLength": 3})", {R"("ab")", R"("é€😀")", R"("\n\u00e9a")"},
         {R"("a")", R"("abcd")", R"("")"});
  expect(R"({"type": "string", "minLength": 2})", {R"("ab")", R"("abcdefgh")"}, {R"("a")"});
  expect(R"({"type": "string", "pattern": "^[a-c]+\"$"})", {R"("ab\"")"}, {R"("ab")", R"("d\"")"});
  expect(R"({"type": "string", "pattern": "b"})", {R"("abc")", R"("b")", R"("\n\\b")"}, {R"("ac")", R"("\b")"});
  expect(R"({"type": "string", "pattern": "^[a-z]{2,3}é?$", "minLength": 2, "maxLength": 4})", {R"("ab")", R"("abcé")"}, {R"("a")"});
  expect(R"({"type": "string", "format": "uri", "minLength": 1, "maxLength": 2083})",
         {R"("https://a.example/x/y?q=1#f")", R"("http://localhost:8000/")"}, {R"("a")", R"("http:///")"});
  expect(R"({"type": "string", "format": "date"})", {R"("2024-02-28")", R"("1999-12-31")"},
         {R"("2024-02-30")", R"("2024-13-01")", R"("2024-1-01")"});
  expect(R"({"type": "string", "format": "uuid"})", {R"("123e4567-e89b-12d3-a456-426614174000")"}, {R"("123e4567")"});
  expect(R"({"type": "string", "format": "ipv4"})", {R"("10.0.255.1")"}, {R"("10.0.256.1")", R"("10.0.1")"});
  expect(R"({"type": "string", "format": "email"})", {R"("a.b@c.org")"}, {R"("a.b")", R"("@c.org")"});
}

TEST(JsonSchema, Objects) {
  expect(
      R"({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "null"}, "c": {"type": "null"}}, "required": ["b"]})",
      {"{\"b\": null}", "{\"a\":1,\"b\":null}", "{\"a\": 1, \"b\": null, \"c\": null}", "{\n  \"b\": null,\n  \"c\": null\n}"},
      {"{}", "{\"a\": 1}", "{\"b\": null, \"a\": 1}", "{\"b\": null, \"d\": 1}", "{\"b\": null,}", "{,\"b\": null}"});
  expect(R"({"type": "object", "properties": {"a": true, "b": true}})",
         {"{}", "{\"a\": 1}", "{\"b\": 1}", "{\"a\": 1, \"b\": {}}"}, {"{\"c\": 1}", "{\"b\": 1, \"a\": 1}"});
  expect(R"({"type": "object"})", {"{}", "{\"x\": [1]}", "{\"x\": 1, \"y\": 2}"}, {"[]", "{1: 2}"});
  expect(R"({"type": "object", "properties": {}, "additionalProperties": false})", {"{}"}, {"{\"x\": 1}"});
  expect(R"({"type": "object", "additionalProperties": {"type": "integer"}})", {"{}", "{\"x\": 1, \"y\": 2}"},
         {"{\"x\": \"1\"}"});
  expect(
      R"({"type": "object", "properties": {"ab": {"type": "null"}, "é": {"type": "null"}}, "additionalProperties": {"type": "integer"}})",
      {"{\"ab\": null, \"a\": 1}", "{\"abc\": 1}", "{\"\": 1}", "{\"ab\": null, \"é\": null, \"x\": 1}", "{\"éa\": 1}",
       "{\"x\\n\": 1}"},
      {"{\"ab\": 1}", "{\"é\": 1}", "{\"a\\u0062\": 1}", "{\"\\u0061b\": 1}", "{\"ab\": null, \"ab\": 1}"});
  expect(R"({"type": "object", "required": ["z"]})", {"{\"z\": 1}", "{\"z\": [], \"y\": 2}"}, {"{}", "{\"y\": 1}"});
}

TEST(JsonSchema, Arrays) {
  expect(R"({"type": "array", "items": {"type": "integer"}})", {"[]", "[1]", "[1, 2,3]", "[\n  1,\n  2\n]"},
         {"[1,]", "[\"a\"]", "1"});
  expect(R"({"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 3})", {"[1,2]", "[1,2,3]"},
         {"[]", "[1]", "[1,2,3,4]"});
  expect(R"({"type": "array", "prefixItems": [{"type": "integer"}, {"type": "null"}]})", {"[]", "[1]", "[1,null]"},
         {"[1,null,1]", "[null]"});
  expect(
      R"({"type": "array", "prefixItems": [{"type": "integer"}, {"type": "null"}], "items": {"type": "string"}, "minItems": 2, "maxItems": 3})",
      {"[1,null]", "[1,null,\"a\"]"}, {"[1]", "[1,null,\"a\",\"b\"]", "[1,null,1]"});
  expect(R"({"type": "array", "items": false})", {"[]"}, {"[1]"});
  expect(R"({"type": "array", "maxItems": 0})", {"[]"}, {"[1]"});
}

TEST(JsonSchema, Combinations) {
  expect(R"({"anyOf": [{"type": "integer"}, {"type": "null"}]})", {"1", "null"}, {"\"a\""});
  expect(
      R"({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "anyOf": [{"required": ["b"], "properties": {"b": {"type": "null"}}}, {}]})",
      {"{\"a\": 1}", "{\"a\": 1, \"b\": null}"}, {"{\"b\": null}"});
  expect(R"({"allOf": [{"type": "integer", "minimum": 3}, {"maximum": 5, "type": "number"}]})", {"3", "5"}, {"2", "6", "3.5"});
  expect(
      R"({"allOf": [{"properties": {"a": {"type": "integer"}}, "required": ["a"]}, {"properties": {"b": {"type": "null"}}, "required": ["b"]}]})",
      {"{\"a\": 1, \"b\": null}"}, {"{\"a\": 1}", "{}"});
  expect(
      R"({"$defs": {"node": {"type": "object", "properties": {"v": {"type": "integer"}, "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}},
             "required": ["v", "next"]}}, "$ref": "#/$defs/node"})",
      {R"({"v": 1, "next": null})", R"({"v": 1, "next": {"v": 2, "next": {"v": 3, "next": null}}})"},
      {R"({"v": 1})", R"({"v": 1, "next": {"v": 2}})"});
  expect(R"({"type": "object", "properties": {"kids": {"type": "array", "items": {"$ref": "#"}}}, "required": ["kids"]})",
         {R"({"kids": []})", R"({"kids": [{"kids": []}, {"kids": [{"kids": []}]}]})"}, {"{}", R"({"kids": [{}]})"});
}

TEST(JsonSchema, WhitespaceAsAsked) {
  const char* schema =
      R"({"type": "object", "properties": {"a": {"type": "array", "items": {"type": "integer"}}}, "required": ["a"]})";
  const auto compact = of_schema(schema, {.any_whitespace = false});
  EXPECT_TRUE(compact->matches("{\"a\": [1, 2]}"));
  EXPECT_FALSE(compact->matches("{\"a\":[1,2]}"));
  EXPECT_FALSE(compact->matches("{ \"a\": [1, 2]}"));
  const auto own = of_schema(schema, {.whitespace_pattern = "\\t{0,2}"});
  EXPECT_TRUE(own->matches("{\t\"a\":\t\t[1,2\t]}"));
  EXPECT_FALSE(own->matches("{ \"a\": [1, 2]}"));
}

TEST(JsonSchema, NamesWhatItDoesNotHave) {
  const auto error = [](const char* schema) { return error_of([&] { of_schema(schema); }); };
  EXPECT_THAT(error(R"({"type": "integer", "multipleOf": 3})"), HasSubstr("`multipleOf` is not supported"));
  EXPECT_THAT(error(R"({"not": {}})"), HasSubstr("`not`"));
  EXPECT_THAT(error(R"({"type": "array", "uniqueItems": true})"), HasSubstr("`uniqueItems`"));
  EXPECT_THAT(error(R"({"patternProperties": {"a": {}}})"), HasSubstr("`patternProperties`"));
  EXPECT_THAT(error(R"({"type": "string", "format": "binary"})"), HasSubstr("`format` \"binary\" is not supported"));
  EXPECT_THAT(error(R"({"type": "string", "pattern": "x(?=a)y"})"), HasSubstr("look-ahead"));
  EXPECT_THAT(error(R"({"type": "string", "pattern": "a", "maxLength": 3})"), HasSubstr("`maxLength` beside a `pattern` that does not keep to it"));
  EXPECT_THAT(error(R"({"type": "text"})"), HasSubstr("`type` must be one of"));
  EXPECT_THAT(error(R"({"$ref": "http://x/y"})"), HasSubstr("must begin with #"));
  EXPECT_THAT(error(R"({"$ref": "#/$defs/x"})"), HasSubstr("refers to nothing"));
  EXPECT_THAT(error(R"({"anyOf": [{"$ref": "#"}, {"type": "null"}]})"), HasSubstr("left-recursive"));
  EXPECT_THAT(error(R"({"type": "string", "maxLength": 1e9})"), HasSubstr("`maxLength` is supported up to"));
  EXPECT_THAT(error(R"({"enum": []})"), HasSubstr("`enum` must be"));
  EXPECT_THAT(error("3"), HasSubstr("a schema must be"));
}

TEST(JsonSchema, ContradictionsHaveNoText) {
  for (const char* schema :
       {R"({"type": "integer", "minimum": 5, "maximum": 3})", R"({"type": "string", "minLength": 5, "maxLength": 3})",
        R"({"type": "array", "minItems": 3, "maxItems": 1})",
        R"({"type": "number", "exclusiveMinimum": 1, "exclusiveMaximum": 1})", "false",
        R"({"type": "object", "properties": {"a": false}, "required": ["a"]})", R"({"type": "integer", "enum": ["a"]})",
        R"({"type": "object", "additionalProperties": false, "required": ["a"]})",
        R"({"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]})"}) {
    EXPECT_THAT(error_of([&] { of_schema(schema); }), HasSubstr("no text can satisfy it")) << schema;
  }
  EXPECT_EQ(error_of([] { of_schema(R"({"type": "object", "properties": {"a": false}})"); }), "");  // {} does
}

TEST(JsonSchema, HostileOnesEnd) {
  std::string deep = "true";
  for (int i = 0; i < 80; ++i) deep = "{\"type\": \"array\", \"items\": " + deep + "}";
  EXPECT_THAT(error_of([&] { of_schema(deep); }), HasSubstr("nested deeper"));
  std::string doubling =
      R"({"$defs": {"x": {"anyOf": [{"$ref": "#/$defs/x", "type": "object"}, {"$ref": "#/$defs/x", "type": "object"}]}}, "$ref": "#/$defs/x"})";
  EXPECT_THAT(error_of([&] { of_schema(doubling); }), testing::AnyOf(HasSubstr("more than"), HasSubstr("nested deeper")));
  std::string all = R"({"allOf": [{"$ref": "#"}]})";
  EXPECT_NE(error_of([&] { of_schema(all); }), "");
  std::string names = R"({"enum": [)";
  for (int i = 0; i < 20'000; ++i) names += "\"value number " + std::to_string(i * 7919) + "\",";
  names.back() = ']';
  EXPECT_THAT(error_of([&] { of_schema(names + "}"); }), HasSubstr("too large"));
  std::string members = R"({"type": "object", "properties": {)";
  for (int i = 0; i < 3000; ++i) members += "\"m" + std::to_string(i) + "\": {\"type\": \"null\"},";
  members.back() = '}';
  const auto many = of_schema(members + "}");
  EXPECT_TRUE(many->matches(R"({"m1": null, "m2999": null})"));
  EXPECT_FALSE(many->matches(R"({"m2999": null, "m1": null})"));
}

// What is drawn token by token is JSON, and of the schema.
TEST(JsonSchema, DrawnTextsAreOfTheSchema) {
  const auto automaton = of_schema(R"({"type": "object", "properties": {
      "name": {"type": "string", "maxLength": 8}, "age": {"type": "integer", "minimum": 0, "maximum": 150}, "score": {"type": "number", "minimum": -1, "exclusiveMaximum": 1},
      "tags": {"type": "array", "items": {"enum": ["ab", "abc"]}, "minItems": 1, "maxItems": 4}, "any": {}},
      "required": ["name", "age", "tags", "score"], "additionalProperties": {"type": "boolean"}})");
  std::mt19937_64 random(7);
  int ended = 0;
  for (int i = 0; i < 300; ++i) {
    const auto text = draw_text(*automaton, *test_vocabulary(), random);
    if (!text) continue;
    ++ended;
    const Json json = parse_json(*text, *text);
    ASSERT_LE(json["age"].get<int64_t>(), 150);
    ASSERT_GE(json["age"].get<int64_t>(), 0);
    ASSERT_LT(json["score"].get<double>(), 1.0);
    ASSERT_GE(json["score"].get<double>(), -1.0);
    ASSERT_GE(json["tags"].size(), 1u);
    ASSERT_LE(json["tags"].size(), 4u);
    for (const Json& tag : json["tags"]) ASSERT_TRUE(tag == "ab" || tag == "abc");
    for (const auto& [key, value] : json.items()) {
      const bool named = key == "name" || key == "age" || key == "score" || key == "tags" || key == "any";
      ASSERT_TRUE(named || value.is_boolean()) << *text;
    }
  }
  EXPECT_GT(ended, 290);
}

}  // namespace
}  // namespace tutti::grammar
