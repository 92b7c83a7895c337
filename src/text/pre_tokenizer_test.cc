#include "text/pre_tokenizer.h"

#include <gtest/gtest.h>

namespace tutti {
namespace {

std::vector<std::string> pieces(const std::string& json, std::string_view text) {
  PreTokenized out;
  PreTokenizer(SortedJson::parse(json), "here").apply(text, true, out);
  std::vector<std::string> found;
  for (size_t i = 0; i < out.pieces.size(); ++i) found.emplace_back(out[i]);
  return found;
}

// What the reference (tokenizers 0.23) takes for punctuation is as of Unicode 8.
TEST(PreTokenizer, PunctuationIsThatOfUnicode8) {
  const auto cut = [](const std::string& sign) { return pieces(R"({"type": "Punctuation", "behavior": "Isolated"})", "a" + sign + "b").size() == 3; };
  for (const char* sign : {"!", "~", "—", "᙭", "𑇉"}) EXPECT_TRUE(cut(sign)) << sign;  // the last two have left since
  for (const char* sign : {"9", "é", "⃤", "⹏", "𑙠", "𑿿"}) EXPECT_FALSE(cut(sign)) << sign;   // the last three have come
}

}  // namespace
}  // namespace tutti
