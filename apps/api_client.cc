#include "apps/api_client.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <optional>

#include "base/error.h"
#include "base/json.h"
#include "cluster/network.h"

namespace tutti {
namespace {

constexpr auto kConnectTimeout = std::chrono::seconds(5);
constexpr auto kSilence = std::chrono::minutes(5);  // a stream sends a comment every 10 s
constexpr size_t kMaxHead = 64 << 10;

// Bytes of one connection, read as needed.
class Connection {
 public:
  explicit Connection(Fd socket) : socket_(std::move(socket)) {}

  void send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t n = ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n > 0) {
        bytes.remove_prefix(static_cast<size_t>(n));
      } else if (errno == EAGAIN) {
        wait(POLLOUT);
      } else if (errno != EINTR) {
        throw IoError(std::string("the server closed the connection: ") + std::strerror(errno));
      }
    }
  }

  // False at the end of the stream.
  bool fill() {
    char buffer[16 << 10];
    while (true) {
      const ssize_t n = ::recv(socket_.get(), buffer, sizeof buffer, 0);
      if (n > 0) {
        bytes_.append(buffer, static_cast<size_t>(n));
        return true;
      }
      if (n == 0) return false;
      if (errno == EAGAIN) {
        wait(POLLIN);
      } else if (errno != EINTR) {
        throw IoError(std::string("the connection broke: ") + std::strerror(errno));
      }
    }
  }

  // Up to and without the next line end. Throws IoError when there is none.
  std::string line() {
    size_t end;
    while ((end = bytes_.find("\r\n")) == std::string::npos) {
      if (bytes_.size() > kMaxHead || !fill()) throw IoError("the server's answer is cut or is not HTTP");
    }
    std::string line = bytes_.substr(0, end);
    bytes_.erase(0, end + 2);
    return line;
  }

  // At most `most` bytes that are there, waiting for at least one; "" at the end of the stream.
  std::string take(size_t most) {
    if (bytes_.empty() && !fill()) return "";
    std::string piece = bytes_.substr(0, most);
    bytes_.erase(0, piece.size());
    return piece;
  }

 private:
  void wait(short events) {
    pollfd entry{socket_.get(), events, 0};
    const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(kSilence).count();
    if (::poll(&entry, 1, static_cast<int>(ms)) == 0) throw IoError("the server has been silent for 5 min");
  }

  Fd socket_;
  std::string bytes_;
};

struct Head {
  int status = 0;
  bool chunked = false;
  std::optional<size_t> length;
};

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

size_t parse_size(const std::string& text, int base) {
  try {
    return std::stoul(text, nullptr, base);
  } catch (const std::exception&) {
    throw IoError("the server's answer has no valid length: \"" + text + "\"");
  }
}

Head read_head(Connection& connection) {
  Head head;
  const std::string status = connection.line();
  if (!status.starts_with("HTTP/1.") || status.size() < 12) throw IoError("what answers there is not an HTTP server");
  head.status = std::atoi(status.c_str() + 9);
  while (true) {
    const std::string line = lower(connection.line());
    if (line.empty()) return head;
    if (line.starts_with("transfer-encoding:") && line.find("chunked") != std::string::npos) head.chunked = true;
    if (line.starts_with("content-length:")) head.length = parse_size(line.substr(15), 10);
  }
}

void read_exactly(Connection& connection, size_t size, const std::function<void(std::string_view)>& on_body) {
  while (size > 0) {
    const std::string piece = connection.take(size);
    if (piece.empty()) throw IoError("the server's answer is cut");
    size -= piece.size();
    on_body(piece);
  }
}

void read_body(Connection& connection, const Head& head, const std::function<void(std::string_view)>& on_body) {
  if (head.chunked) {
    while (const size_t size = parse_size(connection.line(), 16)) {
      read_exactly(connection, size, on_body);
      connection.line();
    }
  } else if (head.length) {
    read_exactly(connection, *head.length, on_body);
  } else {
    for (std::string piece = connection.take(std::string::npos); !piece.empty(); piece = connection.take(std::string::npos)) {
      on_body(piece);
    }
  }
}

std::string error_message(int status, const std::string& body) {
  const Json json = Json::parse(body, nullptr, false);
  std::string message = body.substr(0, 300);
  if (json.is_object() && json.contains("error") && json["error"].is_object()) {
    message = json["error"].value("message", message);
  }
  return "the server answers " + std::to_string(status) + ": " + message;
}

}  // namespace

ApiClient::ApiClient(const std::string& url, std::string api_key) : api_key_(std::move(api_key)) {
  constexpr std::string_view kScheme = "http://";
  if (!url.starts_with(kScheme)) throw ConfigError("--url " + url + ": expected http://HOST:PORT");
  std::string rest = url.substr(kScheme.size());
  rest = rest.substr(0, rest.find('/'));
  std::tie(host_, port_) = split_address(rest, 80);
}

void ApiClient::exchange(const std::string& method, const std::string& path, const std::string& body,
                         const std::function<void(std::string_view)>& on_body) {
  std::string reason;
  Fd socket = connect_tcp(host_, port_, Deadline::after(kConnectTimeout), &reason);
  if (!socket) throw IoError("no server at " + host_ + ":" + std::to_string(port_) + " (" + reason + "): tutti serve starts one");
  Connection connection(std::move(socket));
  std::string request = method + " " + path + " HTTP/1.1\r\nHost: " + host_ + "\r\nConnection: close\r\n";
  if (!api_key_.empty()) request += "Authorization: Bearer " + api_key_ + "\r\n";
  if (!body.empty()) request += "Content-Type: application/json\r\nContent-Length: " + std::to_string(body.size()) + "\r\n";
  connection.send(request + "\r\n" + body);
  const Head head = read_head(connection);
  if (head.status == 200) return read_body(connection, head, on_body);
  std::string text;
  read_body(connection, head, [&](std::string_view piece) { text.append(piece); });
  throw IoError(error_message(head.status, text));
}

std::string ApiClient::get(const std::string& path) {
  std::string body;
  exchange("GET", path, "", [&](std::string_view piece) { body.append(piece); });
  return body;
}

void ApiClient::stream(const std::string& path, const std::string& body,
                       const std::function<void(std::string_view)>& on_event) {
  std::string pending;
  exchange("POST", path, body, [&](std::string_view piece) {
    pending.append(piece);
    size_t end;
    while ((end = pending.find("\n\n")) != std::string::npos) {
      const std::string event = pending.substr(0, end);
      pending.erase(0, end + 2);
      constexpr std::string_view kData = "data: ";
      if (event.starts_with(kData) && event != "data: [DONE]") on_event(std::string_view(event).substr(kData.size()));
    }
  });
}

}  // namespace tutti
