#include "text/bpe.h"

#include <cstdio>

#include "text/unicode.h"

namespace tutti {

BpeModel::BpeModel(const std::vector<std::string>& tokens, MergeTable merges, const Options& options)
    : options_(options), merges_(std::move(merges)), ids_(tokens.size()) {
  for (size_t id = 0; id < tokens.size(); ++id) {
    if (!tokens[id].empty()) ids_.insert(tokens[id], static_cast<TokenId>(id));
  }
  for (int b = 0; b < 256; ++b) {
    char spelled[8];
    std::snprintf(spelled, sizeof spelled, "<0x%02X>", b);
    const auto byte = static_cast<char>(b);
    byte_ids_[b] = options_.bytes ? ids_.find({&byte, 1}) : ids_.find(spelled);
  }
  cut_at_metaspace_ = !options_.bytes && ids_.find(kMetaspace) != kNoToken && !joins_across_metaspace(tokens);

  if (!options_.unused.empty()) unused_.assign(tokens.size(), false);
  for (const TokenId id : options_.unused) unused_[id] = true;

  direct_.assign(tokens.size(), options_.ignore_merges);
  if (options_.ignore_merges) return;
  std::vector<TokenId> result;
  for (size_t id = 0; id < tokens.size(); ++id) {
    result.clear();
    if (!tokens[id].empty() && tokens[id].size() <= 256) encode_part(tokens[id], result);
    direct_[id] = result.size() == 1 && result[0] == static_cast<TokenId>(id);
  }
}

// Whether a token that merging may give has a "▁" after something else inside.
bool BpeModel::joins_across_metaspace(const std::vector<std::string>& tokens) const {
  for (const std::string& token : tokens) {
    for (size_t hit = token.find(kMetaspace, 1); hit != std::string::npos; hit = token.find(kMetaspace, hit + 1)) {
      if (!std::string_view(token).substr(0, hit).ends_with(kMetaspace)) return true;
    }
  }
  return false;
}

TokenId BpeModel::single(std::string_view piece) const {
  const TokenId id = ids_.find(piece);
  return id != kNoToken && direct_[id] ? id : kNoToken;
}

void BpeModel::encode(std::string_view piece, std::vector<TokenId>& out) const {
  if (options_.ignore_merges || !cut_at_metaspace_) {
    const TokenId id = single(piece);
    if (id != kNoToken) {
      out.push_back(id);
    } else {
      encode_part(piece, out);
    }
    return;
  }
  for (size_t begin = 0; begin < piece.size();) {
    size_t end = begin;
    while (piece.substr(end, kMetaspace.size()) == kMetaspace) end += kMetaspace.size();
    end = std::min(piece.find(kMetaspace, end), piece.size());
    const TokenId id = single(piece.substr(begin, end - begin));
    if (id != kNoToken) {
      out.push_back(id);
    } else {
      encode_part(piece.substr(begin, end - begin), out);
    }
    begin = end;
  }
}

void BpeModel::encode_part(std::string_view piece, std::vector<TokenId>& out) const {
  if (piece.size() <= kOnStack) {
    TokenId symbols[kOnStack];
    merge({symbols, symbols_of(piece, symbols)}, out);
    return;
  }
  std::vector<TokenId> symbols(piece.size());
  symbols.resize(symbols_of(piece, symbols.data()));
  merge(symbols, out);
}

void BpeModel::merge(std::span<TokenId> symbols, std::vector<TokenId>& out) const {
  if (unused_.empty()) return merges_.apply(symbols, out);
  MergeTable::Origins origins;
  std::vector<TokenId> merged;
  merges_.apply(symbols, merged, &origins);
  for (const TokenId id : merged) take_apart(id, origins, out);
}

void BpeModel::take_apart(TokenId id, const MergeTable::Origins& origins, std::vector<TokenId>& out) const {
  const bool unused = static_cast<size_t>(id) < unused_.size() && unused_[id];
  const auto it = unused ? origins.find(id) : origins.end();
  if (it == origins.end()) {
    out.push_back(id);
    return;
  }
  take_apart(it->second.first, origins, out);
  take_apart(it->second.second, origins, out);
}

// At most one symbol a byte.
size_t BpeModel::symbols_of(std::string_view piece, TokenId* symbols) const {
  size_t n = 0;
  if (options_.bytes) {
    for (const char c : piece) {
      const TokenId id = byte_ids_[static_cast<uint8_t>(c)];
      if (id != kNoToken) symbols[n++] = id;
    }
    return n;
  }
  bool unknown_before = false;
  for (size_t pos = 0, length; pos < piece.size(); pos += length) {
    length = utf8_length(piece[pos]);
    const std::string_view character = piece.substr(pos, length);
    const TokenId id = ids_.find(character);
    if (id != kNoToken) {
      symbols[n++] = id;
      unknown_before = false;
      continue;
    }
    if (options_.keep_unknown) {
      symbols[n++] = static_cast<TokenId>(direct_.size()) + static_cast<TokenId>(decode_utf8(piece, pos, length));
      continue;
    }
    bool all = options_.byte_fallback;
    for (size_t i = 0; all && i < length; ++i) all = byte_ids_[static_cast<uint8_t>(character[i])] != kNoToken;
    if (all) {
      for (const char c : character) symbols[n++] = byte_ids_[static_cast<uint8_t>(c)];
    } else if (options_.unknown && !(unknown_before && options_.fuse_unknown)) {
      symbols[n++] = *options_.unknown;
      unknown_before = true;
    }
  }
  return n;
}

}  // namespace tutti
