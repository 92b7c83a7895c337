#include "server/http_exchange.h"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>

#include "base/check.h"

namespace tutti {
namespace {

// More than this waiting for the socket: the producer merges what it has instead of adding chunks.
constexpr size_t kHighWater = 16 * 1024;

// "Sun, 06 Nov 1994 08:49:37 GMT"
std::string http_date() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  char text[40];
  std::strftime(text, sizeof(text), "%a, %d %b %Y %H:%M:%S GMT", &utc);
  return text;
}

// A header value cannot end its line, whatever a client had us repeat.
std::string one_line(std::string value) {
  std::replace_if(
      value.begin(), value.end(), [](unsigned char c) { return c < 0x20 && c != '\t'; }, ' ');
  return value;
}

}  // namespace

Exchange::Exchange(HttpRequest request, EventLoop& loop, bool keep_alive, std::function<void()> wake)
    : request_(std::move(request)), loop_(loop), keep_alive_(keep_alive), wake_(std::move(wake)) {}

void Exchange::add_header(std::string name, std::string value) {
  headers_.emplace_back(std::move(name), one_line(std::move(value)));
}

void Exchange::head(int status, const std::string& content_type, const HttpHeaders& more) {
  output_ += fmt::format("HTTP/1.1 {} {}\r\ndate: {}\r\n", status, http_status_text(status), http_date());
  if (!content_type.empty()) output_ += "content-type: " + content_type + "\r\n";
  for (const HttpHeaders* list : {static_cast<const HttpHeaders*>(&headers_), &more}) {
    for (const auto& [name, value] : *list) output_ += name + ": " + one_line(value) + "\r\n";
  }
  if (!keep_alive_) {
    output_ += "connection: close\r\n";
  } else if (request_.http_1_0) {
    output_ += "connection: keep-alive\r\n";
  }
}

void Exchange::respond(HttpResponse response) {
  CHECK(!started_);
  started_ = true;
  complete_ = true;
  finish(response.status);
  if (gone_) return;
  const bool bodyless = response.status == 204;
  head(response.status, bodyless ? "" : response.content_type, response.headers);
  if (!bodyless) output_ += fmt::format("content-length: {}\r\n", response.body.size());
  output_ += "\r\n";
  if (!bodyless && request_.method != "HEAD") output_ += response.body;
  changed();
}

void Exchange::start_stream() {
  CHECK(!started_);
  started_ = true;
  streaming_ = true;
  if (gone_) return;
  // An HTTP/1.0 client knows the end of a stream only by the end of the connection.
  if (request_.http_1_0) keep_alive_ = false;
  HttpHeaders more = {{"cache-control", "no-cache"}, {"x-accel-buffering", "no"}};
  if (!request_.http_1_0) more.emplace_back("transfer-encoding", "chunked");
  head(200, "text/event-stream; charset=utf-8", more);
  output_ += "\r\n";
  changed();
}

void Exchange::write(std::string_view events) {
  CHECK(streaming_ && !complete_);
  if (gone_ || events.empty()) return;
  if (request_.http_1_0) {
    output_ += events;
  } else {
    fmt::format_to(std::back_inserter(output_), "{:x}\r\n", events.size());
    output_ += events;
    output_ += "\r\n";
  }
  changed();
}

void Exchange::end() {
  CHECK(streaming_ && !complete_);
  complete_ = true;
  finish(200);
  if (gone_) return;
  if (!request_.http_1_0) output_ += "0\r\n\r\n";
  changed();
}

void Exchange::comment() {
  if (streaming()) write(": keep-alive\n\n");
}

bool Exchange::writable() const { return output_.size() + in_flight_ < kHighWater; }

void Exchange::on_disconnect(std::function<void()> handler) {
  on_disconnect_ = std::move(handler);
  if (gone_ && on_disconnect_) loop_.post(std::exchange(on_disconnect_, nullptr));
}

void Exchange::on_deadline(std::chrono::steady_clock::time_point instant, std::function<void()> handler) {
  deadline_ = instant;
  on_deadline_ = std::move(handler);
}

void Exchange::tick(std::chrono::steady_clock::time_point now) {
  if (now < deadline_ || complete_ || gone_) return;
  deadline_ = std::chrono::steady_clock::time_point::max();
  if (const auto handler = std::exchange(on_deadline_, nullptr)) handler();
}

std::string Exchange::take_output() {
  in_flight_ = output_.size();
  return std::exchange(output_, std::string());
}

void Exchange::written() {
  in_flight_ = 0;
  // A copy: the handler may set another one, or end the exchange.
  if (const auto handler = on_writable_; handler && !complete_ && writable()) handler();
}

void Exchange::disconnect() {
  gone_ = true;
  wake_ = nullptr;
  output_.clear();
  on_writable_ = nullptr;
  on_deadline_ = nullptr;
  const auto handler = std::exchange(on_disconnect_, nullptr);
  if (handler && !complete_) handler();
  finish(kClientGone);
}

void Exchange::finish(int status) {
  if (const auto handler = std::exchange(on_finish_, nullptr)) handler(status);
}

void Exchange::changed() {
  if (wake_) wake_();
}

}  // namespace tutti
