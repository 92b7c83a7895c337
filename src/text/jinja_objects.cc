#include "text/jinja_objects.h"

#include "text/jinja_methods.h"
#include "text/jinja_ops.h"

namespace tutti::jinja {
namespace {

// What is left of an iteration whose size had to be counted.
class VectorIterator : public Iterator {
 public:
  explicit VectorIterator(std::vector<Value> items) : items_(std::move(items)) {}
  std::optional<Value> next(Runtime&) override {
    if (i_ == items_.size()) return std::nullopt;
    return items_[i_++];
  }

 private:
  std::vector<Value> items_;
  size_t i_ = 0;
};

}  // namespace

Value Namespace::make(Args args, Runtime& rt) {
  auto out = std::make_shared<Namespace>();
  rt.drop_at_end(out);
  if (args.positional.size() > 1) fail("namespace() takes at most one positional argument");
  if (!args.positional.empty()) {
    const Value& from = args.positional[0];
    if (!from.is_dict()) fail("namespace() takes a dict, not " + from.type_name());
    for (const auto& [key, value] : from.dict().entries()) out->set(to_text(key, rt), value, rt);
  }
  for (auto& [name, value] : args.named) out->set(name, std::move(value), rt);
  return Value(ObjectPtr(out));
}

std::string Namespace::repr(Runtime& rt) const {
  return "<Namespace " + jinja::repr(Value(DictPtr(attributes_)), rt) + ">";
}

std::optional<Value> Namespace::attribute(const std::string& name, Runtime&) {
  const Value* found = attributes_->find(name);
  return found ? std::optional<Value>(*found) : std::nullopt;
}

void Namespace::set(const std::string& name, Value value, Runtime& rt) {
  if (name.starts_with('_'))
    fail("a namespace cannot have the attribute " + quote(name) + ": it starts with _");
  rt.step();
  attributes_->set(Value(name), std::move(value), rt);
}

std::optional<Value> Loop::advance(Runtime& rt) {
  std::optional<Value> item = peeked_ ? std::move(after_) : source_->next(rt);
  peeked_ = false;
  after_.reset();
  if (!item) return std::nullopt;
  ++index0_;
  before_ = std::move(current_);
  current_ = item;
  return item;
}

void Loop::stop() { source_ = std::make_unique<VectorIterator>(std::vector<Value>()); }

const std::optional<Value>& Loop::peek(Runtime& rt) {
  // An exhausted source is asked again, like in jinja2, and says so again.
  if (!peeked_ || !after_) {
    after_ = source_->next(rt);
    peeked_ = true;
  }
  return after_;
}

size_t Loop::size(Runtime& rt) {
  if (!size_) {
    std::vector<Value> rest;
    while (auto item = source_->next(rt)) {
      rt.step();
      rest.push_back(std::move(*item));
    }
    size_ = rest.size() + static_cast<size_t>(index0_ + 1) + (peeked_ && after_ ? 1 : 0);
    source_ = std::make_unique<VectorIterator>(std::move(rest));
  }
  return *size_;
}

std::string Loop::repr(Runtime& rt) const {
  const size_t n = const_cast<Loop*>(this)->size(rt);
  return "<LoopContext " + std::to_string(index0_ + 1) + "/" + std::to_string(n) + ">";
}

std::optional<Value> Loop::attribute(const std::string& name, Runtime& rt) {
  const auto bound = [&](auto method) {
    return make_function(name, 0, [self = shared_from_this(), method](Args args, Runtime& r) {
      return method(*self, std::move(args), r);
    });
  };
  if (name == "index") return index0_ + 1;
  if (name == "index0") return index0_;
  if (name == "first") return index0_ == 0;
  if (name == "last") return !peek(rt);
  if (name == "length") return size(rt);
  if (name == "revindex") return static_cast<int64_t>(size(rt)) - index0_;
  if (name == "revindex0") return static_cast<int64_t>(size(rt)) - index0_ - 1;
  if (name == "depth") return depth_ + 1;
  if (name == "depth0") return depth_;
  if (name == "previtem")
    return before_ && index0_ > 0 ? *before_ : Value::undefined("there is no previous item");
  if (name == "nextitem") {
    const auto& next = peek(rt);
    return next ? *next : Value::undefined("there is no next item");
  }
  if (name == "cycle")
    return bound([](Loop& l, Args args, Runtime&) { return l.cycle(std::move(args)); });
  if (name == "changed")
    return bound([](Loop& l, Args args, Runtime& r) { return l.changed(std::move(args), r); });
  return std::nullopt;
}

Value Loop::cycle(Args args) const {
  if (args.positional.empty()) fail("no items for cycling given");
  return args.positional[static_cast<size_t>(index0_) % args.positional.size()];
}

Value Loop::changed(Args args, Runtime& rt) {
  Value now = make_tuple(std::move(args.positional), rt);
  if (last_changed_ && equals(*last_changed_, now, rt)) return false;
  if (!last_changed_) rt.drop_at_end(shared_from_this());
  last_changed_ = std::move(now);
  return true;
}

Value Loop::call(Args args, Runtime&) {
  if (!recurse_) fail("The loop must have the 'recursive' marker to be called recursively.");
  const BoundArgs a("loop", std::move(args), {"iterable"}, 1);
  return recurse_(a[0], depth_ + 1);
}

void Loop::drop_references() {
  after_.reset();
  current_.reset();
  before_.reset();
  last_changed_.reset();
}

}  // namespace tutti::jinja
