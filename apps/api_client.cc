#include "apps/api_client.h"

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "bench/response_parser.h"
#include "cluster/network.h"

namespace tutti {
namespace {

constexpr auto kConnectTimeout = std::chrono::seconds(5);
constexpr auto kSilence = std::chrono::minutes(5);  // a stream sends a comment every 10 s

[[noreturn]] void broken(const char* what) { throw IoError(std::string(what) + ": " + std::strerror(errno)); }

void wait_for(const Fd& socket, short events) {
  pollfd entry{socket.get(), events, 0};
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(kSilence).count();
  if (::poll(&entry, 1, static_cast<int>(ms)) == 0) throw IoError("the server has been silent for 5 min");
}

void send_all(const Fd& socket, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n > 0) {
      bytes.remove_prefix(static_cast<size_t>(n));
    } else if (errno == EAGAIN) {
      wait_for(socket, POLLOUT);
    } else if (errno != EINTR) {
      broken("the server closed the connection");
    }
  }
}

// The status of the answer, whose body goes to `on_body(status, piece)`.
int read_answer(const Fd& socket, const std::function<void(int, std::string_view)>& on_body) {
  ResponseParser parser;
  char buffer[16 << 10];
  while (!parser.complete()) {
    const ssize_t n = ::recv(socket.get(), buffer, sizeof buffer, 0);
    if (n > 0) {
      parser.feed({buffer, static_cast<size_t>(n)}, [&](std::string_view piece) { on_body(parser.status(), piece); });
    } else if (n == 0) {
      parser.end();
    } else if (errno == EAGAIN) {
      wait_for(socket, POLLIN);
    } else if (errno != EINTR) {
      broken("the connection broke");
    }
  }
  return parser.status();
}

}  // namespace

ApiClient::ApiClient(const std::string& url, std::string api_key, const std::string& flag) : api_key_(std::move(api_key)) {
  constexpr std::string_view kScheme = "http://";
  if (!url.starts_with(kScheme)) {
    const char* why = url.starts_with("https://") ? ". This client speaks plain HTTP only: give an address of the server without TLS" : "";
    throw ConfigError(flag + " " + url + ": expected http://HOST:PORT" + why);
  }
  std::string rest = url.substr(kScheme.size());
  rest = rest.substr(0, rest.find('/'));
  std::tie(host_, port_) = split_address(rest, 80);
}

void ApiClient::exchange(const std::string& method, const std::string& path, const std::string& body,
                         const std::function<void(std::string_view)>& on_body) {
  std::string reason;
  const Fd socket = connect_tcp(host_, port_, Deadline::after(kConnectTimeout), &reason);
  if (!socket) throw IoError("no server at " + host_ + ":" + std::to_string(port_) + " (" + reason + "): tutti serve starts one");
  std::string request = method + " " + path + " HTTP/1.1\r\nHost: " + host_ + "\r\nConnection: close\r\n";
  if (!api_key_.empty()) request += "Authorization: Bearer " + api_key_ + "\r\n";
  if (!body.empty()) request += "Content-Type: application/json\r\nContent-Length: " + std::to_string(body.size()) + "\r\n";
  send_all(socket, request + "\r\n" + body);
  std::string refusal;
  const int status = read_answer(socket, [&](int code, std::string_view piece) {
    code == 200 ? on_body(piece) : static_cast<void>(refusal.append(piece));
  });
  if (status != 200) throw IoError(error_message(status, refusal));
}

std::string ApiClient::get(const std::string& path) {
  std::string body;
  exchange("GET", path, "", [&](std::string_view piece) { body.append(piece); });
  return body;
}

void ApiClient::stream(const std::string& path, const std::string& body,
                       const std::function<void(std::string_view)>& on_event) {
  EventStream events;
  exchange("POST", path, body, [&](std::string_view piece) {
    events.feed(piece, [&](std::string_view data) {
      if (data != "[DONE]") on_event(data);
    });
  });
}

}  // namespace tutti
