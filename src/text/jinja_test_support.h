// What the renderer's tests share: templates over one small context, next to the text they must
// give.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "text/chat_template.h"

namespace tutti::jinja {

struct Case {
  const char* source;
  const char* expected;
};

inline const Json& test_context() {
  static const Json context = parse_json(
      R"({"s": "Straße", "n": 7, "x": 2.5, "xs": [3, 1, 2], "d": {"b": 1, "a": [null, true]}, "u": "東京🙂é",
          "ms": [{"role": "user", "n": 2}, {"role": "system", "n": 1}, {"role": "user", "n": 0}],
          "big": 18446744073709551615})",
      "test context");
  return context;
}

inline std::string render_or_error(const std::string& source) {
  try {
    return ChatTemplate(source).render(test_context());
  } catch (const Error& e) {
    return std::string("error: ") + e.what();
  }
}

inline void expect_texts(const std::vector<Case>& cases) {
  for (const Case& c : cases) EXPECT_EQ(render_or_error(c.source), c.expected) << c.source;
}

// `source` is an expression here.
inline void expect_values(const std::vector<Case>& cases) {
  for (const Case& c : cases) {
    EXPECT_EQ(render_or_error(std::string("{{ ") + c.source + " }}"), c.expected) << c.source;
  }
}

inline void expect_errors(const std::vector<const char*>& expressions) {
  for (const char* e : expressions) {
    EXPECT_TRUE(render_or_error(std::string("{{ ") + e + " }}").starts_with("error: ")) << e;
  }
}

}  // namespace tutti::jinja
