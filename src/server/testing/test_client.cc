#include "server/testing/test_client.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <stdexcept>
#include <utility>

namespace tutti {

std::vector<std::string> ClientResponse::events() const {
  std::vector<std::string> out;
  size_t at = 0;
  while (at < body.size()) {
    const size_t end = body.find("\n\n", at);
    const std::string event = body.substr(at, end - at);
    if (event.starts_with("data: ")) out.push_back(event.substr(6));
    if (end == std::string::npos) break;
    at = end + 2;
  }
  return out;
}

TestClient::TestClient(int port) {
  fd_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) {
    throw std::runtime_error("cannot connect to the test server");
  }
}

TestClient::~TestClient() { ::close(fd_); }

void TestClient::send(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n <= 0) return;  // the server has closed: the test sees that when it reads
    bytes.remove_prefix(static_cast<size_t>(n));
  }
}

void TestClient::half_close() { ::shutdown(fd_, SHUT_WR); }

std::string TestClient::read_some() {
  pollfd poll_fd{fd_, POLLIN, 0};
  // Long enough for a 10 MB prompt under a sanitizer on a busy machine.
  if (::poll(&poll_fd, 1, 60'000) != 1) throw std::runtime_error("nothing came from the server for 60 s");
  char bytes[65536];
  const ssize_t n = ::recv(fd_, bytes, sizeof(bytes), 0);
  return n <= 0 ? std::string() : std::string(bytes, static_cast<size_t>(n));
}

bool TestClient::closed_by_server() {
  while (!read_some().empty()) {
  }
  return true;
}

ClientResponse TestClient::read_response(bool head_only) {
  ClientResponse response;
  const auto more = [this] {
    const std::string bytes = read_some();
    buffer_ += bytes;
    return !bytes.empty();
  };
  size_t end = 0;
  while ((end = buffer_.find("\r\n\r\n")) == std::string::npos) {
    if (!more()) return response;
  }
  std::string head = buffer_.substr(0, end + 2);
  buffer_.erase(0, end + 4);
  response.status = std::stoi(head.substr(9, 3));
  for (size_t at = head.find("\r\n") + 2; at < head.size();) {
    const size_t stop = head.find("\r\n", at);
    const size_t colon = head.find(": ", at);
    response.headers[head.substr(at, colon - at)] = head.substr(colon + 2, stop - colon - 2);
    at = stop + 2;
  }
  if (head_only || response.status == 204 || response.status == 100) return response;
  if (response.headers.contains("transfer-encoding")) {
    while (true) {
      size_t line = 0;
      while ((line = buffer_.find("\r\n")) == std::string::npos) {
        if (!more()) return response;
      }
      const size_t size = std::stoul(buffer_.substr(0, line), nullptr, 16);
      while (buffer_.size() < line + 2 + size + 2) {
        if (!more()) return response;
      }
      response.body += buffer_.substr(line + 2, size);
      buffer_.erase(0, line + 2 + size + 2);
      if (size == 0) break;
    }
  } else if (response.headers.contains("content-length")) {
    const size_t size = std::stoul(response.headers["content-length"]);
    while (buffer_.size() < size) {
      if (!more()) return response;
    }
    response.body = buffer_.substr(0, size);
    buffer_.erase(0, size);
  } else {
    while (more()) {
    }
    response.body = std::exchange(buffer_, {});
  }
  response.complete = true;
  return response;
}

ClientResponse TestClient::get(const std::string& path, const std::string& headers) {
  send("GET " + path + " HTTP/1.1\r\nhost: test\r\n" + headers + "\r\n");
  return read_response();
}

std::string TestClient::post_text(const std::string& path, const std::string& body,
                                  const std::string& headers) {
  return fmt::format(
      "POST {} HTTP/1.1\r\nhost: test\r\ncontent-type: application/json\r\ncontent-length: {}\r\n{}\r\n{}",
      path, body.size(), headers, body);
}

ClientResponse TestClient::post(const std::string& path, const Json& body, const std::string& headers) {
  send(post_text(path, dump_json(body), headers));
  return read_response();
}

}  // namespace tutti
