// Expressions to automata: one pass that writes states, then what must hold of the result.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <tuple>
#include <unordered_map>

#include "grammar/grammar.h"
#include "grammar/scanner.h"

namespace tutti::grammar {
namespace {

// A part that is repeated often becomes a rule of its own, so that a copy of it is one state.
constexpr int64_t kMaxCopiedStates = 48;
constexpr int64_t kMuch = 1'000'000;

class Compiler {
 public:
  explicit Compiler(const Rules& rules) : rules_(rules) {}

  Grammar run() {
    for (size_t i = 0; i < rules_.size(); ++i) bodies_.push_back(rules_.body(i));
    for (size_t i = 0; i < bodies_.size(); ++i) {
      const int32_t start = new_state();
      grammar_.rule_starts.resize(std::max(grammar_.rule_starts.size(), bodies_.size()));
      grammar_.rule_starts[i] = start;
      grammar_.states[static_cast<size_t>(emit(*ExprPtr(bodies_[i]), start))].ends_rule = true;
    }
    grammar_.rule_starts.resize(bodies_.size());
    remove_dead_edges();
    refuse_left_recursion();
    mark_only_ends();
    return std::move(grammar_);
  }

 private:
  int32_t new_state() {
    if (grammar_.states.size() >= kMaxStates) {
      throw InvalidGrammar(fmt::format("it is too large: more than {} states", kMaxStates));
    }
    grammar_.states.emplace_back();
    return static_cast<int32_t>(grammar_.states.size()) - 1;
  }
  void add(int32_t from, const Edge& edge) {
    if (++num_edges_ > kMaxEdges) throw InvalidGrammar(fmt::format("it is too large: more than {} edges", kMaxEdges));
    grammar_.states[static_cast<size_t>(from)].edges.push_back(edge);
  }
  void add_empty(int32_t from, int32_t to) { add(from, {.kind = Edge::Kind::kEmpty, .target = to}); }
  void add_bytes(int32_t from, uint8_t first, uint8_t last, int32_t to) {
    add(from, {.kind = Edge::Kind::kByte, .first = first, .last = last, .target = to});
  }

  // Adds what `e` reads behind `from`; the state where it ends. No edge ever leads back to `from` itself.
  int32_t emit(const Expr& e, int32_t from) {
    switch (e.kind) {
      case Expr::Kind::kBytes:
        for (const char c : e.bytes) {
          const int32_t next = new_state();
          add_bytes(from, static_cast<uint8_t>(c), static_cast<uint8_t>(c), next);
          from = next;
        }
        return from;
      case Expr::Kind::kChar: {
        const int32_t end = new_state();
        emit_chars(e, from, end);
        return end;
      }
      case Expr::Kind::kSequence:
        for (const ExprPtr& part : e.parts) from = emit(*part, from);
        return from;
      case Expr::Kind::kChoice: {
        const int32_t end = new_state();
        for (const ExprPtr& part : e.parts) add_empty(emit(*part, from), end);
        return end;
      }
      case Expr::Kind::kRepeat: return emit_repeat(e, from);
      case Expr::Kind::kRule: {
        const int32_t next = new_state();
        add(from, {.kind = Edge::Kind::kCall, .rule = e.rule, .target = next});
        return next;
      }
    }
    return from;
  }

  int32_t emit_repeat(const Expr& e, int32_t from) {
    const Expr* part = e.parts.front().get();
    ExprPtr as_rule;
    const int64_t copies = e.max == kUnlimited ? e.min + 1 : e.max;
    if (copies > 1 && part->kind != Expr::Kind::kRule && copies * weight(*part) > kMaxCopiedStates) {
      as_rule = call(rule_of(e.parts.front()));
      part = as_rule.get();
    }
    for (int64_t i = 0; i < e.min; ++i) from = emit_copy(*part, from);
    if (e.max == kUnlimited) {
      const int32_t loop = new_state();
      add_empty(from, loop);
      add_empty(emit_copy(*part, loop), loop);
      return loop;
    }
    if (e.max <= e.min) return from;
    const int32_t end = new_state();
    for (int64_t i = e.min; i < e.max; ++i) {
      add_empty(from, end);
      from = emit_copy(*part, from);
    }
    add_empty(from, end);
    return end;
  }

  // Always a new state, so that a huge number of copies of nothing meets the limit too.
  int32_t emit_copy(const Expr& part, int32_t from) {
    const int32_t end = emit(part, from);
    if (end != from) return end;
    const int32_t next = new_state();
    add_empty(from, next);
    return next;
  }

  int rule_of(const ExprPtr& part) {
    const auto [it, fresh] = rules_of_parts_.emplace(part.get(), static_cast<int>(bodies_.size()));
    if (fresh) bodies_.push_back(part);
    return it->second;
  }

