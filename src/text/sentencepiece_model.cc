#include "text/sentencepiece_model.h"

#include <cmath>

#include "base/error.h"
#include "text/protobuf_reader.h"
#include "text/vocab.h"

namespace tutti {
namespace {

using Model = SentencePieceModel;

Model::Piece parse_piece(std::string_view data, const std::string& source) {
  Model::Piece piece;
  ProtobufReader reader(data, source);
  while (reader.next()) {
    if (reader.field() == 1) piece.text = reader.bytes();
    if (reader.field() == 2) piece.score = reader.real();
    if (reader.field() == 3) {
      const int64_t type = reader.integer();
      if (type < 1 || type > 6) throw ConfigError(source + ": piece type " + std::to_string(type) + ", expected 1 to 6");
      piece.type = static_cast<Model::PieceType>(type);
    }
  }
  return piece;
}

TokenId parse_id(int64_t value) {
  return value < 0 || value >= kMaxVocab ? kNoToken : static_cast<TokenId>(value);
}

void parse_trainer(std::string_view data, const std::string& source, Model& model) {
  ProtobufReader reader(data, source + ": trainer_spec");
  while (reader.next()) {
    switch (reader.field()) {
      case 3: {
        const int64_t type = reader.integer();
        if (type != 1 && type != 2) {
          throw ConfigError(source + ": model type " + std::to_string(type) +
                            " is not supported; known: 1 (unigram), 2 (BPE)");
        }
        model.algorithm = static_cast<Model::Algorithm>(type);
        break;
      }
      case 24: model.whitespace_as_suffix = reader.flag(); break;
      case 35: model.byte_fallback = reader.flag(); break;
      case 40: model.unknown_id = parse_id(reader.integer()); break;
      case 41: model.bos_id = parse_id(reader.integer()); break;
      case 42: model.eos_id = parse_id(reader.integer()); break;
      case 44: model.unknown_surface = reader.bytes(); break;
      default: break;
    }
  }
}

void parse_normalizer(std::string_view data, const std::string& source, Model& model) {
  ProtobufReader reader(data, source + ": normalizer_spec");
  while (reader.next()) {
    switch (reader.field()) {
      case 2: model.charsmap = reader.bytes(); break;
      case 3: model.add_dummy_prefix = reader.flag(); break;
      case 4: model.remove_extra_whitespaces = reader.flag(); break;
      case 5: model.escape_whitespaces = reader.flag(); break;
      default: break;
    }
  }
}

void check_denormalizer(std::string_view data, const std::string& source) {
  ProtobufReader reader(data, source + ": denormalizer_spec");
  while (reader.next()) {
    if (reader.field() == 2 && !reader.bytes().empty()) {
      throw ConfigError(source + ": denormalizer rules are not supported; expected none");
    }
  }
}

}  // namespace

SentencePieceModel SentencePieceModel::parse(std::string_view data, const std::string& source) {
  Model model;
  ProtobufReader reader(data, source);
  while (reader.next()) {
    switch (reader.field()) {
      case 1: model.pieces.push_back(parse_piece(reader.bytes(), source)); break;
      case 2: parse_trainer(reader.bytes(), source, model); break;
      case 3: parse_normalizer(reader.bytes(), source, model); break;
      case 5: check_denormalizer(reader.bytes(), source); break;
      default: break;
    }
    if (model.pieces.size() > static_cast<size_t>(kMaxVocab)) {
      throw ConfigError(source + ": over " + std::to_string(kMaxVocab) + " pieces");
    }
  }
  model.check(source);
  return model;
}

void SentencePieceModel::check(const std::string& source) const {
  if (pieces.empty()) throw ConfigError(source + ": no pieces in it; is it a SentencePiece model?");
  size_t bytes = 0, unknown = 0;
  TokenMap seen(pieces.size());
  for (size_t i = 0; i < pieces.size(); ++i) {
    const Piece& piece = pieces[i];
    const std::string name = source + ": piece " + std::to_string(i);
    if (piece.text.empty()) throw ConfigError(name + " is empty");
    if (piece.text.size() > kMaxTokenBytes) throw ConfigError(name + " is over " + std::to_string(kMaxTokenBytes) + " bytes");
    if (!std::isfinite(piece.score)) throw ConfigError(name + " has a score that is not a number");
    if (!seen.insert(piece.text, static_cast<TokenId>(i))) throw ConfigError(name + ": \"" + piece.text + "\" is there twice");
    unknown += piece.type == PieceType::kUnknown;
    bytes += piece.type == PieceType::kByte;
  }
  if (unknown != 1) throw ConfigError(source + ": " + std::to_string(unknown) + " unknown pieces, expected exactly one");
  if (byte_fallback && bytes != 256) {
    throw ConfigError(source + ": byte fallback with " + std::to_string(bytes) + " byte pieces, expected 256");
  }
}

}  // namespace tutti
