// The answer to one request between its handler and its connection: formats the head, frames a stream,
// buffers what the socket has not taken. Belongs to one event loop. Kept alive by both sides, so that a
// handler may go on writing after the connection is gone.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "server/http.h"

namespace tutti {

class Exchange final : public HttpExchange {
 public:
  // `wake` tells the connection that there is something to write. `keep_alive`: the connection stays open
  // afterwards.
  Exchange(HttpRequest request, EventLoop& loop, bool keep_alive, std::function<void()> wake);

  HttpRequest& request() override { return request_; }
  EventLoop& loop() override { return loop_; }
  void add_header(std::string name, std::string value) override;
  void respond(HttpResponse response) override;
  void start_stream() override;
  void write(std::string_view events) override;
  void end() override;
  bool started() const override { return started_; }
  bool writable() const override;
  void on_writable(std::function<void()> handler) override { on_writable_ = std::move(handler); }
  void on_disconnect(std::function<void()> handler) override;
  void on_finish(std::function<void(int)> handler) override { on_finish_ = std::move(handler); }
  void on_deadline(std::chrono::steady_clock::time_point instant, std::function<void()> handler) override;

  // The connection's side.
  bool has_output() const { return !output_.empty(); }
  std::string take_output();  // the caller then writes it and calls written()
  void written();
  bool streaming() const { return streaming_ && !complete_; }
  bool complete() const { return complete_; }
  bool keep_alive() const { return keep_alive_; }
  void comment();  // a keep-alive line in the stream
  void tick(std::chrono::steady_clock::time_point now);  // looks at the deadline
  void disconnect();

 private:
  void head(int status, const std::string& content_type, const HttpHeaders& more);
  void changed();
  void finish(int status);

  HttpRequest request_;
  EventLoop& loop_;
  bool keep_alive_;
  bool started_ = false;
  bool streaming_ = false;
  bool complete_ = false;
  bool gone_ = false;
  size_t in_flight_ = 0;  // bytes the connection is writing
  HttpHeaders headers_;
  std::string output_;
  std::function<void()> wake_;
  std::function<void()> on_writable_;
  std::function<void()> on_disconnect_;
  std::function<void(int)> on_finish_;
  std::chrono::steady_clock::time_point deadline_ = std::chrono::steady_clock::time_point::max();
  std::function<void()> on_deadline_;
};

}  // namespace tutti
