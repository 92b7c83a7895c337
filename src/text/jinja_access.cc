// Iteration, items, attributes and calls.
#include <algorithm>

#include "text/jinja_methods.h"
#include "text/jinja_ops.h"
#include "text/jinja_unicode.h"

namespace tutti::jinja {
namespace {

class TextIterator : public Iterator {
 public:
  explicit TextIterator(Value v) : v_(std::move(v)) {}
  std::optional<Value> next(Runtime&) override {
    const std::string& text = v_.text();
    if (pos_ >= text.size()) return std::nullopt;
    const size_t start = pos_;
    next_code_point(text, pos_);
    return Value(text.substr(start, pos_ - start), v_.is_markup());
  }

 private:
  Value v_;
  size_t pos_ = 0;
};

// Anything that can say what its i-th item is.
template <typename At>
class IndexedIterator : public Iterator {
 public:
  IndexedIterator(Value keep, size_t size, At at)
      : keep_(std::move(keep)), size_(size), at_(std::move(at)) {}
  std::optional<Value> next(Runtime& rt) override {
    if (i_ >= size_) return std::nullopt;
    return at_(keep_, i_++, rt);
  }

 private:
  Value keep_;
  size_t size_;
  At at_;
  size_t i_ = 0;
};

template <typename At>
std::unique_ptr<Iterator> indexed(const Value& v, size_t size, At at) {
  return std::make_unique<IndexedIterator<At>>(v, size, std::move(at));
}

// Draws from an object that is its own iterator.
class SharedIterator : public Iterator {
 public:
  explicit SharedIterator(ObjectPtr object) : object_(std::move(object)) {}
  std::optional<Value> next(Runtime& rt) override { return object_->iterator()->next(rt); }

 private:
  ObjectPtr object_;
};

class Generator : public Object, public Iterator {
 public:
  Generator(std::string type_name, int depth, std::function<std::optional<Value>(Runtime&)> next)
      : type_name_(std::move(type_name)), depth_(depth), next_(std::move(next)) {}
  std::string type_name() const override { return type_name_; }
  std::string repr(Runtime&) const override { return "<" + type_name_ + " object>"; }
  Iterator* iterator() override { return this; }
  int depth() const override { return depth_; }
  std::optional<Value> next(Runtime& rt) override {
    const Runtime::Depth depth(rt);
    if (!next_) return std::nullopt;
    auto v = next_(rt);
    if (!v) next_ = nullptr;  // a generator stays exhausted
    return v;
  }

 private:
  std::string type_name_;
  int depth_;
  std::function<std::optional<Value>(Runtime&)> next_;
};

class Function : public Object {
 public:
  Function(std::string name, int depth, std::function<Value(Args, Runtime&)> body)
      : name_(std::move(name)), depth_(depth), body_(std::move(body)) {}
  std::string type_name() const override { return "builtin_function_or_method"; }
  std::string repr(Runtime&) const override { return "<built-in method " + name_ + ">"; }
  bool callable() const override { return true; }
  Value call(Args args, Runtime& rt) override { return body_(std::move(args), rt); }
  int depth() const override { return depth_; }

