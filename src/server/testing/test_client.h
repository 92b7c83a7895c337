// A blocking HTTP client on a raw socket, for tests that need to misbehave.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/json.h"

namespace tutti {

struct ClientResponse {
  int status = 0;
  std::map<std::string, std::string> headers;
  std::string body;       // chunks put together
  bool complete = false;  // the body ended as its framing says

  Json json() const { return parse_json(body, "response"); }
  std::vector<std::string> events() const;  // the data of server-sent events
};

// One connection. All waits end after 10 s.
class TestClient {
 public:
  explicit TestClient(int port);
  ~TestClient();
  TestClient(const TestClient&) = delete;

  void send(std::string_view bytes);
  void half_close();
  ClientResponse read_response(bool head_only = false);
  std::string read_some();  // "" at the end of the connection
  bool closed_by_server();  // waits for it
  ClientResponse get(const std::string& path, const std::string& headers = "");
  ClientResponse post(const std::string& path, const Json& body, const std::string& headers = "");
  static std::string post_text(const std::string& path, const std::string& body,
                               const std::string& headers = "");

 private:
  int fd_ = -1;
  std::string buffer_;
};

}  // namespace tutti
