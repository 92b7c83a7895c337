// One client connection: reads requests, hands them to the handler, writes the answers, one at a time. A
// coroutine on its loop; all deadlines are one instant that the loop's tick compares with the clock. Private
// to http_server.cc.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <boost/asio.hpp>
#include <boost/asio/ssl.hpp>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "base/deadline.h"
#include "server/http_exchange.h"
#include "server/http_parser.h"
#include "server/openai_response.h"
#include "server/server_config.h"

namespace tutti {

namespace asio = boost::asio;
using Socket = asio::generic::stream_protocol::socket;  // TCP and Unix sockets alike
using TlsStream = asio::ssl::stream<Socket>;

constexpr auto kAwaitResult = asio::as_tuple(asio::use_awaitable);

// What the loop knows of a connection, whatever its stream is.
class ConnectionBase {
 public:
  virtual ~ConnectionBase() = default;
  virtual void tick(Clock::time_point now) = 0;
  virtual void drain() = 0;  // close when idle, else after the answer
  virtual void close() = 0;  // now
};

// Bodies that are still on their way, of all connections of a server: whoever sends them need not even have a key. Small
// ones do not count, so that large ones cannot keep them out. Any thread.
class ArrivingBytes {
 public:
  explicit ArrivingBytes(uint64_t most) : most_(most) {}
  uint64_t sum() const { return sum_; }

  // One connection's share.
  class Share {
   public:
    explicit Share(ArrivingBytes& all) : all_(all) {}
    ~Share() { reset(); }
    Share(const Share&) = delete;
    Share& operator=(const Share&) = delete;
    // False when that is too much.
    bool add(uint64_t bytes) {
      received_ += bytes;
      if (received_ <= kSmall) return true;
      const uint64_t more = received_ - kSmall - counted_;
      counted_ += more;
      return all_.sum_.fetch_add(more) + more <= all_.most_;
    }
    void reset() {
      all_.sum_ -= std::exchange(counted_, 0);
      received_ = 0;
    }

   private:
    ArrivingBytes& all_;
    uint64_t received_ = 0;
    uint64_t counted_ = 0;
  };

 private:
  static constexpr uint64_t kSmall = 64 * 1024;
  const uint64_t most_;
  std::atomic<uint64_t> sum_{0};
};

template <typename Stream>
class Connection final : public ConnectionBase, public std::enable_shared_from_this<Connection<Stream>> {
 public:
  Connection(Stream stream, EventLoop& loop, const HttpConfig& config, ArrivingBytes& arriving, const HttpHandler& handler,
             std::string peer)
      : stream_(std::move(stream)),
        loop_(loop),
        config_(config),
        arriving_(arriving),
        handler_(handler),
        peer_(std::move(peer)),
        parser_({config.max_head_bytes, config.max_body_bytes}),
        wake_timer_(stream_.get_executor()) {
    wake_timer_.expires_at(Clock::time_point::max());
    allow(config_.head_timeout);
  }

  // Until either side closes.
  asio::awaitable<void> run() {
    const auto self = this->shared_from_this();
    const bool open = co_await handshake();
    while (open && co_await read_request()) {
      co_await answer();
      if (!exchange_->keep_alive() || draining_ || failed_ || peer_done_) break;
      exchange_.reset();
    }
    if (exchange_) exchange_->disconnect();
    if (!failed_) co_await shut_down();
    close();
  }

  void tick(Clock::time_point now) override {
    if (const auto exchange = exchange_) exchange->tick(now);  // kept alive: its handler may end it
    if (now >= deadline_) {
      deadline_ = Clock::time_point::max();
      if (phase_ == Phase::kReading && parser_.in_request()) {
        timed_out_ = true;
        socket().cancel();
      } else {
        close();
      }
    } else if (exchange_ && exchange_->streaming() && now - last_write_ >= config_.keep_alive_comment) {
      last_write_ = now;
      exchange_->comment();
    }
  }

  void drain() override {
    draining_ = true;
    if (phase_ == Phase::kReading && !parser_.in_request()) close();
  }

