// The contents of a SentencePiece tokenizer.model: pieces with scores and types, the training and normalisation settings.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace tutti {

struct SentencePieceModel {
  enum class PieceType : uint8_t { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6 };
  enum class Algorithm : uint8_t { kUnigram = 1, kBpe = 2 };
  struct Piece {
    std::string text;
    float score = 0;
    PieceType type = PieceType::kNormal;
  };

  std::vector<Piece> pieces;
  Algorithm algorithm = Algorithm::kUnigram;
  bool byte_fallback = false;
  bool whitespace_as_suffix = false;
  std::string unknown_surface = " \xe2\x81\x87 ";  // what an unknown token decodes to
  TokenId unknown_id = 0, bos_id = 1, eos_id = 2;
  bool add_dummy_prefix = true;
  bool remove_extra_whitespaces = true;
  bool escape_whitespaces = true;
  std::string charsmap;                            // the precompiled rules of the normaliser; may be empty

  // Throws IoError / ConfigError naming `source` and what is wrong.
  static SentencePieceModel parse(std::string_view data, const std::string& source);
  // The settings fit the pieces; throws ConfigError. Done by parse().
  void check(const std::string& source) const;
};

}  // namespace tutti
