#include "bench/response_parser.h"

#include <algorithm>
#include <cctype>
#include <charconv>

#include "base/error.h"
#include "base/json.h"

namespace tutti {
namespace {

constexpr size_t kMaxLine = 64 << 10;

size_t parse_size(std::string_view text, int base) {
  size_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  // A chunk's size may be followed by extensions.
  const bool ended = end == text.data() + text.size() || *end == ';' || *end == ' ';
  if (error != std::errc() || !ended) throw IoError("the server's answer has no valid length: \"" + std::string(text) + "\"");
  return value;
}

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

std::string_view trim(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

}  // namespace

void ResponseParser::feed(std::string_view bytes, const OnBody& on_body) {
  pending_.append(bytes);
  while (state_ != State::kDone && advance(on_body)) {
  }
}

void ResponseParser::end() {
  if (state_ == State::kBody && !length_) state_ = State::kDone;
  if (state_ == State::kDone) return;
  const bool is_alert = pending_.starts_with("\x15\x03");  // what a server of TLS answers to plain HTTP
  if (status_ == 0 && (pending_.empty() || is_alert)) {
    throw IoError("the server closed the connection without an answer (does it want TLS? this client speaks plain HTTP only)");
  }
  throw IoError("the server's answer is cut");
}

// The next line without its end; false when it has not come yet.
bool ResponseParser::take_line(std::string* line) {
  const size_t end = pending_.find("\r\n");
  if (end == std::string::npos) {
    if (pending_.size() > kMaxLine) throw IoError("what answers there is not an HTTP server");
    return false;
  }
  *line = pending_.substr(0, end);
  pending_.erase(0, end + 2);
  return true;
}

// One step; false when more bytes are needed.
bool ResponseParser::advance(const OnBody& on_body) {
  if (state_ == State::kBody) return take_body(on_body, State::kDone);
  if (state_ == State::kChunk) return take_body(on_body, State::kChunkEnd);
  std::string line;
  if (!take_line(&line)) return false;
  switch (state_) {
    case State::kStatus:
      status_line(line);
      break;
    case State::kHeaders:
      line.empty() ? begin_body() : header(std::move(line));
      break;
    case State::kChunkSize:
      left_ = parse_size(trim(line), 16);
      state_ = left_ == 0 ? State::kTrailers : State::kChunk;
      break;
    case State::kChunkEnd:
      if (!line.empty()) throw IoError("the server's answer has a broken chunk");
      state_ = State::kChunkSize;
      break;
    default:  // trailers
      if (line.empty()) state_ = State::kDone;
  }
  return true;
}

bool ResponseParser::take_body(const OnBody& on_body, State next) {
  const bool until_end = state_ == State::kBody && !length_;
  const size_t n = until_end ? pending_.size() : std::min(left_, pending_.size());
  if (n > 0) on_body(std::string_view(pending_).substr(0, n));
  pending_.erase(0, n);
  left_ -= until_end ? 0 : n;
  if (until_end || left_ > 0) return false;
  state_ = next;
  return true;
}

void ResponseParser::status_line(const std::string& line) {
  const bool valid = line.starts_with("HTTP/1.") && line.size() >= 12;
  if (!valid) throw IoError("what answers there is not an HTTP server");
  status_ = static_cast<int>(parse_size(std::string_view(line).substr(9, 3), 10));
  state_ = State::kHeaders;
}

void ResponseParser::header(std::string line) {
  line = lower(std::move(line));
  const size_t colon = std::min(line.find(':'), line.size() - 1);
  const std::string_view name = std::string_view(line).substr(0, colon);
  const std::string_view value = trim(std::string_view(line).substr(colon + 1));
  if (name == "transfer-encoding" && value.find("chunked") != std::string_view::npos) chunked_ = true;
  if (name == "content-length") length_ = parse_size(value, 10);
}

void ResponseParser::begin_body() {
  if (status_ >= 100 && status_ < 200) {  // "100 Continue": the answer follows
    state_ = State::kStatus;
  } else if (chunked_) {
    state_ = State::kChunkSize;
  } else {
    left_ = length_.value_or(0);
    state_ = length_ == size_t{0} || status_ == 204 ? State::kDone : State::kBody;
  }
}

void EventStream::feed(std::string_view bytes, const std::function<void(std::string_view)>& on_data) {
  pending_.append(bytes);
  size_t begin = 0;
  size_t end = 0;
  while ((end = pending_.find('\n', begin)) != std::string::npos) {
    std::string_view line = std::string_view(pending_).substr(begin, end - begin);
    begin = end + 1;
    if (line.ends_with('\r')) line.remove_suffix(1);
    constexpr std::string_view kData = "data:";
    if (line.starts_with(kData)) on_data(trim(line.substr(kData.size())));
  }
  pending_.erase(0, begin);
}

std::string error_message(int status, const std::string& body) {
  const Json json = Json::parse(body, nullptr, false);
  std::string message = body.substr(0, 300);
  if (json.is_object() && json.contains("error") && json["error"].is_object()) {
    message = json["error"].value("message", message);
  }
  return "the server answers " + std::to_string(status) + ": " + message;
}

}  // namespace tutti
