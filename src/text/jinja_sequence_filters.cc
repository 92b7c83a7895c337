// Filters on lists and other iterables.
#include <algorithm>
#include <unordered_set>

#include "text/jinja_filters.h"
#include "text/jinja_getter.h"
#include "text/jinja_methods.h"
#include "text/jinja_ops.h"

namespace tutti::jinja::filters {
namespace {

// sorted(items, key=...): stable; `reverse` keeps the order of equal items.
void sort_by(std::vector<Value>& items, const std::vector<Value>& keys, bool reverse, Runtime& rt) {
  std::vector<size_t> order(items.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](size_t x, size_t y) {
    return reverse ? less(keys[y], keys[x], rt) : less(keys[x], keys[y], rt);
  });
  std::vector<Value> sorted;
  sorted.reserve(items.size());
  for (const size_t i : order) sorted.push_back(std::move(items[i]));
  items = std::move(sorted);
}

// Only a generator that its consumer drives; the source is drawn from as late as the consumer asks.
using Next = std::function<std::optional<Value>(Runtime&)>;
Value generator(const char* name, const Value& source, Next next) {
  return make_generator(std::string("generator object ") + name, source.depth(), std::move(next));
}

std::shared_ptr<Iterator> shared_iterate(const Value& v, Runtime& rt) { return iterate(v, rt); }

enum class Pick { kSelect, kReject };

// select, reject and their attr variants: the test by name, or truth.
Value pick(const Value& input, Args args, Pick what, bool by_attribute, Runtime& rt) {
  if (!truthy(input, rt)) return generator("select_or_reject", input, nullptr);
  size_t used = 0;
  std::optional<AttributeGetter> getter;
  if (by_attribute) {
    if (args.positional.empty()) fail("Missing parameter for attribute name");
    getter.emplace(args.positional[used++], rt);
  }
  std::optional<Value> test;
  if (used < args.positional.size()) test = args.positional[used++];
  args.positional.erase(args.positional.begin(),
                        args.positional.begin() + static_cast<int64_t>(used));
  auto source = shared_iterate(input, rt);
  return generator(
      "select_or_reject", input, [=, args = std::move(args)](Runtime& r) -> std::optional<Value> {
        while (auto item = source->next(r)) {
          r.step();
          const Value v = getter ? getter->get(*item, r) : *item;
          const bool yes = test ? apply_test(to_text(*test, r), v, args, r) : truthy(v, r);
          if (yes == (what == Pick::kSelect)) return item;
        }
        return std::nullopt;
      });
}

Value extreme(const Value& input, Args args, bool largest, Runtime& rt) {
  const BoundArgs a(largest ? "max" : "min", std::move(args), {"case_sensitive", "attribute"}, 0);
  const AttributeGetter getter(a.get(1, None{}), rt, !a.flag(0, false, rt));
  std::optional<Value> best, best_key;
  const auto it = iterate(input, rt);
  while (auto item = it->next(rt)) {
    Value key = getter.get(*item, rt);
    if (best && !(largest ? less(*best_key, key, rt) : less(key, *best_key, rt))) continue;
    best = std::move(item);
    best_key = std::move(key);
  }
  return best ? *best : Value::undefined("No aggregated item, sequence was empty.");
}

}  // namespace

Value first(const Value& input, Args args, Runtime& rt) {
  const BoundArgs a("first", std::move(args), {}, 0);
  auto item = iterate(input, rt)->next(rt);
  return item ? std::move(*item) : Value::undefined("No first item, sequence was empty.");
}

Value last(const Value& input, Args args, Runtime& rt) {
  const BoundArgs a("last", std::move(args), {}, 0);
  if (input.is_object() || !iterable(input))
    fail("'" + input.type_name() + "' object is not reversible");
  auto items = collect(input, rt);
  return items.empty() ? Value::undefined("No last item, sequence was empty.") : items.back();
}

Value list(const Value& input, Args args, Runtime& rt) {
  const BoundArgs a("list", std::move(args), {}, 0);
  return make_list(collect(input, rt), rt);
}

Value items(const Value& input, Args args, Runtime& rt) {
  const BoundArgs a("items", std::move(args), {}, 0);
  if (input.is_undefined()) return generator("do_items", input, nullptr);
  if (!input.is_dict()) {
    return generator("do_items", input, [](Runtime&) -> std::optional<Value> {
      fail("Can only get item pairs from a mapping.");
    });
  }
  const Value view(
      std::make_shared<const DictView>(DictView{DictView::Kind::kItems, input.dict_ptr()}));
  return generator("do_items", input,
                   [source = shared_iterate(view, rt)](Runtime& r) { return source->next(r); });
}