  // About the number of states.
  static int64_t weight(const Expr& e) {
    int64_t sum = 1;
    switch (e.kind) {
      case Expr::Kind::kBytes: return static_cast<int64_t>(e.bytes.size());
      case Expr::Kind::kChar:
        return (e.chars.empty() || e.chars.ranges().back().last < 0x80) && e.encoding == Encoding::kPlain ? 1 : 8;
      case Expr::Kind::kRule: return 1;
      case Expr::Kind::kRepeat:
        sum = weight(*e.parts.front()) * std::min<int64_t>(kMuch, std::max<int64_t>(1, e.max == kUnlimited ? e.min + 1 : e.max));
        break;
      default:
        for (const ExprPtr& part : e.parts) sum = std::min(kMuch, sum + weight(*part));
    }
    return std::min(kMuch, sum);
  }

  void emit_chars(const Expr& e, int32_t from, int32_t end) {
    tails_.clear();
    if (e.encoding == Encoding::kPlain) {
      for (const CodeRange& r : e.chars.ranges()) emit_range(r, from, end);
      return;
    }
    static const CharSet escaped({{0, 0x1F}, {'"', '"'}, {'\\', '\\'}});
    const CharSet as_they_are = e.chars & escaped.complement(), others = e.chars & escaped;
    for (const CodeRange& r : as_they_are.ranges()) emit_range(r, from, end);
    for (const CodeRange& r : others.ranges()) {
      for (uint32_t c = r.first; c <= r.last; ++c) emit_escape(c, from, end);
    }
  }

  void emit_escape(uint32_t c, int32_t from, int32_t end) {
    static constexpr std::pair<char, char> kShort[] = {{'"', '"'},  {'\\', '\\'}, {'\b', 'b'}, {'\f', 'f'},
                                                       {'\n', 'n'}, {'\r', 'r'},  {'\t', 't'}};
    const auto* found =
        std::find_if(std::begin(kShort), std::end(kShort), [c](auto s) { return static_cast<uint32_t>(s.first) == c; });
    const std::string written = found != std::end(kShort) ? std::string("\\") + found->second : fmt::format("\\u{:04x}", c);
    for (size_t i = 0; i + 1 < written.size(); ++i) {
      const int32_t next = new_state();
      add_bytes(from, static_cast<uint8_t>(written[i]), static_cast<uint8_t>(written[i]), next);
      from = next;
    }
    add_bytes(from, static_cast<uint8_t>(written.back()), static_cast<uint8_t>(written.back()), end);
  }

  // All code points of a range whose UTF-8 forms have equally many bytes and differ in whole ranges of them.
  void emit_range(CodeRange r, int32_t from, int32_t end) {
    static constexpr uint32_t kLastOfLength[] = {0x7F, 0x7FF, 0xFFFF};
    for (const uint32_t last : kLastOfLength) {
      if (r.first <= last && r.last > last) {
        emit_range({r.first, last}, from, end);
        emit_range({last + 1, r.last}, from, end);
        return;
      }
    }
    for (int shift = 6; shift <= 18 && r.last > 0x7F; shift += 6) {
      const uint32_t mask = (1u << shift) - 1;
      if ((r.first & ~mask) == (r.last & ~mask)) break;
      if ((r.first & mask) != 0) {
        emit_range({r.first, r.first | mask}, from, end);
        emit_range({(r.first | mask) + 1, r.last}, from, end);
        return;
      }
      if ((r.last & mask) != mask) {
        emit_range({r.first, (r.last & ~mask) - 1}, from, end);
        emit_range({r.last & ~mask, r.last}, from, end);
        return;
      }
    }
    const std::string first = encode_utf8(r.first), last = encode_utf8(r.last);
    int32_t target = end;
    for (size_t i = first.size() - 1; i > 0; --i) {
      const auto low = static_cast<uint8_t>(first[i]), high = static_cast<uint8_t>(last[i]);
      const auto [it, fresh] = tails_.emplace(std::tuple(low, high, target), 0);
      if (fresh) {
        it->second = new_state();
        add_bytes(it->second, low, high, target);
      }
      target = it->second;
    }
    add_bytes(from, static_cast<uint8_t>(first[0]), static_cast<uint8_t>(last[0]), target);
  }

  // The states from which the end of their rule can be reached, by empty edges alone or with the others.
  std::vector<bool> reaching_end(bool with_bytes) const {
    const auto& states = grammar_.states;
    std::vector<std::vector<std::pair<int32_t, const Edge*>>> before(states.size());  // what may come alive with a state
    for (size_t s = 0; s < states.size(); ++s) {
      for (const Edge& e : states[s].edges) {
        if (e.kind == Edge::Kind::kByte && !with_bytes) continue;
        before[static_cast<size_t>(e.target)].emplace_back(static_cast<int32_t>(s), &e);
        if (e.kind == Edge::Kind::kCall) before[static_cast<size_t>(start_of(e))].emplace_back(static_cast<int32_t>(s), &e);
      }
    }
    std::vector<bool> alive(states.size());
    std::vector<int32_t> todo;
    const auto wake = [&](size_t s) {
      if (alive[s]) return;
      alive[s] = true;
      todo.push_back(static_cast<int32_t>(s));
    };
    for (size_t s = 0; s < states.size(); ++s) {
      if (states[s].ends_rule) wake(s);
    }
    while (!todo.empty()) {
      const int32_t done = todo.back();
      todo.pop_back();
      for (const auto& [s, edge] : before[static_cast<size_t>(done)]) {
        if (leads_on(*edge, alive)) wake(static_cast<size_t>(s));
      }
    }
    return alive;
  }

