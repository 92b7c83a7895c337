#include "grammar/expression.h"

#include <algorithm>
#include <utility>

namespace tutti::grammar {
namespace {

constexpr uint32_t kFirstSurrogate = 0xD800, kLastSurrogate = 0xDFFF;

std::shared_ptr<Expr> make(Expr::Kind kind) {
  auto e = std::make_shared<Expr>();
  e->kind = kind;
  return e;
}

}  // namespace

CharSet::CharSet(std::vector<CodeRange> ranges) {
  std::vector<CodeRange> whole;
  for (const CodeRange& r : ranges) {
    if (r.first > r.last) continue;
    if (r.last < kFirstSurrogate || r.first > kLastSurrogate) {
      whole.push_back(r);
      continue;
    }
    if (r.first < kFirstSurrogate) whole.push_back({r.first, kFirstSurrogate - 1});
    if (r.last > kLastSurrogate) whole.push_back({kLastSurrogate + 1, r.last});
  }
  std::sort(whole.begin(), whole.end(), [](const CodeRange& a, const CodeRange& b) { return a.first < b.first; });
  for (const CodeRange& r : whole) {
    if (!ranges_.empty() && r.first <= ranges_.back().last + 1) {
      ranges_.back().last = std::max(ranges_.back().last, r.last);
    } else {
      ranges_.push_back(r);
    }
  }
}

CharSet CharSet::operator|(const CharSet& other) const {
  std::vector<CodeRange> both = ranges_;
  both.insert(both.end(), other.ranges_.begin(), other.ranges_.end());
  return CharSet(std::move(both));
}

CharSet CharSet::complement() const {
  std::vector<CodeRange> gaps;
  uint32_t next = 0;
  for (const CodeRange& r : ranges_) {
    if (r.first > next) gaps.push_back({next, r.first - 1});
    next = r.last + 1;
  }
  if (next <= kLast) gaps.push_back({next, kLast});
  return CharSet(std::move(gaps));
}

CharSet CharSet::operator&(const CharSet& other) const { return (complement() | other.complement()).complement(); }

ExprPtr text(std::string bytes) {
  auto e = make(Expr::Kind::kBytes);
  e->bytes = std::move(bytes);
  return e;
}

ExprPtr one_of(CharSet chars, Encoding encoding) {
  auto e = make(Expr::Kind::kChar);
  e->chars = std::move(chars);
  e->encoding = encoding;
  return e;
}

ExprPtr sequence(std::vector<ExprPtr> parts) {
  auto e = make(Expr::Kind::kSequence);
  e->parts = std::move(parts);
  return e;
}

ExprPtr choice(std::vector<ExprPtr> parts) {
  auto e = make(Expr::Kind::kChoice);
  e->parts = std::move(parts);
  return e;
}

ExprPtr repeat(ExprPtr part, int64_t min, int64_t max) {
  auto e = make(Expr::Kind::kRepeat);
  e->parts = {std::move(part)};
  e->min = min;
  e->max = max;
  return e;
}

ExprPtr optional(ExprPtr part) { return repeat(std::move(part), 0, 1); }

ExprPtr call(int rule) {
  auto e = make(Expr::Kind::kRule);
  e->rule = rule;
  return e;
}

Lengths lengths_of(const Expr& e) {
  static constexpr int64_t kMany = int64_t{1} << 40;
  const auto sum = [](int64_t a, int64_t b) { return a == kUnlimited || b == kUnlimited ? kUnlimited : std::min(kMany, a + b); };
  const auto times = [](int64_t n, int64_t length) {
    if (length == 0) return int64_t{0};
    return n == kUnlimited || length == kUnlimited ? kUnlimited : n > kMany / length ? kMany : n * length;
  };
  switch (e.kind) {
    case Expr::Kind::kBytes: {
      const auto n = std::count_if(e.bytes.begin(), e.bytes.end(), [](char c) { return (c & 0xC0) != 0x80; });
      return {n, n};
    }
    case Expr::Kind::kChar:
      return {1, 1};
    case Expr::Kind::kRepeat: {
      const Lengths part = lengths_of(*e.parts.front());
      return {times(e.min, part.min), times(e.max, part.max)};
    }
    case Expr::Kind::kChoice: {
      Lengths all{e.parts.empty() ? 0 : kMany, 0};
      for (const ExprPtr& part : e.parts) {
        const Lengths one = lengths_of(*part);
        all.min = std::min(all.min, one.min);
        all.max = all.max == kUnlimited || one.max == kUnlimited ? kUnlimited : std::max(all.max, one.max);
      }
      return all;
    }
    default: {
      Lengths all;
      for (const ExprPtr& part : e.parts) {
        const Lengths one = lengths_of(*part);
        all.min = sum(all.min, one.min);
        all.max = sum(all.max, one.max);
      }
      return all;
    }
  }
}

int Rules::declare(std::string name) {
  bodies_.emplace_back();
  names_.push_back(std::move(name));
  return static_cast<int>(bodies_.size()) - 1;
}

}  // namespace tutti::grammar