  void close() override {
    failed_ = true;
    if (exchange_) exchange_->disconnect();
    boost::system::error_code ignored;
    socket().close(ignored);
    wake();
  }

 private:
  enum class Phase { kHandshake, kReading, kAnswering, kLingering };

  Socket& socket() {
    if constexpr (std::is_same_v<Stream, Socket>) {
      return stream_;
    } else {
      return stream_.next_layer();
    }
  }

  void allow(Clock::duration time) { deadline_ = Clock::now() + time; }
  void wake() { wake_timer_.cancel_one(); }

  asio::awaitable<bool> handshake() {
    if constexpr (!std::is_same_v<Stream, Socket>) {
      auto [ec] = co_await stream_.async_handshake(asio::ssl::stream_base::server, kAwaitResult);
      if (ec) failed_ = true;
    }
    co_return !failed_;
  }

  // False when there is no further request on this connection.
  asio::awaitable<bool> read_request() {
    phase_ = Phase::kReading;
    int error_status = 0;
    std::string error_text;
    try {
      bool complete = parser_.feed(std::exchange(pipelined_, {}));
      bool head_seen = false;
      allow(parser_.in_request() ? config_.head_timeout : config_.idle_timeout);
      while (!complete) {
        const bool began = parser_.in_request();
        auto [ec, n] = co_await stream_.async_read_some(asio::buffer(read_buffer_), kAwaitResult);
        if (timed_out_) throw HttpError(408, "the rest of the request did not come in time");
        if (ec) {
          failed_ = failed_ || ec != asio::error::eof;
          co_return false;
        }
        if (!began) allow(config_.head_timeout);
        if (!arriving_.add(n)) throw HttpError(503, "too many large requests at once: try again later");
        complete = parser_.feed({read_buffer_.data(), n});
        if (!complete && parser_.head_complete()) {
          if (!std::exchange(head_seen, true)) allow(config_.body_timeout);
          // Slow lines get time for what they send; a client that trickles does not hold the connection for
          // ever.
          deadline_ += std::chrono::microseconds(n * 1'000'000 / (16 * 1024));
          if (parser_.wants_continue()) {
            auto [ec_write, m] = co_await asio::async_write(
                stream_, asio::buffer(std::string_view("HTTP/1.1 100 Continue\r\n\r\n")), kAwaitResult);
            if (ec_write) co_return false;
          }
        }
      }
      begin_exchange(parser_.take());
    } catch (const HttpError& e) {
      error_status = e.status();
      error_text = e.what();
    }
    arriving_.reset();
    if (error_status != 0) co_await refuse(error_status, error_text);
    co_return error_status == 0;
  }

  void begin_exchange(HttpRequest request) {
    request.peer = peer_;
    const bool keep_alive = request.keep_alive && !draining_;
    const std::weak_ptr<Connection> weak = this->weak_from_this();
    exchange_ = std::make_shared<Exchange>(std::move(request), loop_, keep_alive, [weak] {
      if (const auto connection = weak.lock()) connection->wake();
    });
  }

  // Bytes that are not a request: one error, then the connection ends.
  asio::awaitable<void> refuse(int status, const std::string& message) {
    refused_ = true;
    exchange_ = std::make_shared<Exchange>(HttpRequest{}, loop_, false, nullptr);
    exchange_->respond(error_response(status, message));
    co_await write_answer();
  }

  asio::awaitable<void> answer() {
    phase_ = Phase::kAnswering;
    deadline_ = Clock::time_point::max();
    last_write_ = Clock::now();
    answered_ = false;
    handler_(exchange_);
    if (!exchange_->complete()) {
      watching_ = true;
      asio::co_spawn(
          stream_.get_executor(), [self = this->shared_from_this()] { return self->watch(); },
          asio::detached);
    }
    co_await write_answer();
    if (failed_) exchange_->disconnect();
    // No write is pending here, so cancelling ends the watcher's read and nothing else. A read that has just succeeded
    // cannot be cancelled: the watcher must not begin another one.
    answered_ = true;
    if (watching_ && !failed_) socket().cancel();
    while (watching_) co_await wait_for_wake();
  }

