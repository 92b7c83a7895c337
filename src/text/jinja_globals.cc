// The functions that every template can call.
#include <sys/time.h>

#include <ctime>

#include "text/jinja_filters.h"
#include "text/jinja_methods.h"
#include "text/jinja_objects.h"
#include "text/jinja_ops.h"

namespace tutti::jinja {
namespace {

Value make_range(Args args, Runtime&) {
  if (args.positional.empty() || args.positional.size() > 3 || !args.named.empty()) {
    fail("range expected 1 to 3 arguments");
  }
  static constexpr int64_t kBound = int64_t{1} << 48;  // keeps the arithmetic on ranges exact
  std::vector<int64_t> n;
  for (const Value& v : args.positional) {
    n.push_back(as_index(v));
    if (n.back() > kBound || n.back() < -kBound) fail("range() arguments are too large");
  }
  const Range range{n.size() > 1 ? n[0] : 0, n.size() > 1 ? n[1] : n[0], n.size() > 2 ? n[2] : 1};
  if (range.step == 0) fail("range() arg 3 must not be zero");
  if (range.size() > kMaxRange) {
    fail("Range too big. The sandbox blocks ranges larger than MAX_RANGE (" +
         std::to_string(kMaxRange) + ").");
  }
  return Value(std::make_shared<const Range>(range));
}

// dict(), which templates can also ask for fromkeys.
class DictFunction : public Object {
 public:
  std::string type_name() const override { return "TemplateDict"; }
  std::string repr(Runtime&) const override { return "<TemplateDict object>"; }
  bool callable() const override { return true; }
  Value call(Args args, Runtime& rt) override {
    if (args.positional.size() > 1) fail("dict expected at most 1 argument");
    Dict out;
    if (!args.positional.empty()) copy_into(out, args.positional[0], rt);
    for (auto& [name, value] : args.named) out.set(Value(name), std::move(value), rt);
    return make_dict(std::move(out));
  }
  std::optional<Value> attribute(const std::string& name, Runtime& rt) override {
    return name == "fromkeys" ? find_method(make_dict({}), name, rt) : std::nullopt;
  }

 private:
  static void copy_into(Dict& out, const Value& from, Runtime& rt) {
    if (from.is_dict()) {
      for (const auto& [key, value] : from.dict().entries()) out.set(key, value, rt);
      return;
    }
    for (const Value& pair : collect(from, rt)) {
      auto both = collect(pair, rt);
      if (both.size() != 2)
        fail("dictionary update sequence element has length " + std::to_string(both.size()) +
             "; 2 is required");
      out.set(std::move(both[0]), std::move(both[1]), rt);
    }
  }
};

// cycler("a", "b"): next(), reset(), current.
class Cycler : public Object, public std::enable_shared_from_this<Cycler> {
 public:
  explicit Cycler(Value items) : items_(std::move(items)) {}
  std::string type_name() const override { return "Cycler"; }
  std::string repr(Runtime&) const override { return "<Cycler object>"; }
  int depth() const override { return items_.depth(); }
  std::optional<Value> attribute(const std::string& name, Runtime&) override {
    const auto self = shared_from_this();
    if (name == "items") return items_;
    if (name == "pos") return pos_;
    if (name == "current") return items_.items()[pos_];
    if (name == "reset") {
      return make_function(name, depth(), [self](Args, Runtime&) -> Value {
        self->pos_ = 0;
        return None{};
      });
    }
    if (name == "next") {
      return make_function(name, depth(), [self](Args, Runtime&) {
        const Value now = self->items_.items()[self->pos_];
        self->pos_ = (self->pos_ + 1) % self->items_.items().size();
        return now;
      });
    }
    return std::nullopt;
  }

 private:
  Value items_;
  size_t pos_ = 0;
};

Value make_cycler(Args args, Runtime& rt) {
  if (args.positional.empty()) fail("at least one item has to be provided");
  return Value(ObjectPtr(std::make_shared<Cycler>(make_tuple(std::move(args.positional), rt))));
}

// joiner(", "): the empty string the first time, the separator ever after.
Value make_joiner(Args args, Runtime&) {
  const BoundArgs a("joiner", std::move(args), {"sep"}, 0);
  const Value separator = a.get(0, ", ");
  return make_function("joiner", separator.depth(),
                       [separator, used = false](Args, Runtime&) mutable {
                         return std::exchange(used, true) ? separator : Value("");
                       });
}

Value raise_exception(Args args, Runtime& rt) {
  const BoundArgs a("raise_exception", std::move(args), {"message"}, 1);
  throw RaisedByTemplate(to_text(a[0], rt));
}

// The time without a zone, so that the directives for zones give nothing; %f is Python's own.
std::string python_directives(const std::string& format, int64_t microseconds) {
  std::string out;
  for (size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%' || i + 1 == format.size()) {
      out += format[i];
      continue;
    }
    const char c = format[++i];
    if (c == 'f') {
      const std::string digits = std::to_string(microseconds);
      out += std::string(6 - digits.size(), '0') + digits;
    } else if (c != 'z' && c != 'Z') {
      out += {'%', c};
    }
  }
  return out;
}

Value strftime_now(Args args, Runtime& rt) {
  const BoundArgs a("strftime_now", std::move(args), {"format"}, 1);
  timeval now{};
  gettimeofday(&now, nullptr);
  tm local{};
  localtime_r(&now.tv_sec, &local);
  const std::string format = python_directives(a.text(0), now.tv_usec);
  if (format.empty()) return "";
  if (format.size() > 4096) fail("strftime_now: the format is over 4096 bytes");
  // A trailing space tells an empty result from a buffer that is too small.
  std::string out(256 + 64 * format.size(), '\0');
  const size_t size = std::strftime(out.data(), out.size(), (format + " ").c_str(), &local);
  if (size == 0) fail("strftime_now: the result is too long");
  out.resize(size - 1);
  return make_text(std::move(out), rt);
}

}  // namespace

std::optional<Value> find_global(const std::string& name) {
  using Body = Value (*)(Args, Runtime&);
  struct Named {
    const char* name;
    Body body;
  };
  static constexpr Named kFunctions[] = {{"range", make_range},
                                         {"namespace", Namespace::make},
                                         {"cycler", make_cycler},
                                         {"joiner", make_joiner},
                                         {"raise_exception", raise_exception},
                                         {"strftime_now", strftime_now}};
  if (name == "dict") return Value(ObjectPtr(std::make_shared<DictFunction>()));
  for (const Named& f : kFunctions) {
    if (name == f.name) return make_function(f.name, 0, f.body);
  }
  return std::nullopt;
}

}  // namespace tutti::jinja