  bool leads_on(const Edge& e, const std::vector<bool>& alive) const {
    return alive[static_cast<size_t>(e.target)] && (e.kind != Edge::Kind::kCall || alive[static_cast<size_t>(start_of(e))]);
  }

  void remove_dead_edges() {
    const std::vector<bool> alive = reaching_end(/*with_bytes=*/true);
    if (!alive[static_cast<size_t>(grammar_.rule_starts[0])]) throw InvalidGrammar("no text can satisfy it");
    for (State& s : grammar_.states) std::erase_if(s.edges, [&](const Edge& e) { return !leads_on(e, alive); });
  }

  int32_t start_of(const Edge& call) const { return grammar_.rule_starts[static_cast<size_t>(call.rule)]; }

  std::vector<int32_t> reached_without_bytes(size_t rule, const std::vector<bool>& to_end) const {
    std::vector<int32_t> reached = {grammar_.rule_starts[rule]};
    std::unordered_map<int32_t, bool> seen = {{reached[0], true}};
    for (size_t i = 0; i < reached.size(); ++i) {
      for (const Edge& e : grammar_.states[static_cast<size_t>(reached[i])].edges) {
        const bool passes =
            e.kind == Edge::Kind::kEmpty || (e.kind == Edge::Kind::kCall && to_end[static_cast<size_t>(start_of(e))]);
        if (passes && seen.emplace(e.target, true).second) reached.push_back(e.target);
      }
    }
    return reached;
  }

  void refuse_left_recursion() const {
    const std::vector<bool> to_end = reaching_end(/*with_bytes=*/false);
    const size_t count = grammar_.rule_starts.size();
    std::vector<std::vector<int32_t>> calls(count);
    std::vector<int> callers(count);
    for (size_t r = 0; r < count; ++r) {
      for (const int32_t s : reached_without_bytes(r, to_end)) {
        for (const Edge& e : grammar_.states[static_cast<size_t>(s)].edges) {
          if (e.kind == Edge::Kind::kCall) calls[r].push_back(e.rule);
        }
      }
      std::sort(calls[r].begin(), calls[r].end());
      calls[r].erase(std::unique(calls[r].begin(), calls[r].end()), calls[r].end());
      for (const int32_t c : calls[r]) ++callers[static_cast<size_t>(c)];
    }
    // Rules that nobody calls are taken away until none are left, unless some call each other in a circle.
    std::vector<size_t> todo;
    size_t taken = 0;
    for (size_t r = 0; r < count; ++r) {
      if (callers[r] == 0) todo.push_back(r);
    }
    while (!todo.empty()) {
      const size_t r = todo.back();
      todo.pop_back();
      ++taken;
      for (const int32_t c : calls[r]) {
        if (--callers[static_cast<size_t>(c)] == 0) todo.push_back(static_cast<size_t>(c));
      }
    }
    if (taken == count) return;
    const auto r =
        static_cast<size_t>(std::find_if(callers.begin(), callers.end(), [](int n) { return n > 0; }) - callers.begin());
    const std::string name = r < rules_.size() ? rules_.name(r) : "";
    throw InvalidGrammar(name.empty()
                             ? "it is left-recursive"
                             : fmt::format("the rule `{}` is left-recursive: it calls itself before it reads a character", name));
  }

  void mark_only_ends() {
    auto& states = grammar_.states;
    // Behind a state whose one way on is empty comes the next; chains are short, and circles are left as they are.
    for (State& s : states) {
      const State* at = &s;
      for (int i = 0; i < 16 && at->edges.size() == 1 && at->edges[0].kind == Edge::Kind::kEmpty && !at->ends_rule; ++i) {
        at = &states[static_cast<size_t>(at->edges[0].target)];
      }
      s.only_ends = at->edges.empty() && at->ends_rule;
    }
  }

  const Rules& rules_;
  std::vector<ExprPtr> bodies_;  // of the rules, then of parts that became rules
  std::unordered_map<const Expr*, int> rules_of_parts_;
  Grammar grammar_;
  size_t num_edges_ = 0;
  std::map<std::tuple<uint8_t, uint8_t, int32_t>, int32_t> tails_;  // of one character's last bytes
};

}  // namespace

Grammar compile(const Rules& rules) { return Compiler(rules).run(); }

}  // namespace tutti::grammar
