// The values of the Jinja renderer: Python's None, bool, int, float, str, list, tuple, dict, dict
// views and range, the undefined value of jinja2, and objects (functions, macros, loops,
// namespaces, generators). Values are immutable and share what they hold; only objects carry state.
// One render, one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "text/jinja_runtime.h"

namespace tutti::jinja {

// Python's integers are unbounded; 128 bits hold every JSON integer and what templates compute of
// them. Beyond that the render fails rather than wraps.
using Int = __int128;

struct Str {
  std::string text;  // valid UTF-8
  bool ascii;        // then a code point is a byte
  bool markup;       // a markupsafe string: what is added to it gets escaped
};
struct List;
struct Tuple;
class Dict;
struct DictView;
struct Range {
  int64_t start, stop, step;
  int64_t size() const;
  int64_t at(int64_t i) const { return start + i * step; }
};
class Object;

using StrPtr = std::shared_ptr<const Str>;
using ListPtr = std::shared_ptr<const List>;
using TuplePtr = std::shared_ptr<const Tuple>;
using DictPtr = std::shared_ptr<const Dict>;
using ViewPtr = std::shared_ptr<const DictView>;
using RangePtr = std::shared_ptr<const Range>;
using ObjectPtr = std::shared_ptr<Object>;

// A name or attribute that is not there. It may be printed, tested and iterated; any other use
// raises `message`. Without a message it is the "missing" that an unassigned variable slot holds.
struct Undefined {
  std::shared_ptr<const std::string> message;
};
struct None {};

class Value {
 public:
  Value() = default;
  Value(None) : data_(None{}) {}
  Value(bool b) : data_(b) {}
  Value(Int i) : data_(i) {}
  Value(int i) : data_(Int{i}) {}
  Value(int64_t i) : data_(Int{i}) {}
  Value(size_t i) : data_(static_cast<Int>(i)) {}
  Value(double d) : data_(d) {}
  Value(std::string text, bool markup = false);
  Value(std::string_view text) : Value(std::string(text)) {}
  Value(const char* text) : Value(std::string(text)) {}
  template <typename T>
  requires(!std::is_same_v<T, void>) Value(std::shared_ptr<T> p) : data_(std::move(p)) {}
  static Value undefined(std::string message);
  static Value undefined(std::shared_ptr<const std::string> message);

  bool is_missing() const { return is_undefined() && !std::get<Undefined>(data_).message; }
  bool is_undefined() const { return std::holds_alternative<Undefined>(data_); }
  bool is_none() const { return std::holds_alternative<None>(data_); }
  bool is_bool() const { return std::holds_alternative<bool>(data_); }
  bool is_int() const { return std::holds_alternative<Int>(data_); }
  bool is_float() const { return std::holds_alternative<double>(data_); }
  bool is_string() const { return std::holds_alternative<StrPtr>(data_); }
  bool is_list() const { return std::holds_alternative<ListPtr>(data_); }
  bool is_tuple() const { return std::holds_alternative<TuplePtr>(data_); }
  bool is_dict() const { return std::holds_alternative<DictPtr>(data_); }
  bool is_view() const { return std::holds_alternative<ViewPtr>(data_); }
  bool is_range() const { return std::holds_alternative<RangePtr>(data_); }
  bool is_object() const { return std::holds_alternative<ObjectPtr>(data_); }
  bool is_integral() const { return is_int() || is_bool(); }  // what Python takes for an int
  bool is_number() const { return is_integral() || is_float(); }
  bool is_markup() const { return is_string() && str().markup; }

  const std::string& undefined_message() const { return *std::get<Undefined>(data_).message; }
  bool as_bool() const { return std::get<bool>(data_); }
  Int as_int() const { return is_bool() ? Int{as_bool()} : std::get<Int>(data_); }
  double as_double() const {
    return is_float() ? std::get<double>(data_) : static_cast<double>(as_int());
  }
  const Str& str() const { return *std::get<StrPtr>(data_); }
  const std::string& text() const { return str().text; }
  const std::vector<Value>& items() const;  // of a list or tuple
  const Tuple& tuple() const { return *std::get<TuplePtr>(data_); }
  const Dict& dict() const { return *std::get<DictPtr>(data_); }
  const DictPtr& dict_ptr() const { return std::get<DictPtr>(data_); }
  const DictView& view() const { return *std::get<ViewPtr>(data_); }
  const Range& range() const { return *std::get<RangePtr>(data_); }
  Object& object() const { return *std::get<ObjectPtr>(data_); }
  const ObjectPtr& object_ptr() const { return std::get<ObjectPtr>(data_); }
  bool same_as(const Value& other) const;  // Python's `is`

  // Python's name of the type ("str", "NoneType").
  std::string type_name() const;
  int depth() const;  // containers inside containers; 0 for scalars

 private:
  std::variant<Undefined, None, bool, Int, double, StrPtr, ListPtr, TuplePtr, DictPtr, ViewPtr,
               RangePtr, ObjectPtr>
      data_;
};

struct List {
  std::vector<Value> items;
  int depth = 1;
};
struct Tuple {
  std::vector<Value> items;
  int depth = 1;
  bool group = false;  // an item of the groupby filter: has .grouper and .list
};

// Keeps the order of insertion. Built by one owner, then shared const.
class Dict {
 public:
  using Entry = std::pair<Value, Value>;
  const Value* find(const Value& key, Runtime& rt) const;
  const Value* find(std::string_view key) const;
  // Raises when the key is not hashable.
  void set(Value key, Value value, Runtime& rt);
  const std::vector<Entry>& entries() const { return entries_; }
  size_t size() const { return entries_.size(); }
  int depth() const { return depth_; }
  void clear();

 private:
  static constexpr size_t kIndexFrom = 12;  // below, a scan is faster than hashing
  std::vector<Entry> entries_;
  std::unordered_multimap<size_t, uint32_t>
      index_;  // hash -> entry, once there are kIndexFrom entries
  int depth_ = 1;
};

struct DictView {
  enum class Kind { kKeys, kValues, kItems } kind;
  DictPtr dict;
};

struct Args {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;

  std::optional<Value> take_named(std::string_view name);  // and removes it
};

class Iterator {
 public:
  virtual ~Iterator() = default;
  virtual std::optional<Value> next(Runtime& rt) = 0;
};

// Everything with an identity.
class Object {
 public:
  virtual ~Object() = default;
  virtual std::string type_name() const = 0;
  virtual std::string repr(Runtime& rt) const = 0;
  virtual std::optional<Value> attribute(const std::string& name, Runtime& rt);
  virtual bool callable() const { return false; }
  virtual Value call(Args args, Runtime& rt);       // raises unless callable()
  virtual Iterator* iterator() { return nullptr; }  // generators and loops are iterators themselves
  virtual std::optional<size_t> length(Runtime&) const { return std::nullopt; }
  virtual int depth() const { return 0; }
  virtual void drop_references() {}  // end of the render: breaks cycles
};

Value make_list(std::vector<Value> items, Runtime& rt);
Value make_tuple(std::vector<Value> items, Runtime& rt, bool group = false);
inline Value make_dict(Dict dict) {
  return Value(DictPtr(std::make_shared<const Dict>(std::move(dict))));
}
Value make_text(std::string text, Runtime& rt,
                bool markup = false);  // charges the budget for its size

}  // namespace tutti::jinja