 private:
  std::string name_;
  int depth_;
  std::function<Value(Args, Runtime&)> body_;
};

// "'dict object' has no attribute 'x'" in jinja2's words.
Value no_attribute(const Value& v, const Value& key, Runtime& rt) {
  const std::string owner = v.is_none() ? "None" : v.type_name() + " object";
  if (!key.is_string()) return Value::undefined(owner + " has no element " + repr(key, rt));
  return Value::undefined(quote(owner) + " has no attribute " + quote(key.text()));
}

// What slice.indices() of Python computes, and how many items that are.
struct SliceRange {
  int64_t start, stop, step, count;
};

SliceRange slice_range(const Value& start, const Value& stop, const Value& step, int64_t size) {
  const int64_t by = step.is_none() ? 1 : std::max<int64_t>(as_index(step), -INT64_MAX);
  if (by == 0) fail("slice step cannot be zero");
  const int64_t low = by > 0 ? 0 : -1, high = by > 0 ? size : size - 1;
  const auto bound = [&](const Value& v, int64_t otherwise) {
    if (v.is_none()) return otherwise;
    const int64_t i = as_index(v);
    return std::clamp(i < 0 ? i + size : i, low, high);
  };
  const int64_t first = bound(start, by > 0 ? low : high), last = bound(stop, by > 0 ? high : low);
  const int64_t gap = by > 0 ? last - first : first - last;
  return {first, last, by, gap > 0 ? (gap - 1) / std::abs(by) + 1 : 0};
}

std::string slice_text(const Str& s, const SliceRange& r, int64_t size) {
  if (r.count == 0) return "";
  if (r.count == size && r.step == 1) return s.text;
  if (s.ascii && r.step == 1) return s.text.substr(r.start, r.count);
  const auto points = code_points(s.text);
  std::vector<uint32_t> chosen;
  for (int64_t i = 0; i < r.count; ++i) chosen.push_back(points[r.start + i * r.step]);
  return encode(chosen);
}

// v[i] of a sequence; nothing when out of bounds.
std::optional<Value> sequence_item(const Value& v, Int index, Runtime& rt) {
  const Int size = static_cast<Int>(*length(v, rt));
  if (index < 0) index += size;
  if (index < 0 || index >= size) return std::nullopt;
  const auto i = static_cast<int64_t>(index);
  if (v.is_list() || v.is_tuple()) return v.items()[i];
  if (v.is_range()) return Value(v.range().at(i));
  rt.step(v.str().ascii ? 1 : i / 32);
  return Value(slice_text(v.str(), {i, i + 1, 1, 1}, -1), v.is_markup());
}

// v[key] as Python does it; nothing on a TypeError or LookupError.
std::optional<Value> python_item(const Value& v, const Value& key, Runtime& rt) {
  if (v.is_undefined()) fail(v.undefined_message());
  if (v.is_dict()) {
    if (!hashable(key, rt)) return std::nullopt;
    const Value* found = v.dict().find(key, rt);
    return found ? std::optional<Value>(*found) : std::nullopt;
  }
  const bool sequence = v.is_string() || v.is_list() || v.is_tuple() || v.is_range();
  if (sequence && key.is_integral()) return sequence_item(v, key.as_int(), rt);
  return std::nullopt;
}

}  // namespace

std::optional<size_t> length(const Value& v, Runtime& rt) {
  if (v.is_string()) return v.str().ascii ? v.text().size() : code_point_count(v.text());
  if (v.is_list() || v.is_tuple()) return v.items().size();
  if (v.is_dict()) return v.dict().size();
  if (v.is_view()) return v.view().dict->size();
  if (v.is_range()) return v.range().size();
  if (v.is_undefined()) return 0;
  if (v.is_object()) return v.object().length(rt);
  return std::nullopt;
}

bool iterable(const Value& v) {
  if (v.is_object()) return v.object().iterator() != nullptr;
  return !v.is_none() && !v.is_number();
}

std::unique_ptr<Iterator> iterate(const Value& v, Runtime& rt) {
  if (v.is_string()) return std::make_unique<TextIterator>(v);
  if (v.is_list() || v.is_tuple()) {
    return indexed(v, v.items().size(),
                   [](const Value& s, size_t i, Runtime&) { return s.items()[i]; });
  }
  if (v.is_dict()) {
    return indexed(v, v.dict().size(),
                   [](const Value& d, size_t i, Runtime&) { return d.dict().entries()[i].first; });
  }
  if (v.is_view()) {
    return indexed(v, v.view().dict->size(), [](const Value& w, size_t i, Runtime& r) {
      const auto& [key, value] = w.view().dict->entries()[i];
      switch (w.view().kind) {
        case DictView::Kind::kKeys:
          return key;
        case DictView::Kind::kValues:
          return value;
        default:
          return make_tuple({key, value}, r);
      }
    });
  }
  if (v.is_range()) {
    return indexed(v, v.range().size(),
                   [](const Value& r, size_t i, Runtime&) { return Value(r.range().at(i)); });
  }
  if (v.is_undefined()) {
    return indexed(v, 0, [](const Value& u, size_t, Runtime&) { return u; });
  }
  if (v.is_object() && v.object().iterator() != nullptr)
    return std::make_unique<SharedIterator>(v.object_ptr());
  rt.step();
  fail("'" + v.type_name() + "' object is not iterable");
}

std::vector<Value> collect(const Value& v, Runtime& rt) {
  std::vector<Value> items;
  const auto it = iterate(v, rt);
  while (auto item = it->next(rt)) {
    rt.step();
    items.push_back(std::move(*item));
  }
  return items;
}

Value make_generator(std::string type_name, int depth,
                     std::function<std::optional<Value>(Runtime&)> next) {
  if (depth >= kMaxValueDepth)
    fail("filters are chained deeper than " + std::to_string(kMaxValueDepth) + " levels");
  return Value(std::make_shared<Generator>(std::move(type_name), depth + 1, std::move(next)));
}

Value make_function(std::string name, int depth, std::function<Value(Args, Runtime&)> body) {
  if (depth >= kMaxValueDepth)
    fail("values are nested deeper than " + std::to_string(kMaxValueDepth) + " levels");
  return Value(std::make_shared<Function>(std::move(name), depth + 1, std::move(body)));
}

std::optional<Value> find_attr(const Value& v, const std::string& name, Runtime& rt) {
  if (v.is_undefined()) fail(v.undefined_message());
  if (v.is_object()) return v.object().attribute(name, rt);
  if (name.size() > 4 && name.starts_with("__") && name.ends_with("__") &&
      is_python_internal(name)) {
    return unsafe_attribute(v, name);
  }
  return find_method(v, name, rt);
}

Value get_item(const Value& v, const Value& key, Runtime& rt) {
  rt.step();
  if (auto item = python_item(v, key, rt)) return std::move(*item);
  if (key.is_string()) {
    if (auto attribute = find_attr(v, key.text(), rt)) return std::move(*attribute);
  }
  return no_attribute(v, key, rt);
}

Value get_attr(const Value& v, const std::string& name, Runtime& rt) {
  rt.step();
  if (auto attribute = find_attr(v, name, rt)) return std::move(*attribute);
  if (v.is_dict()) {
    if (const Value* found = v.dict().find(name)) return *found;
  }
  return no_attribute(v, Value(name), rt);
}

Value get_slice(const Value& v, const Value& start, const Value& stop, const Value& step,
                Runtime& rt) {
  if (v.is_undefined()) fail(v.undefined_message());
  if (v.is_dict()) fail("unhashable type: 'slice'");
  if (!v.is_string() && !v.is_list() && !v.is_tuple() && !v.is_range()) {
    fail("'" + v.type_name() + "' object is not subscriptable");
  }
  const auto size = static_cast<int64_t>(*length(v, rt));
  const SliceRange r = slice_range(start, stop, step, size);
  if (v.is_string()) return make_text(slice_text(v.str(), r, size), rt, v.is_markup());
  if (v.is_range()) {
    const Range& old = v.range();
    int64_t by;
    if (__builtin_mul_overflow(old.step, r.step, &by)) fail("the step of a range is too large");
    return Value(std::make_shared<const Range>(Range{old.at(r.start), old.at(r.stop), by}));
  }
  std::vector<Value> items;
  for (int64_t i = 0; i < r.count; ++i) items.push_back(v.items()[r.start + i * r.step]);
  return v.is_list() ? make_list(std::move(items), rt) : make_tuple(std::move(items), rt);
}

Value call(const Value& callee, Args args, Runtime& rt) {
  const Runtime::Depth depth(rt);
  rt.step();
  if (callee.is_undefined()) fail(callee.undefined_message());
  if (!callee.is_object() || !callee.object().callable()) {
    fail("'" + callee.type_name() + "' object is not callable");
  }
  const ObjectPtr keep = callee.object_ptr();
  return keep->call(std::move(args), rt);
}

}  // namespace tutti::jinja
