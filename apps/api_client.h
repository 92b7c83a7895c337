// A small HTTP client for the program's own API: plain sockets, one request a connection, server-sent events as they
// come. Main thread.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "base/deadline.h"

namespace tutti {

class ApiClient {
 public:
  // `url`: "http://127.0.0.1:8000", with or without "/v1", as `flag` says it. Throws ConfigError, for TLS too.
  ApiClient(const std::string& url, std::string api_key, const std::string& flag = "--url");

  // The body of an answer 200. Throw IoError with the server's message for other answers, or without a server.
  std::string get(const std::string& path);
  // Calls `on_event` with the data of each server-sent event, until "[DONE]" or the end.
  void stream(const std::string& path, const std::string& body, const std::function<void(std::string_view data)>& on_event);

 private:
  // Sends the request, gives the body to `on_body` in pieces.
  void exchange(const std::string& method, const std::string& path, const std::string& body,
                const std::function<void(std::string_view piece)>& on_body);

  std::string host_;
  int port_ = 80;
  std::string api_key_;
};

}  // namespace tutti
