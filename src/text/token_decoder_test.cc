#include "text/token_decoder.h"

#include <gtest/gtest.h>

namespace tutti {
namespace {

std::vector<TokenDecoder::Token> tokens() {
  return {{.text = "\xC2", .byte = true}, {.text = "\xA7", .byte = true}, {.special = true}};
}

TEST(TokenDecoder, BytesOfACharacterAreJoined) {
  const TokenDecoder decoder(tokens(), {.invalid = TokenDecoder::InvalidBytes::kByteReplaced});
  EXPECT_EQ(decoder.decode({0, 1}, true), "\xC2\xA7");
  EXPECT_EQ(decoder.decode({1, 0}, true), "\uFFFD\uFFFD");
}

// As SentencePiece does it; `tokenizers` drops special tokens first, so that there the bytes meet.
TEST(TokenDecoder, AControlPieceSeparatesBytes) {
  const TokenDecoder sentencepiece(tokens(), {.invalid = TokenDecoder::InvalidBytes::kByteReplaced});
  EXPECT_EQ(sentencepiece.decode({0, 2, 1}, true), "\uFFFD\uFFFD");
  const TokenDecoder byte_fallback(tokens(), {.invalid = TokenDecoder::InvalidBytes::kRunReplaced});
  EXPECT_EQ(byte_fallback.decode({0, 2, 1}, true), "\xC2\xA7");
}

}  // namespace
}  // namespace tutti