Value join(const Value& input, Args args, Runtime& rt) {
  const BoundArgs a("join", std::move(args), {"d", "attribute"}, 0);
  const AttributeGetter getter(a.get(1, None{}), rt);
  const std::string between = a.has(0) ? to_text(a[0], rt) : "";
  std::string out;
  bool is_first = true;
  const auto it = iterate(input, rt);
  while (const auto item = it->next(rt)) {
    rt.step();
    if (!is_first) out += between;
    is_first = false;
    out += to_text(getter.get(*item, rt), rt);
    if (out.size() > kMaxText) rt.text(out.size());
  }
  return make_text(std::move(out), rt);
}

Value map(const Value& input, Args args, Runtime& rt) {
  if (!truthy(input, rt)) return generator("sync_do_map", input, nullptr);
  auto source = shared_iterate(input, rt);
  const auto attribute = args.positional.empty() ? args.take_named("attribute") : std::nullopt;
  if (attribute) {
    auto otherwise = args.take_named("default").value_or(None{});
    if (!args.named.empty()) fail("Unexpected keyword argument " + quote(args.named[0].first));
    const AttributeGetter getter(*attribute, rt, false, std::move(otherwise));
    return generator("sync_do_map", input, [source, getter](Runtime& r) -> std::optional<Value> {
      const auto item = source->next(r);
      if (!item) return std::nullopt;
      return getter.get(*item, r);
    });
  }
  if (args.positional.empty()) fail("map requires a filter argument");
  const std::string name = to_text(args.positional[0], rt);
  args.positional.erase(args.positional.begin());
  return generator("sync_do_map", input,
                   [source, name, args = std::move(args)](Runtime& r) -> std::optional<Value> {
                     const auto item = source->next(r);
                     if (!item) return std::nullopt;
                     return apply_filter(name, *item, args, r);
                   });
}

Value select(const Value& input, Args args, Runtime& rt) {
  return pick(input, std::move(args), Pick::kSelect, false, rt);
}
Value reject(const Value& input, Args args, Runtime& rt) {
  return pick(input, std::move(args), Pick::kReject, false, rt);
}
Value selectattr(const Value& input, Args args, Runtime& rt) {
  return pick(input, std::move(args), Pick::kSelect, true, rt);
}
Value rejectattr(const Value& input, Args args, Runtime& rt) {
  return pick(input, std::move(args), Pick::kReject, true, rt);
}

Value min(const Value& input, Args args, Runtime& rt) {
  return extreme(input, std::move(args), false, rt);
}
Value max(const Value& input, Args args, Runtime& rt) {
  return extreme(input, std::move(args), true, rt);
}

Value reverse(const Value& input, Args args, Runtime& rt) {
  const BoundArgs a("reverse", std::move(args), {}, 0);
  if (input.is_string()) return get_slice(input, None{}, None{}, Value(-1), rt);
  if (!iterable(input)) fail("argument must be iterable");
  auto items = collect(input, rt);
  std::reverse(items.begin(), items.end());
  if (input.is_object()) return make_list(std::move(items), rt);  // what has no order of its own
  const Value list = make_list(std::move(items), rt);
  return make_generator(
      "list_reverseiterator", input.depth(),
      [source = shared_iterate(list, rt)](Runtime& r) { return source->next(r); });
}

Value sort(const Value& input, Args args, Runtime& rt) {
  const BoundArgs a("sort", std::move(args), {"reverse", "case_sensitive", "attribute"}, 0);
  const bool fold_case = !a.flag(1, false, rt);
  std::vector<AttributeGetter> getters = attribute_getters(a.get(2, None{}), rt, fold_case);
  auto items = collect(input, rt);
  std::vector<Value> keys;
  for (const Value& item : items) {
    std::vector<Value> key;
    for (const auto& getter : getters) key.push_back(getter.get(item, rt));
    keys.push_back(make_tuple(std::move(key), rt));
  }
  sort_by(items, keys, a.flag(0, false, rt), rt);
  return make_list(std::move(items), rt);
}

Value dictsort(const Value& input, Args args, Runtime& rt) {
  const BoundArgs a("dictsort", std::move(args), {"case_sensitive", "by", "reverse"}, 0);
  const std::string by = a.has(1) ? a.text(1) : "key";
  if (by != "key" && by != "value") fail("You can only sort by either \"key\" or \"value\"");
  if (!input.is_dict()) fail("dictsort needs a dict, not " + input.type_name());
  const bool fold_case = !a.flag(0, false, rt);
  std::vector<Value> pairs, keys;
  for (const auto& [key, value] : input.dict().entries()) {
    pairs.push_back(make_tuple({key, value}, rt));
    const Value& sort_key = by == "key" ? key : value;
    keys.push_back(fold_case ? ignore_case(sort_key) : sort_key);
  }
  sort_by(pairs, keys, a.flag(2, false, rt), rt);
  return make_list(std::move(pairs), rt);
}

