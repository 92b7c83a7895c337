#include "text/jinja_value.h"

#include <algorithm>

#include "text/jinja_ops.h"
#include "text/jinja_unicode.h"

namespace tutti::jinja {

void fail(const std::string& message) { throw TemplateError(message); }

Runtime::~Runtime() {
  for (const auto& object : dropped_at_end_) object->drop_references();
}

void Runtime::out_of_steps() const {
  fail("stopped after " + std::to_string(max_steps_) + " steps: the template loops too long");
}

void Runtime::text_too_long(size_t bytes) {
  fail("a text of " + std::to_string(bytes) + " bytes is over the limit of " +
       std::to_string(kMaxText));
}

void Runtime::too_deep() {
  fail("macros, loops and expressions are nested deeper than " + std::to_string(kMaxCallDepth) +
       " levels");
}

int64_t Range::size() const {
  if (step > 0) return start >= stop ? 0 : (stop - start - 1) / step + 1;
  return start <= stop ? 0 : (start - stop - 1) / -step + 1;
}

Value::Value(std::string text, bool markup) {
  const bool ascii = is_ascii(text);
  data_ = std::make_shared<const Str>(Str{std::move(text), ascii, markup});
}

Value Value::undefined(std::string message) {
  return undefined(std::make_shared<const std::string>(std::move(message)));
}

Value Value::undefined(std::shared_ptr<const std::string> message) {
  Value v;
  v.data_ = Undefined{std::move(message)};
  return v;
}

const std::vector<Value>& Value::items() const {
  return is_list() ? std::get<ListPtr>(data_)->items : std::get<TuplePtr>(data_)->items;
}

bool Value::same_as(const Value& other) const {
  if (data_.index() != other.data_.index()) return false;
  if (is_none()) return true;
  if (is_bool()) return as_bool() == other.as_bool();
  if (is_int()) {  // CPython shares the small ones
    return as_int() == other.as_int() && as_int() >= -5 && as_int() <= 256;
  }
  return std::visit(
      [&](const auto& a) {
        using T = std::decay_t<decltype(a)>;
        if constexpr (std::is_class_v<T> && requires { a.get(); }) {
          return a == std::get<T>(other.data_);
        } else {
          return false;
        }
      },
      data_);
}

std::string Value::type_name() const {
  static constexpr const char* kNames[] = {"Undefined", "NoneType",  "bool", "int",
                                           "float",     "str",       "list", "tuple",
                                           "dict",      "dict_view", "range"};
  if (is_object()) return object().type_name();
  if (is_markup()) return "Markup";
  if (is_view()) {
    return view().kind == DictView::Kind::kKeys     ? "dict_keys"
           : view().kind == DictView::Kind::kValues ? "dict_values"
                                                    : "dict_items";
  }
  return kNames[data_.index()];
}

int Value::depth() const {
  if (is_list()) return std::get<ListPtr>(data_)->depth;
  if (is_tuple()) return tuple().depth;
  if (is_dict()) return dict().depth();
  if (is_view()) return view().dict->depth() + 1;
  if (is_object()) return object().depth();
  return 0;
}

namespace {

int checked_depth(int depth) {
  if (depth > kMaxValueDepth) {
    fail("values are nested deeper than " + std::to_string(kMaxValueDepth) + " levels");
  }
  return depth;
}

int depth_over(const std::vector<Value>& items) {
  int deepest = 0;
  for (const Value& v : items) deepest = std::max(deepest, v.depth());
  return checked_depth(deepest + 1);
}

}  // namespace

Value make_list(std::vector<Value> items, Runtime& rt) {
  rt.step(static_cast<int64_t>(items.size()) + 1);
  const int depth = depth_over(items);
  return Value(std::make_shared<const List>(List{std::move(items), depth}));
}

Value make_tuple(std::vector<Value> items, Runtime& rt, bool group) {
  rt.step(static_cast<int64_t>(items.size()) + 1);
  const int depth = depth_over(items);
  return Value(std::make_shared<const Tuple>(Tuple{std::move(items), depth, group}));
}

Value make_text(std::string text, Runtime& rt, bool markup) {
  rt.text(text.size());
  return Value(std::move(text), markup);
}

const Value* Dict::find(const Value& key, Runtime& rt) const {
  if (key.is_string()) {
    rt.step();
    return find(std::string_view(key.text()));
  }
  if (entries_.size() < kIndexFrom) {
    if (!hashable(key, rt)) fail("unhashable type: '" + key.type_name() + "'");
    for (const Entry& e : entries_) {
      if (equals(e.first, key, rt)) return &e.second;
    }
    return nullptr;
  }
  const auto [begin, end] = index_.equal_range(hash(key, rt));
  for (auto it = begin; it != end; ++it) {
    if (equals(entries_[it->second].first, key, rt)) return &entries_[it->second].second;
  }
  return nullptr;
}

const Value* Dict::find(std::string_view key) const {
  const auto matches = [&](const Entry& e) { return e.first.is_string() && e.first.text() == key; };
  if (entries_.size() < kIndexFrom) {
    for (const Entry& e : entries_) {
      if (matches(e)) return &e.second;
    }
    return nullptr;
  }
  const auto [begin, end] = index_.equal_range(std::hash<std::string_view>()(key));
  for (auto it = begin; it != end; ++it) {
    if (matches(entries_[it->second])) return &entries_[it->second].second;
  }
  return nullptr;
}

void Dict::set(Value key, Value value, Runtime& rt) {
  if (const Value* old = find(key, rt)) {
    *const_cast<Value*>(old) = std::move(value);
    return;
  }
  depth_ = checked_depth(std::max({depth_, key.depth() + 1, value.depth() + 1}));
  entries_.emplace_back(std::move(key), std::move(value));
  if (entries_.size() == kIndexFrom) {
    for (size_t i = 0; i < entries_.size(); ++i) index_.emplace(hash(entries_[i].first, rt), i);
  } else if (entries_.size() > kIndexFrom) {
    index_.emplace(hash(entries_.back().first, rt), entries_.size() - 1);
  }
}

void Dict::clear() {
  entries_.clear();
  index_.clear();
}

std::optional<Value> Args::take_named(std::string_view name) {
  for (auto it = named.begin(); it != named.end(); ++it) {
    if (it->first == name) {
      Value v = std::move(it->second);
      named.erase(it);
      return v;
    }
  }
  return std::nullopt;
}

std::optional<Value> Object::attribute(const std::string&, Runtime&) { return std::nullopt; }

Value Object::call(Args, Runtime&) { fail("'" + type_name() + "' object is not callable"); }

}  // namespace tutti::jinja
