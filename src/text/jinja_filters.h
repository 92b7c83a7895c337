// The filters, tests and global functions of jinja2's sandbox as transformers sets it up.
// Stateless; any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "text/jinja_value.h"

namespace tutti::jinja {

using Filter = Value (*)(const Value& input, Args args, Runtime& rt);
using Test = bool (*)(const Value& input, Args args, Runtime& rt);

// Null when there is none of that name.
Filter find_filter(std::string_view name);
Test find_test(std::string_view name);
std::optional<Value> find_global(const std::string& name);

Value apply_filter(const std::string& name, const Value& input, Args args,
                   Runtime& rt);  // raises when unknown
bool apply_test(const std::string& name, const Value& input, Args args, Runtime& rt);

// json.dumps(v, ensure_ascii=False, ...).
Value to_json(const Value& input, Args args, Runtime& rt);

// Filters by theme; the table in jinja_filters.cc names them.
namespace filters {

Value batch(const Value& input, Args args, Runtime& rt);
Value dictsort(const Value& input, Args args, Runtime& rt);
Value first(const Value& input, Args args, Runtime& rt);
Value groupby(const Value& input, Args args, Runtime& rt);
Value items(const Value& input, Args args, Runtime& rt);
Value join(const Value& input, Args args, Runtime& rt);
Value last(const Value& input, Args args, Runtime& rt);
Value list(const Value& input, Args args, Runtime& rt);
Value map(const Value& input, Args args, Runtime& rt);
Value max(const Value& input, Args args, Runtime& rt);
Value min(const Value& input, Args args, Runtime& rt);
Value reject(const Value& input, Args args, Runtime& rt);
Value rejectattr(const Value& input, Args args, Runtime& rt);
Value reverse(const Value& input, Args args, Runtime& rt);
Value select(const Value& input, Args args, Runtime& rt);
Value selectattr(const Value& input, Args args, Runtime& rt);
Value slice(const Value& input, Args args, Runtime& rt);
Value sort(const Value& input, Args args, Runtime& rt);
Value sum(const Value& input, Args args, Runtime& rt);
Value unique(const Value& input, Args args, Runtime& rt);

Value absolute(const Value& input, Args args, Runtime& rt);
Value filesizeformat(const Value& input, Args args, Runtime& rt);
Value to_float(const Value& input, Args args, Runtime& rt);
Value to_int(const Value& input, Args args, Runtime& rt);
Value round(const Value& input, Args args, Runtime& rt);

}  // namespace filters
}  // namespace tutti::jinja
