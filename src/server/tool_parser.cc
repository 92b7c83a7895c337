#include "server/tool_parser.h"

#include <optional>
#include <utility>

#include "base/error.h"
#include "base/json.h"

namespace tutti {
namespace {

std::optional<ToolCall> read_call(std::string_view text) {
  Json json;
  try {
    json = parse_json(text, "tool call");
  } catch (const IoError&) {
    return std::nullopt;  // the model has written something else
  }
  if (!json.is_object() || !json.contains("name") || !json["name"].is_string()) return std::nullopt;
  ToolCall call{json["name"].get<std::string>(), "{}"};
  for (const char* key : {"arguments", "parameters"}) {
    if (!json.contains(key)) continue;
    const Json& arguments = json[key];
    call.arguments = arguments.is_string() ? arguments.get<std::string>() : dump_json(arguments);
    break;
  }
  return call;
}

// How many characters at the end of `text` may be the beginning of `tag`.
size_t partial_tag(std::string_view text, std::string_view tag) {
  for (size_t n = std::min(text.size(), tag.size() - 1); n > 0; --n) {
    if (text.ends_with(tag.substr(0, n))) return n;
  }
  return 0;
}

class HermesParser final : public ToolParser {
 public:
  Piece push(std::string_view text) override {
    buffer_ += text;
    Piece out;
    while (inside_ ? take_call(&out) : take_content(&out)) {
    }
    return out;
  }

  Piece finish() override {
    Piece out;
    if (inside_) {
      // Some models leave the closing tag out.
      if (auto call = read_call(buffer_)) {
        out.calls.push_back(std::move(*call));
      } else {
        out.content = std::string(kOpen) + buffer_;
      }
    } else {
      out.content = std::move(buffer_);
    }
    buffer_.clear();
    return out;
  }

 private:
  static constexpr std::string_view kOpen = "<tool_call>";
  static constexpr std::string_view kClose = "</tool_call>";

  // True when a call begins.
  bool take_content(Piece* out) {
    const size_t open = buffer_.find(kOpen);
    const size_t end = open == std::string::npos ? buffer_.size() - partial_tag(buffer_, kOpen) : open;
    std::string_view content = std::string_view(buffer_).substr(0, end);
    // The line breaks around calls are no answer.
    if (num_calls_ > 0 && content.find_first_not_of(" \r\n\t") == std::string_view::npos) content = {};
    out->content += content;
    buffer_.erase(0, open == std::string::npos ? end : open + kOpen.size());
    inside_ = open != std::string::npos;
    return inside_;
  }

  // True when a call has ended.
  bool take_call(Piece* out) {
    const size_t close = buffer_.find(kClose);
    if (close == std::string::npos) return false;
    const std::string text = buffer_.substr(0, close);
    if (auto call = read_call(text)) {
      out->calls.push_back(std::move(*call));
      ++num_calls_;
    } else {
      out->content += std::string(kOpen) + text + std::string(kClose);
    }
    buffer_.erase(0, close + kClose.size());
    inside_ = false;
    return true;
  }

  std::string buffer_;
  bool inside_ = false;
  int num_calls_ = 0;
};

class Llama3JsonParser final : public ToolParser {
 public:
  Piece push(std::string_view text) override {
    if (mode_ == Mode::kContent) return {std::string(text), {}, {}};
    buffer_ += text;
    if (mode_ == Mode::kUnknown) {
      const size_t begin = buffer_.find_first_not_of(" \r\n\t");
      if (begin == std::string::npos) return {};
      const std::string_view start = std::string_view(buffer_).substr(begin);
      if (start.size() < kTag.size() && kTag.starts_with(start)) return {};
      mode_ = start[0] == '{' || start.starts_with(kTag) ? Mode::kCalls : Mode::kContent;
    }
    if (mode_ == Mode::kCalls) return {};
    return {std::exchange(buffer_, {}), {}, {}};
  }

  Piece finish() override {
    Piece out;
    std::string_view rest = buffer_;
    if (const size_t tag = rest.find(kTag); mode_ == Mode::kCalls && tag != std::string_view::npos) {
      rest.remove_prefix(tag + kTag.size());
    }
    // A ";" may also stand inside a string: the shortest piece that is a call counts.
    for (size_t end = 0; mode_ == Mode::kCalls && !rest.empty() && end <= rest.size();) {
      end = std::min(rest.find(';', end), rest.size());
      if (auto call = read_call(rest.substr(0, end))) {
        out.calls.push_back(std::move(*call));
        rest.remove_prefix(std::min(end + 1, rest.size()));
        end = 0;
      } else {
        ++end;
      }
    }
    if (out.calls.empty()) out.content = buffer_;
    buffer_.clear();
    return out;
  }

 private:
  static constexpr std::string_view kTag = "<|python_tag|>";
  enum class Mode { kUnknown, kContent, kCalls };

  std::string buffer_;
  Mode mode_ = Mode::kUnknown;
};

class ArgumentsParser final : public ToolParser {
 public:
  explicit ArgumentsParser(std::string name) : name_(std::move(name)) {}

  Piece push(std::string_view text) override {
    Piece out;
    if (!std::exchange(begun_, true)) out.calls.push_back({name_, ""});
    out.arguments = text;
    return out;
  }
  Piece finish() override { return {}; }

 private:
  const std::string name_;
  bool begun_ = false;
};

class CallListParser final : public ToolParser {
 public:
  Piece push(std::string_view text) override {
    Piece out;
    for (const char c : text) {
      if (depth_ > 1 || c == '{') buffer_ += c;
      if (in_string_) {
        in_string_ = escaped_ || c != '"';
        escaped_ = !escaped_ && c == '\\';
        continue;
      }
      in_string_ = c == '"';
      if (c == '[' || c == '{') ++depth_;
      if (c != ']' && c != '}') continue;
      if (--depth_ != 1 || c == ']') continue;
      if (auto call = read_call(buffer_)) out.calls.push_back(std::move(*call));
      buffer_.clear();
    }
    return out;
  }
  Piece finish() override { return {std::exchange(buffer_, {}), {}, {}}; }

 private:
  std::string buffer_;  // of the call that is not complete
  int depth_ = 0;
  bool in_string_ = false;
  bool escaped_ = false;
};

}  // namespace

std::unique_ptr<ToolParser> ToolParser::arguments_of(std::string name) { return std::make_unique<ArgumentsParser>(std::move(name)); }
std::unique_ptr<ToolParser> ToolParser::list_of_calls() { return std::make_unique<CallListParser>(); }

std::unique_ptr<ToolParser> ToolParser::make(std::string_view name) {
  if (name == "hermes") return std::make_unique<HermesParser>();
  if (name == "llama3_json") return std::make_unique<Llama3JsonParser>();
  return nullptr;
}

}  // namespace tutti
