#include "grammar/grammar.h"

#include "base/error.h"

namespace tutti::grammar {
namespace {

constexpr uint32_t kMagic = 0x31475454;  // "TTG1"

// Seven bits a byte, the last one without the high bit.
void put(std::string& out, uint32_t value) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  out += static_cast<char>(value);
}

class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}

  uint32_t number() {
    uint32_t value = 0;
    for (int shift = 0; shift < 35; shift += 7) {
      const auto b = byte();
      value |= static_cast<uint32_t>(b & 0x7F) << shift;
      if (b < 0x80) return value;
    }
    fail();
  }
  uint8_t byte() {
    if (bytes_.empty()) fail();
    const auto b = static_cast<uint8_t>(bytes_[0]);
    bytes_.remove_prefix(1);
    return b;
  }
  // Less than `limit`.
  uint32_t below(size_t limit) {
    const uint32_t value = number();
    if (value >= limit) fail();
    return value;
  }
  bool at_end() const { return bytes_.empty(); }
  [[noreturn]] static void fail() { throw IoError("a grammar that is damaged, or of another version"); }

 private:
  std::string_view bytes_;
};

}  // namespace

std::string Grammar::to_bytes() const {
  std::string out;
  put(out, kMagic);
  put(out, static_cast<uint32_t>(states.size()));
  put(out, static_cast<uint32_t>(rule_starts.size()));
  for (const int32_t start : rule_starts) put(out, static_cast<uint32_t>(start));
  for (const State& s : states) {
    put(out, static_cast<uint32_t>(s.edges.size()) << 2 | (s.ends_rule ? 1u : 0u) | (s.only_ends ? 2u : 0u));
    for (const Edge& e : s.edges) {
      out += static_cast<char>(e.kind);
      if (e.kind == Edge::Kind::kByte) out.append({static_cast<char>(e.first), static_cast<char>(e.last)});
      if (e.kind == Edge::Kind::kCall) put(out, static_cast<uint32_t>(e.rule));
      put(out, static_cast<uint32_t>(e.target));
    }
  }
  return out;
}

Grammar Grammar::from_bytes(std::string_view bytes) {
  Reader in(bytes);
  if (in.number() != kMagic) Reader::fail();
  Grammar g;
  const size_t num_states = in.below(kMaxStates + 1);
  const size_t num_rules = in.below(num_states + 1);
  if (num_rules == 0) Reader::fail();
  for (size_t i = 0; i < num_rules; ++i) g.rule_starts.push_back(static_cast<int32_t>(in.below(num_states)));
  g.states.resize(num_states);
  size_t num_edges = 0;
  for (State& s : g.states) {
    const uint32_t head = in.number();
    s.ends_rule = (head & 1) != 0;
    s.only_ends = (head & 2) != 0;
    num_edges += head >> 2;
    if (num_edges > kMaxEdges) Reader::fail();
    for (uint32_t i = 0; i < head >> 2; ++i) {
      const uint8_t kind = in.byte();
      if (kind > static_cast<uint8_t>(Edge::Kind::kCall)) Reader::fail();
      Edge e{.kind = static_cast<Edge::Kind>(kind)};
      if (e.kind == Edge::Kind::kByte) e.first = in.byte(), e.last = in.byte();
      if (e.kind == Edge::Kind::kCall) e.rule = static_cast<int32_t>(in.below(num_rules));
      e.target = static_cast<int32_t>(in.below(num_states));
      s.edges.push_back(e);
    }
  }
  if (!in.at_end()) Reader::fail();
  return g;
}

}  // namespace tutti::grammar