  // Reads while the answer is made: notices that the client is gone, and keeps what it sends ahead.
  asio::awaitable<void> watch() {
    constexpr size_t kMaxPipelined = 64 * 1024;
    while (!answered_ && pipelined_.size() < kMaxPipelined) {
      auto [ec, n] = co_await stream_.async_read_some(asio::buffer(read_buffer_), kAwaitResult);
      if (ec == asio::error::operation_aborted) break;
      if (ec) {
        peer_closed(ec);
        break;
      }
      pipelined_.append(read_buffer_.data(), n);
    }
    watching_ = false;
    wake();
  }

  // The end of the client's sending may mean that it has gone, or only that it has nothing more to say. A
  // stream finds out by writing (a comment, at once); for a plain answer the former is taken to be true.
  void peer_closed(const boost::system::error_code& ec) {
    peer_done_ = true;
    if (ec == asio::error::eof && exchange_->streaming()) {
      exchange_->comment();
    } else {
      failed_ = true;
    }
  }

  asio::awaitable<void> write_answer() {
    while (!failed_) {
      if (exchange_->has_output()) {
        co_await write_all(exchange_->take_output());
        last_write_ = Clock::now();
        if (!failed_) exchange_->written();
      } else if (exchange_->complete()) {
        co_return;
      } else {
        deadline_ = Clock::time_point::max();
        co_await wait_for_wake();
      }
    }
  }

  asio::awaitable<void> write_all(std::string data) {
    size_t done = 0;
    while (done < data.size() && !failed_) {
      allow(config_.write_timeout);
      auto [ec, n] = co_await stream_.async_write_some(asio::buffer(data.data() + done, data.size() - done),
                                                       kAwaitResult);
      if (ec) failed_ = true;
      done += n;
    }
  }

  asio::awaitable<void> wait_for_wake() {
    auto [ec] = co_await wake_timer_.async_wait(kAwaitResult);
    static_cast<void>(ec);  // always "cancelled": that is how a wake looks
  }

  asio::awaitable<void> shut_down() {
    phase_ = Phase::kLingering;
    allow(std::chrono::seconds(2));
    if constexpr (!std::is_same_v<Stream, Socket>) {
      auto [ec] = co_await stream_.async_shutdown(kAwaitResult);
      static_cast<void>(ec);  // the peer need not answer
    }
    // Closing while bytes of the client lie unread or are on their way would reset the connection and could
    // cost it our last answer: say that we are done and read on for a moment.
    boost::system::error_code ec;
    socket().shutdown(Socket::shutdown_send, ec);
    while (!ec && !failed_ && !peer_done_ && (refused_ || !pipelined_.empty())) {
      auto [ec_read, n] = co_await socket().async_read_some(asio::buffer(read_buffer_), kAwaitResult);
      ec = ec_read;
    }
  }

  Stream stream_;
  EventLoop& loop_;
  const HttpConfig& config_;
  ArrivingBytes::Share arriving_;
  const HttpHandler& handler_;
  const std::string peer_;
  HttpParser parser_;
  std::shared_ptr<Exchange> exchange_;  // the request being answered
  asio::steady_timer wake_timer_;       // never expires: cancelling it resumes the coroutine
  std::array<char, 8 * 1024> read_buffer_;
  std::string pipelined_;  // came while an answer was made
  Phase phase_ = Phase::kHandshake;
  Clock::time_point deadline_;
  Clock::time_point last_write_;
  bool refused_ = false;    // what it sent was no request, or too large: more of it may come
  bool timed_out_ = false;  // the request did not come in time
  bool watching_ = false;
  bool answered_ = false;  // the answer is written
  bool peer_done_ = false;  // the client will send no more
  bool draining_ = false;
  bool failed_ = false;  // nothing more can be written
};

}  // namespace tutti
