#include "text/jinja_render.h"

#include "base/error.h"
#include "text/jinja_interpreter.h"
#include "text/jinja_lexer.h"
#include "text/jinja_ops.h"

namespace tutti::jinja {
namespace {

Value to_value(const Json& json, Runtime& rt) {
  rt.step();
  switch (json.type()) {
    case Json::value_t::boolean:
      return json.get<bool>();
    case Json::value_t::number_integer:
      return json.get<int64_t>();
    case Json::value_t::number_unsigned:
      return static_cast<Int>(json.get<uint64_t>());
    case Json::value_t::number_float:
      return json.get<double>();
    case Json::value_t::string:
      return make_text(json.get_ref<const std::string&>(), rt);
    case Json::value_t::array: {
      std::vector<Value> items;
      items.reserve(json.size());
      for (const Json& item : json) items.push_back(to_value(item, rt));
      return make_list(std::move(items), rt);
    }
    case Json::value_t::object: {
      Dict dict;
      for (const auto& [key, value] : json.items()) dict.set(Value(key), to_value(value, rt), rt);
      return make_dict(std::move(dict));
    }
    default:
      return None{};
  }
}

std::string run(Interpreter& interpreter, const Template& parsed) {
  try {
    return interpreter.run();
  } catch (const RaisedByTemplate& e) {
    throw InvalidRequest(e.what(), "messages");
  } catch (const TemplateError& e) {
    const int line = line_column(parsed.source, interpreter.at()).line;
    throw InvalidRequest("chat template, line " + std::to_string(line) + ": " + e.what(),
                         "messages");
  }
}

}  // namespace

std::string render(const Template& parsed, const Json& context, Runtime& rt) {
  Dict variables;
  try {
    if (!context.is_object()) fail("must be an object");
    for (const auto& [name, value] : context.items())
      variables.set(Value(name), to_value(value, rt), rt);
  } catch (const TemplateError& e) {
    throw InvalidRequest(std::string("the variables of the chat template: ") + e.what(),
                         "messages");
  }
  Interpreter interpreter(parsed, variables, rt);
  return run(interpreter, parsed);
}

}  // namespace tutti::jinja
