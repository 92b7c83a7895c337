// The objects that a render creates: namespaces and the special variable `loop`. One render, one
// thread.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "text/jinja_value.h"

namespace tutti::jinja {

// namespace(): the one thing that a template can assign attributes of.
class Namespace : public Object {
 public:
  static Value make(Args args, Runtime& rt);
  std::string type_name() const override { return "Namespace"; }
  std::string repr(Runtime& rt) const override;
  std::optional<Value> attribute(const std::string& name, Runtime& rt) override;
  void set(const std::string& name, Value value, Runtime& rt);
  void drop_references() override { attributes_ = std::make_shared<Dict>(); }

 private:
  std::shared_ptr<Dict> attributes_ = std::make_shared<Dict>();
};

// The special variable `loop`, and the iteration itself: it looks one item ahead for loop.last and
// loop.nextitem.
class Loop : public Object, public std::enable_shared_from_this<Loop> {
 public:
  // Renders the loop's body over another iterable, one level deeper; only recursive loops have it.
  using Recurse = std::function<Value(const Value& iterable, int depth)>;

  // `size`: of the iterable, when it is known beforehand.
  Loop(std::unique_ptr<Iterator> source, std::optional<size_t> size, Recurse recurse, int depth)
      : source_(std::move(source)), size_(size), recurse_(std::move(recurse)), depth_(depth) {}

  std::optional<Value> advance(Runtime& rt);
  // The loop is over. A template that kept `loop` may still ask it things, but draws no more items.
  void stop();

  std::string type_name() const override { return "LoopContext"; }
  std::string repr(Runtime& rt) const override;
  std::optional<Value> attribute(const std::string& name, Runtime& rt) override;
  bool callable() const override { return true; }
  Value call(Args args, Runtime& rt) override;
  std::optional<size_t> length(Runtime& rt) const override {
    return const_cast<Loop*>(this)->size(rt);
  }
  void drop_references() override;

 private:
  size_t size(Runtime& rt);
  const std::optional<Value>& peek(Runtime& rt);
  Value cycle(Args args) const;
  Value changed(Args args, Runtime& rt);

  std::unique_ptr<Iterator> source_;
  std::optional<size_t> size_;
  Recurse recurse_;
  int depth_;
  int64_t index0_ = -1;
  bool peeked_ = false;
  std::optional<Value> after_, current_, before_, last_changed_;
};

}  // namespace tutti::jinja
