// The client's half of HTTP/1.1: bytes of a connection to the status and the body of one answer, as they come. No
// sockets. One thread.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace tutti {

class ResponseParser {
 public:
  using OnBody = std::function<void(std::string_view piece)>;

  // Adds bytes; those of the body go to `on_body`, without their framing. Throws IoError for what is not HTTP.
  void feed(std::string_view bytes, const OnBody& on_body);
  // The server has closed the connection: ends a body without a length. Throws IoError when the answer is cut.
  void end();

  int status() const { return status_; }  // 0 before the head is complete
  bool complete() const { return state_ == State::kDone; }

 private:
  enum class State { kStatus, kHeaders, kBody, kChunkSize, kChunk, kChunkEnd, kTrailers, kDone };

  bool take_line(std::string* line);
  bool advance(const OnBody& on_body);
  bool take_body(const OnBody& on_body, State next);
  void status_line(const std::string& line);
  void header(std::string line);
  void begin_body();

  State state_ = State::kStatus;
  std::string pending_;
  int status_ = 0;
  bool chunked_ = false;
  std::optional<size_t> length_;  // nothing: until the connection ends
  size_t left_ = 0;               // of the body or the chunk
};

// Server-sent events out of a body that comes in pieces.
class EventStream {
 public:
  // Calls `on_data` with the data of each complete event, comments left out.
  void feed(std::string_view bytes, const std::function<void(std::string_view data)>& on_data);

 private:
  std::string pending_;
};

// What an error answer says: OpenAI's message, else the start of its body.
std::string error_message(int status, const std::string& body);

}  // namespace tutti
