#include "grammar/automaton.h"

#include <algorithm>
#include <bit>
#include <map>

#include "base/check.h"

namespace tutti::grammar {
namespace {

constexpr int32_t kDead = 0;     // the configuration without a way on
constexpr int32_t kNotYet = -1;  // a byte that was not followed yet
constexpr int32_t kBottom = 0;   // the stack outside of all calls
constexpr int32_t kTooDeep = -1;
constexpr int kMaxDepth = 256;  // of calls within each other
constexpr size_t kMaxMemory = 32u << 20;
constexpr size_t kMaxMaskMemory = 16u << 20;
constexpr int64_t kMaskWork = 4'000'000;     // about 20 ms
constexpr int64_t kConfigurationWork = 128;  // what a new configuration costs of it
constexpr int64_t kStackWork = 64;           // or a new stack
// Of one configuration, however many ways there are to it, and what a new stack costs of it: 20,000 of them take some 0.2 s. A schema of the
// largest size that is taken, whose members are all optional, wants 9,000.
constexpr int64_t kClosureWork = 128'000'000;
constexpr int64_t kClosureStackWork = kClosureWork / 20'000;

uint64_t mix(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * 0x9E3779B97F4A7C15ull;
  return hash ^ hash >> 29;
}

}  // namespace

struct Automaton::Configuration {
  Items items;                // by state; those that read a byte
  bool accepts = false;       // the outermost rule may end here
  std::vector<int32_t> next;  // by class of bytes; empty until first needed
  std::shared_ptr<const TokenMask> mask;
  std::shared_ptr<const LocalMask> local;
};

// Of a configuration whose stacks are all the bottom: what is allowed below it, and the nodes of the trie where the bottom is
// reached with bytes left.
struct Automaton::LocalMask {
  std::vector<uint64_t> bits;
  std::vector<int32_t> exits;
};

bool TokenMask::allows(int32_t token) const {
  if (bits.empty()) return std::binary_search(tokens.begin(), tokens.end(), token);
  const auto t = static_cast<size_t>(token);
  return token >= 0 && t / 64 < bits.size() && (bits[t / 64] >> t % 64 & 1) != 0;
}

Automaton::Automaton(Grammar grammar, std::shared_ptr<const Vocabulary> vocabulary)
    : grammar_(std::move(grammar)), vocabulary_(std::move(vocabulary)), stack_of_(grammar_.states.size(), -1), closure_left_(kClosureWork) {
  // Bytes between two ends of ranges are all treated alike.
  std::array<bool, 257> begins{};
  for (const State& s : grammar_.states) {
    for (const Edge& e : s.edges) {
      if (e.kind == Edge::Kind::kByte) begins[e.first] = begins[e.last + 1u] = true;
    }
  }
  for (size_t b = 0; b < 256; ++b) {
    if (b > 0 && begins[b]) ++num_classes_;
    class_of_[b] = static_cast<uint8_t>(num_classes_);
  }
  ++num_classes_;
  uint16_t deepest = 0;
  for (const Vocabulary::Node& node : vocabulary_->nodes()) deepest = std::max(deepest, node.depth);
  path_.resize(deepest + 1u);
  clear();
}

Automaton::~Automaton() = default;

void Automaton::clear() {
  ++generation_;
  configurations_.clear();
  by_hash_.clear();
  stacks_.clear();
  stacks_by_hash_.clear();
  unions_.clear();
  resumed_.clear();
  memory_ = mask_memory_ = 0;
  CHECK_EQ(intern({}, false), kDead);
  CHECK_EQ(intern_stack(true, {}), kBottom);
}

Automaton::Counts Automaton::counts() const {
  std::lock_guard lock(mutex_);
  Counts counts{.configurations = configurations_.size(), .generation = generation_};
  for (const Configuration& c : configurations_) counts.masks += c.mask != nullptr ? 1 : 0;
  return counts;
}

std::shared_ptr<const TokenMask> Automaton::next(Progress& progress, std::span<const int32_t> tokens) {
  std::lock_guard lock(mutex_);
  if (memory_ > kMaxMemory) clear();
  if (progress.generation != generation_ || progress.num_tokens > tokens.size()) {
    progress = {.generation = generation_, .configuration = start(), .num_tokens = 0};
  }
  for (; progress.num_tokens < tokens.size(); ++progress.num_tokens) {
    const std::string_view bytes = vocabulary_->bytes(tokens[progress.num_tokens]);
    progress.configuration = bytes.empty() ? kDead : advance(progress.configuration, bytes);
  }
  return mask(progress.configuration);
}

bool Automaton::matches(std::string_view text) {
  std::lock_guard lock(mutex_);
  if (memory_ > kMaxMemory) clear();
  return configurations_[static_cast<size_t>(advance(start(), text))].accepts;
}

bool Automaton::start_is_whole() {
  std::lock_guard lock(mutex_);
  cut_short_ = false;
  start();
  return !cut_short_;
}

int32_t Automaton::start() {
  add(grammar_.rule_starts[0], kBottom);
  return close();
}

int32_t Automaton::advance(int32_t configuration, std::string_view bytes) {
  for (const char c : bytes) configuration = step(configuration, static_cast<uint8_t>(c));
  return configuration;
}

int32_t Automaton::step(int32_t configuration, uint8_t byte) {
  const auto c = static_cast<size_t>(configuration);
  if (configurations_[c].next.empty()) {
    configurations_[c].next.assign(num_classes_, kNotYet);
    memory_ += num_classes_ * sizeof(int32_t);
  }
  const size_t byte_class = class_of_[byte];
  int32_t next = configurations_[c].next[byte_class];
  if (next == kNotYet) {
    next = follow_edges(configuration, byte);
    configurations_[c].next[byte_class] = next;
  }
  return next;
}

int32_t Automaton::follow_edges(int32_t configuration, uint8_t byte) {
  for (const Item& item : configurations_[static_cast<size_t>(configuration)].items) {
    const State& state = grammar_.states[static_cast<size_t>(item.state)];
    spend(1 + state.edges.size());
    for (const Edge& e : state.edges) {
      if (e.kind == Edge::Kind::kByte && e.first <= byte && byte <= e.last) add(e.target, item.stack);
    }
  }
  return close();
}

void Automaton::add(int32_t state, int32_t stack) {
  int32_t& known = stack_of_[static_cast<size_t>(state)];
  if (known == stack) return;
  if (known < 0) {
    reached_.push_back(state);
    known = stack;
  } else {
    const int32_t both = unite(known, stack);
    if (both == known) return;
    known = both;
  }
  todo_.push_back(state);
}

void Automaton::spend(size_t work) {
  work_left_ -= static_cast<int64_t>(work);
  closure_left_ -= static_cast<int64_t>(work);
}

bool Automaton::closure_is_spent() {
  if (closure_left_ > 0 && memory_ <= 2 * kMaxMemory) return false;
  cut_short_ = true;
  return true;
}

int32_t Automaton::close() {
  while (!todo_.empty()) {
    if (closure_is_spent()) {  // some ways on are missing then, and none is wrong
      todo_.clear();
      break;
    }
    const int32_t number = todo_.back();
    todo_.pop_back();
    const State& state = grammar_.states[static_cast<size_t>(number)];
    const int32_t stack = stack_of_[static_cast<size_t>(number)];
    spend(1 + state.edges.size());
    for (const Edge& e : state.edges) {
      if (e.kind == Edge::Kind::kEmpty) {
        add(e.target, stack);
      } else if (e.kind == Edge::Kind::kCall) {
        const bool comes_back = !grammar_.states[static_cast<size_t>(e.target)].only_ends;
        const int32_t inner = comes_back ? push(e.target, stack) : stack;
        if (inner != kTooDeep) add(grammar_.rule_starts[static_cast<size_t>(e.rule)], inner);
      }
    }
    if (!state.ends_rule) continue;
    accepts_ = accepts_ || stacks_[static_cast<size_t>(stack)].bottom;
    const std::vector<Frame> frames = stacks_[static_cast<size_t>(stack)].frames;  // add() may make new stacks
    spend(frames.size());
    for (const Frame& f : frames) add(f.target, f.parent);
  }
  closure_left_ = kClosureWork;
  Items items;
  std::sort(reached_.begin(), reached_.end());
  for (const int32_t number : reached_) {
    const auto& edges = grammar_.states[static_cast<size_t>(number)].edges;
    int32_t& stack = stack_of_[static_cast<size_t>(number)];
    if (std::any_of(edges.begin(), edges.end(), [](const Edge& e) { return e.kind == Edge::Kind::kByte; })) {
      items.push_back({number, stack});
    }
    stack = -1;
  }
  reached_.clear();
  const bool accepts = std::exchange(accepts_, false);
  return intern(std::move(items), accepts);
}

int32_t Automaton::intern(Items items, bool accepts) {
  uint64_t hash = accepts ? 1 : 0;
  for (const Item& i : items) hash = mix(hash, static_cast<uint64_t>(i.state) << 32 | static_cast<uint32_t>(i.stack));
  auto& same_hash = by_hash_[hash];
  for (const int32_t c : same_hash) {
    const Configuration& known = configurations_[static_cast<size_t>(c)];
    if (known.accepts == accepts && known.items == items) return c;
  }
  work_left_ -= kConfigurationWork;
  memory_ += sizeof(Configuration) + 64 + items.size() * sizeof(Item);
  same_hash.push_back(static_cast<int32_t>(configurations_.size()));
  configurations_.push_back({.items = std::move(items), .accepts = accepts, .next = {}, .mask = {}, .local = {}});
  return same_hash.back();
}

int32_t Automaton::intern_stack(bool bottom, std::vector<Frame> frames) {
  uint64_t hash = bottom ? 1 : 0;
  int depth = 0;
  for (const Frame& f : frames) {
    hash = mix(hash, static_cast<uint64_t>(f.target) << 32 | static_cast<uint32_t>(f.parent));
    depth = std::max(depth, stacks_[static_cast<size_t>(f.parent)].depth + 1);
  }
  if (depth > kMaxDepth) return kTooDeep;
  auto& same_hash = stacks_by_hash_[hash];
  for (const int32_t s : same_hash) {
    const Stack& known = stacks_[static_cast<size_t>(s)];
    if (known.bottom == bottom && known.frames == frames) return s;
  }
  work_left_ -= kStackWork;
  closure_left_ -= kClosureStackWork;
  memory_ += sizeof(Stack) + 64 + frames.size() * sizeof(Frame);
  same_hash.push_back(static_cast<int32_t>(stacks_.size()));
  stacks_.push_back({bottom, std::move(frames), depth});
  return same_hash.back();
}

int32_t Automaton::push(int32_t target, int32_t stack) { return intern_stack(false, {{target, stack}}); }

int32_t Automaton::unite(int32_t a, int32_t b) {
  if (a == b || closure_is_spent()) return a;
  const uint64_t key = static_cast<uint64_t>(std::min(a, b)) << 32 | static_cast<uint32_t>(std::max(a, b));
  if (const auto found = unions_.find(key); found != unions_.end()) return found->second;
  const std::vector<Frame> left = stacks_[static_cast<size_t>(a)].frames, right = stacks_[static_cast<size_t>(b)].frames;
  const bool bottom = stacks_[static_cast<size_t>(a)].bottom || stacks_[static_cast<size_t>(b)].bottom;
  std::vector<Frame> both;
  for (size_t i = 0, k = 0; i < left.size() || k < right.size();) {
    if (k == right.size() || (i < left.size() && left[i].target < right[k].target)) {
      both.push_back(left[i++]);
    } else if (i == left.size() || right[k].target < left[i].target) {
      both.push_back(right[k++]);
    } else {
      both.push_back({left[i].target, unite(left[i].parent, right[k].parent)});
      ++i;
      ++k;
    }
  }
  spend(both.size());
  const int32_t result = intern_stack(bottom, std::move(both));  // no deeper than the deeper one
  memory_ += 48;
  unions_.emplace(key, result);
  return result;
}

// What may come behind the innermost call.
int32_t Automaton::resume(int32_t stack) {
  const auto [it, fresh] = resumed_.emplace(stack, kDead);
  if (fresh) {
    const std::vector<Frame> frames = stacks_[static_cast<size_t>(stack)].frames;
    for (const Frame& f : frames) add(f.target, f.parent);
    resumed_[stack] = close();
  }
  return resumed_[stack];
}

void Automaton::allow(std::vector<uint64_t>& bits, int32_t token) const {
  for (; token >= 0; token = vocabulary_->same_bytes(token)) bits[static_cast<size_t>(token) / 64] |= 1ull << token % 64;
}

template <typename Visit>
void Automaton::walk(int32_t configuration, int32_t top, const Visit& visit) {
  const auto& nodes = vocabulary_->nodes();
  const auto node = [&](int32_t i) -> const Vocabulary::Node& { return nodes[static_cast<size_t>(i)]; };
  const int32_t end = node(top).end;
  int64_t children = 0;
  for (int32_t i = top + 1; i < end; i = node(i).end) ++children;
  path_[node(top).depth] = configuration;
  // Each child gets an equal part of the work that is left, so that no byte is starved by those before it.
  for (int32_t child = top + 1; child < end; child = node(child).end, --children) {
    const int64_t stop_at = work_left_ - std::max<int64_t>(work_left_ / children, 1);
    for (int32_t i = child; i < node(child).end && work_left_ > stop_at;) {
      const Vocabulary::Node& n = node(i);
      --work_left_;
      const int32_t there = step(path_[n.depth - 1u], n.byte);
      if (memory_ > 2 * kMaxMemory) return;
      if (there == kDead) {
        i = n.end;
        continue;
      }
      path_[n.depth] = there;
      visit(i, there);
      ++i;
    }
  }
}

std::shared_ptr<const Automaton::LocalMask> Automaton::local_mask(int32_t configuration) {
  const auto c = static_cast<size_t>(configuration);
  if (configurations_[c].local) return configurations_[c].local;
  auto local = std::make_shared<LocalMask>();
  local->bits.resize((static_cast<size_t>(vocabulary_->size()) + 63) / 64);
  walk(configuration, 0, [&](int32_t i, int32_t there) {
    const Vocabulary::Node& node = vocabulary_->nodes()[static_cast<size_t>(i)];
    allow(local->bits, node.token);
    if (node.end > i + 1 && configurations_[static_cast<size_t>(there)].accepts) local->exits.push_back(i);
  });
  mask_memory_ += local->bits.size() * sizeof(uint64_t) + local->exits.size() * sizeof(int32_t);
  configurations_[c].local = local;
  return local;
}

std::shared_ptr<const TokenMask> Automaton::mask(int32_t configuration) {
  const auto c = static_cast<size_t>(configuration);
  if (configurations_[c].mask) return configurations_[c].mask;
  if (mask_memory_ > kMaxMaskMemory) {
    for (Configuration& other : configurations_) other.mask = nullptr, other.local = nullptr;
    mask_memory_ = 0;
  }
  work_left_ = kMaskWork;
  std::map<int32_t, Items> by_stack;
  for (const Item& item : configurations_[c].items) by_stack[item.stack].push_back({item.state, kBottom});
  std::vector<uint64_t> bits((static_cast<size_t>(vocabulary_->size()) + 63) / 64);
  const auto allow_node = [&](int32_t i, int32_t) { allow(bits, vocabulary_->nodes()[static_cast<size_t>(i)].token); };
  const bool deep = std::any_of(by_stack.begin(), by_stack.end(),
                                [&](const auto& s) { return stacks_[static_cast<size_t>(s.first)].depth > kMaxDepth / 2; });
  if (deep) {  // what a stack has no room for, the innermost call alone does not know
    walk(configuration, 0, allow_node);
    by_stack.clear();
  }
  for (auto& [stack, items] : by_stack) {
    const auto local = local_mask(intern(std::move(items), false));
    for (size_t i = 0; i < bits.size(); ++i) bits[i] |= local->bits[i];
    if (stack == kBottom) continue;
    const int32_t outside = resume(stack);
    for (const int32_t exit : local->exits) walk(outside, exit, allow_node);
  }
  auto mask = std::make_shared<TokenMask>();
  mask->may_end = configurations_[c].accepts;
  size_t count = 0;
  for (const uint64_t word : bits) count += static_cast<size_t>(std::popcount(word));
  if (count > bits.size()) {
    mask->bits = std::move(bits);
  } else {
    for (size_t i = 0; i < bits.size(); ++i) {
      for (uint64_t word = bits[i]; word != 0; word &= word - 1)
        mask->tokens.push_back(static_cast<int32_t>(i * 64) + std::countr_zero(word));
    }
  }
  mask_memory_ += mask->bits.size() * sizeof(uint64_t) + mask->tokens.size() * sizeof(int32_t) + sizeof(TokenMask);
  configurations_[c].mask = mask;
  return mask;
}

}  // namespace tutti::grammar
