// Messages of a chat request, in the form that chat templates expect.
#include <fmt/format.h>

#include "base/error.h"
#include "server/field_reader.h"
#include "server/openai_types.h"

namespace tutti {
namespace {

// The text of a content part; other kinds need a model that sees or hears.
std::string part_text(const Json& part, const std::string& where) {
  if (part.is_string()) return part.get<std::string>();
  if (!part.is_object()) throw InvalidRequest("`" + where + "` must be an object with a `type`", where);
  const FieldReader fields(part, where + ".");
  const std::string type = fields.string("type").value_or("");
  const char* key = type == "refusal" ? "refusal" : "text";
  if (type != "text" && type != "input_text" && type != "output_text" && type != "refusal") {
    throw InvalidRequest(fmt::format("`{}.type` is \"{}\": this model takes text parts only", where, type),
                         where);
  }
  const auto text = fields.string(key);
  if (!text) throw InvalidRequest(fmt::format("`{}.{}` is missing", where, key), where);
  return *text;
}

std::string content_text(const Json& content, const std::string& where) {
  if (content.is_null()) return "";
  if (content.is_string()) return content.get<std::string>();
  if (!content.is_array()) {
    throw InvalidRequest(
        fmt::format("`{}` must be a string or a list of parts, not {}", where, describe_json(content)),
        where);
  }
  std::string text;
  for (size_t i = 0; i < content.size(); ++i) {
    if (i > 0) text += "\n";
    text += part_text(content[i], fmt::format("{}[{}]", where, i));
  }
  return text;
}

// Templates iterate over the arguments; the API has them as a string of JSON.
void open_arguments(Json& message, const std::string& where) {
  const auto calls = message.find("tool_calls");
  if (calls == message.end() || calls->is_null()) return;
  if (!calls->is_array()) throw InvalidRequest("`" + where + ".tool_calls` must be a list", where);
  for (Json& call : *calls) {
    if (!call.is_object() || !call.contains("function") || !call["function"].is_object()) {
      throw InvalidRequest("`" + where + ".tool_calls` must hold objects with a `function`", where);
    }
    Json& function = call["function"];
    const auto arguments = function.find("arguments");
    if (arguments == function.end() || !arguments->is_string()) continue;
    const std::string text = arguments->get<std::string>();
    try {
      *arguments = text.empty() ? Json::object() : parse_json(text, where + ".tool_calls arguments");
    } catch (const IoError& e) {
      throw InvalidRequest(e.what(), where);
    }
  }
}

Json normalized_message(const Json& message, const std::string& where) {
  if (!message.is_object()) throw InvalidRequest("`" + where + "` must be an object", where);
  const FieldReader fields(message, where + ".");
  if (!fields.string("role")) throw InvalidRequest("`" + where + ".role` is missing", where + ".role");
  const Json* calls = fields.find("tool_calls");
  const Json* content = fields.find("content");
  if (content == nullptr && calls == nullptr && *fields.string("role") != "assistant") {
    throw InvalidRequest("`" + where + ".content` is missing", where + ".content");
  }
  Json out = message;
  out["content"] = content_text(content == nullptr ? Json() : *content, where + ".content");
  open_arguments(out, where);
  return out;
}

// {"type": "function", "function": {"name": ...}}
std::string read_named_tool(const Json& choice, const Json& tools) {
  if (!choice.is_object()) {
    throw InvalidRequest("`tool_choice` must be a string or an object that names a function, not " + describe_json(choice),
                         "tool_choice");
  }
  const Json* function = FieldReader(choice, "tool_choice.").object("function");
  const auto name = function == nullptr ? std::nullopt : FieldReader(*function, "tool_choice.function.").string("name");
  if (!name || name->empty()) throw InvalidRequest("`tool_choice.function.name` is missing", "tool_choice");
  for (const Json& tool : tools) {
    if (tool["function"].value("name", Json()) == *name) return *name;
  }
  throw InvalidRequest("`tool_choice` names " + describe_json(*name) + ", which is none of `tools`", "tool_choice");
}

// Tools are shown to the model; its calls come back as structured fields where a parser for its format was
// chosen.
void read_tools(const FieldReader& fields, const ServerConfig& config, ChatPrompt* chat) {
  const Json* tools = fields.array("tools");
  const Json* choice = fields.find("tool_choice");
  const std::string name = choice == nullptr     ? "auto"
                           : choice->is_string() ? choice->get<std::string>()
                                                 : "a named tool";
  if (tools == nullptr || tools->empty()) {
    if (choice == nullptr || name == "none" || name == "auto") return;
    throw InvalidRequest("`tool_choice` needs `tools`", "tool_choice");
  }
  for (size_t i = 0; i < tools->size(); ++i) {
    const Json& tool = (*tools)[i];
    if (!tool.is_object() || !tool.contains("function") || !tool["function"].is_object()) {
      throw InvalidRequest(fmt::format("`tools[{}]` must be an object with a `function`", i), "tools");
    }
  }
  if (choice != nullptr && !choice->is_string()) {
    chat->named_tool = read_named_tool(*choice, *tools);
  } else if (name == "required") {
    chat->tool_required = true;
  } else if (name != "none" && name != "auto") {
    throw InvalidRequest("`tool_choice` must be \"auto\", \"none\", \"required\" or an object that names a function, not " +
                             describe_json(*choice),
                         "tool_choice");
  }
  if (name == "auto" && !config.enable_auto_tool_choice) {
    throw InvalidRequest(
        "\"auto\" `tool_choice` requires --enable-auto-tool-choice and --tool-call-parser to be set; "
        "\"none\" shows the tools to the model and gives its answer as text",
        "tool_choice");
  }
  chat->tools = *tools;
  chat->parse_tool_calls = name == "auto";
  chat->parallel_tool_calls = fields.boolean("parallel_tool_calls").value_or(true);
}

}  // namespace

ChatPrompt parse_chat_prompt(const Json& body, const ServerConfig& config) {
  const FieldReader fields(body);
  ChatPrompt chat;
  const Json* messages = fields.array("messages");
  if (messages == nullptr) throw InvalidRequest("`messages` is missing", "messages");
  if (messages->empty()) throw InvalidRequest("`messages` must not be empty", "messages");
  for (size_t i = 0; i < messages->size(); ++i) {
    chat.messages.push_back(normalized_message((*messages)[i], fmt::format("messages[{}]", i)));
  }
  chat.last_content = chat.messages.back()["content"].get<std::string>();
  read_tools(fields, config, &chat);
  if (const Json* documents = fields.array("documents")) chat.documents = *documents;

  chat.template_kwargs = config.default_chat_template_kwargs;
  if (const Json* kwargs = fields.object("chat_template_kwargs")) chat.template_kwargs.update(*kwargs);
  if (const auto effort = fields.string("reasoning_effort"))
    chat.template_kwargs["reasoning_effort"] = *effort;
  chat.chat_template = fields.string("chat_template");
  if (chat.chat_template && !config.trust_request_chat_template) {
    throw InvalidRequest(
        "`chat_template` is only taken by a server started with --trust-request-chat-template",
        "chat_template");
  }
  chat.add_generation_prompt = fields.boolean("add_generation_prompt").value_or(true);
  chat.continue_final_message = fields.boolean("continue_final_message").value_or(false);
  if (chat.continue_final_message && chat.add_generation_prompt) {
    throw InvalidRequest(
        "`continue_final_message` needs `add_generation_prompt` false: the final message goes on, "
        "no new one begins",
        "continue_final_message");
  }
  return chat;
}

}  // namespace tutti