Value unique(const Value& input, Args args, Runtime& rt) {
  const BoundArgs a("unique", std::move(args), {"case_sensitive", "attribute"}, 0);
  const AttributeGetter getter(a.get(1, None{}), rt, !a.flag(0, false, rt));
  auto seen = std::make_shared<Dict>();
  auto source = shared_iterate(input, rt);
  return generator("sync_do_unique", input, [=](Runtime& r) -> std::optional<Value> {
    while (auto item = source->next(r)) {
      r.step();
      Value key = getter.get(*item, r);
      if (seen->find(key, r) != nullptr) continue;
      seen->set(std::move(key), None{}, r);
      return item;
    }
    return std::nullopt;
  });
}

Value sum(const Value& input, Args args, Runtime& rt) {
  const BoundArgs a("sum", std::move(args), {"attribute", "start"}, 0);
  const AttributeGetter getter(a.get(0, None{}), rt);
  Value total = a.get(1, 0);
  if (total.is_string()) fail("sum() can't sum strings [use ''.join(seq) instead]");
  const auto it = iterate(input, rt);
  while (const auto item = it->next(rt)) total = add(total, getter.get(*item, rt), rt);
  return total;
}

Value batch(const Value& input, Args args, Runtime& rt) {
  const BoundArgs a("batch", std::move(args), {"linecount", "fill_with"}, 1);
  const Value size = a[0], fill = a.get(1, None{});
  auto source = shared_iterate(input, rt);
  auto waiting = std::make_shared<std::optional<Value>>();  // the item that begins the next batch
  return generator("do_batch", input, [=](Runtime& r) -> std::optional<Value> {
    std::vector<Value> batch;
    if (*waiting) batch.push_back(*std::exchange(*waiting, std::nullopt));
    while (auto item = source->next(r)) {
      r.step();
      if (equals(Value(batch.size()), size, r)) {
        *waiting = std::move(item);
        return make_list(std::move(batch), r);
      }
      batch.push_back(std::move(*item));
    }
    if (batch.empty()) return std::nullopt;
    while (!fill.is_none() && less(Value(batch.size()), size, r)) {
      r.step();
      batch.push_back(fill);
    }
    return make_list(std::move(batch), r);
  });
}

Value slice(const Value& input, Args args, Runtime& rt) {
  const BoundArgs a("slice", std::move(args), {"slices", "fill_with"}, 1);
  const int64_t slices = as_index(a[0]);
  const Value fill = a.get(1, None{});
  const auto items = std::make_shared<const std::vector<Value>>(collect(input, rt));
  if (slices == 0) fail("integer division or modulo by zero");
  const auto size = static_cast<int64_t>(items->size());
  return generator("sync_do_slice", input,
                   [=, number = int64_t{0}](Runtime& r) mutable -> std::optional<Value> {
                     if (number >= slices) return std::nullopt;
                     const int64_t each = size / slices,
                                   longer = size % slices;  // the first slices are longer by one
                     const int64_t begin = number * each + std::min(number, longer);
                     const int64_t end = begin + each + (number < longer ? 1 : 0);
                     std::vector<Value> out(items->begin() + begin, items->begin() + end);
                     if (!fill.is_none() && number >= longer) out.push_back(fill);
                     ++number;
                     return make_list(std::move(out), r);
                   });
}

Value groupby(const Value& input, Args args, Runtime& rt) {
  const BoundArgs a("groupby", std::move(args), {"attribute", "default", "case_sensitive"}, 1);
  const bool fold_case = !a.flag(2, false, rt);
  const AttributeGetter getter(a[0], rt, fold_case, a.get(1, None{}));
  const AttributeGetter label(a[0], rt, false, a.get(1, None{}));
  auto items = collect(input, rt);
  std::vector<Value> keys;
  for (const Value& item : items) keys.push_back(getter.get(item, rt));
  sort_by(items, keys, false, rt);
  std::vector<Value> groups;
  for (size_t begin = 0, end; begin < items.size(); begin = end) {
    const Value key = getter.get(items[begin], rt);
    end = begin + 1;
    while (end < items.size() && equals(getter.get(items[end], rt), key, rt)) ++end;
    std::vector<Value> members(items.begin() + static_cast<int64_t>(begin),
                               items.begin() + static_cast<int64_t>(end));
    groups.push_back(
        make_tuple({label.get(items[begin], rt), make_list(std::move(members), rt)}, rt, true));
  }
  return make_list(std::move(groups), rt);
}

}  // namespace tutti::jinja::filters
