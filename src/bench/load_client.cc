#include "bench/load_client.h"

#include <netdb.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <memory>
#include <unordered_map>

#include "base/deadline.h"
#include "base/error.h"
#include "base/fd.h"
#include "base/json.h"
#include "bench/response_parser.h"

namespace tutti {
namespace {

using Seconds = std::chrono::duration<double>;

struct Address {
  sockaddr_storage storage{};
  socklen_t size = 0;
  int family = AF_INET;
};

Address resolve(const LoadTarget& target) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int code = ::getaddrinfo(target.host.c_str(), std::to_string(target.port).c_str(), &hints, &found);
  if (code != 0) throw IoError("no host \"" + target.host + "\": " + ::gai_strerror(code));
  Address address;
  address.family = found->ai_family;
  address.size = found->ai_addrlen;
  std::memcpy(&address.storage, found->ai_addr, found->ai_addrlen);
  ::freeaddrinfo(found);
  return address;
}

std::string text_of(const Json& choice) {
  const auto string_at = [](const Json& object, const char* key) {
    const auto it = object.find(key);
    return it != object.end() && it->is_string() ? it->get<std::string>() : std::string();
  };
  if (choice.contains("text")) return string_at(choice, "text");
  const auto delta = choice.find("delta");
  if (delta == choice.end() || !delta->is_object()) return "";
  return string_at(*delta, "reasoning_content") + string_at(*delta, "content");
}

// One request on its connection.
class Flight {
 public:
  Flight(const Address& address, std::string bytes, LoadResult& result, Clock::time_point begin)
      : socket_(::socket(address.family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)),
        bytes_(std::move(bytes)),
        result_(result),
        sent_(Clock::now()),
        last_(sent_),
        heard_(sent_) {
    result_.start_s = Seconds(sent_ - begin).count();
    connect(address);
  }

  int fd() const { return socket_.get(); }
  bool done() const { return done_; }
  bool wants_write() const { return !bytes_.empty(); }
  Clock::time_point heard() const { return heard_; }

  void fail(const std::string& error) {
    if (done_) return;
    done_ = true;
    result_.error = error;
    result_.latency_s = Seconds(Clock::now() - sent_).count();
  }

  void on_writable() {
    while (!bytes_.empty()) {
      const ssize_t n = ::send(fd(), bytes_.data(), bytes_.size(), MSG_NOSIGNAL);
      if (n < 0) {
        if (errno != EAGAIN && errno != EINTR) fail(std::string("cannot send: ") + std::strerror(errno));
        return;
      }
      bytes_.erase(0, static_cast<size_t>(n));
    }
  }

  void on_readable() {
    std::array<char, 64 << 10> buffer;
    const ssize_t n = ::recv(fd(), buffer.data(), buffer.size(), 0);
    if (n < 0) {
      if (errno != EAGAIN && errno != EINTR) fail(std::string("the connection broke: ") + std::strerror(errno));
      return;
    }
    heard_ = Clock::now();
    try {
      if (n == 0) {
        parser_.end();
      } else {
        parser_.feed({buffer.data(), static_cast<size_t>(n)}, [this](std::string_view piece) { take(piece); });
      }
      if (parser_.complete()) finish();
    } catch (const std::exception& e) {
      fail(e.what());
    }
  }

 private:
  void connect(const Address& address) {
    if (!socket_) return fail(std::strerror(errno));
    const int one = 1;
    ::setsockopt(fd(), IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    const auto* to = reinterpret_cast<const sockaddr*>(&address.storage);
    if (::connect(fd(), to, address.size) != 0 && errno != EINPROGRESS) fail(std::strerror(errno));
  }

  void take(std::string_view piece) {
    if (parser_.status() != 200) {
      error_body_.append(piece);
    } else {
      events_.feed(piece, [this](std::string_view data) { take_event(data); });
    }
  }

  void take_event(std::string_view data) {
    if (data == "[DONE]") return;
    const Json event = Json::parse(data, nullptr, false);
    if (!event.is_object()) throw IoError("an event of the server is no JSON: " + std::string(data.substr(0, 200)));
    if (event.contains("error") && !event["error"].is_null()) throw IoError(error_message(parser_.status(), std::string(data)));
    if (const auto usage = event.find("usage"); usage != event.end() && usage->is_object()) {
      result_.prompt_tokens = usage->value("prompt_tokens", int64_t{-1});
      result_.output_tokens = usage->value("completion_tokens", int64_t{-1});
    }
    const auto choices = event.find("choices");
    if (choices == event.end() || !choices->is_array() || choices->empty()) return;
    const auto now = Clock::now();
    std::string text;
    for (const Json& choice : *choices) text += text_of(choice);
    if (text.empty()) {
      if (result_.text.empty()) last_ = now;
      return;
    }
    if (result_.text.empty()) {
      result_.ttft_s = Seconds(now - sent_).count();
    } else {
      result_.itls_s.push_back(Seconds(now - last_).count());
    }
    last_ = now;
    result_.text += text;
  }

  void finish() {
    if (done_) return;
    if (parser_.status() != 200) return fail(error_message(parser_.status(), error_body_));
    if (result_.text.empty() && result_.output_tokens <= 0) return fail("the answer has no text");
    done_ = true;
    result_.ok = true;
    result_.latency_s = Seconds(last_ - sent_).count();
    if (result_.text.empty()) result_.ttft_s = result_.latency_s;  // only tokens that are not shown
  }

  Fd socket_;
  std::string bytes_;  // to be sent
  LoadResult& result_;
  Clock::time_point sent_;
  Clock::time_point last_;   // event with text
  Clock::time_point heard_;  // byte
  ResponseParser parser_;
  EventStream events_;
  std::string error_body_;
  bool done_ = false;
};

class Load {
 public:
  Load(const LoadTarget& target, const std::vector<LoadRequest>& requests, const LoadOptions& options)
      : target_(target), requests_(requests), options_(options), address_(resolve(target)),
        epoll_(::epoll_create1(EPOLL_CLOEXEC)), results_(requests.size()) {
    order_.resize(requests.size());
    for (size_t i = 0; i < order_.size(); ++i) order_[i] = i;
    std::stable_sort(order_.begin(), order_.end(), [&](size_t a, size_t b) { return requests[a].start_s < requests[b].start_s; });
  }

  std::vector<LoadResult> run() {
    std::array<epoll_event, 256> events{};
    auto next_look = Clock::now();
    while (num_done_ < static_cast<int64_t>(requests_.size())) {
      start_due();
      const int n = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), wait_ms());
      for (int i = 0; i < n; ++i) handle(events[static_cast<size_t>(i)]);
      if (Clock::now() < next_look) continue;
      next_look = Clock::now() + std::chrono::milliseconds(200);
      end_silent();
      if (options_.on_progress && options_.on_progress(num_done_, num_failed_)) interrupt();
    }
    return std::move(results_);
  }

 private:
  double now_s() const { return Seconds(Clock::now() - begin_).count(); }
  bool may_start() const {
    return next_ < order_.size() &&
           (options_.max_concurrency <= 0 || static_cast<int>(flights_.size()) < options_.max_concurrency);
  }

  void start_due() {
    while (may_start() && requests_[order_[next_]].start_s <= now_s()) {
      const size_t index = order_[next_++];
      LoadResult& result = results_[index];
      result.queue_s = std::max(0.0, now_s() - requests_[index].start_s);
      auto flight = std::make_unique<Flight>(address_, bytes_of(requests_[index]), result, begin_);
      if (flight->done()) {
        settle(result);
        continue;
      }
      epoll_event event{.events = EPOLLIN | EPOLLOUT, .data = {.fd = flight->fd()}};
      if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, flight->fd(), &event) != 0) {
        flight->fail(std::string("epoll: ") + std::strerror(errno));
        settle(result);
        continue;
      }
      const int fd = flight->fd();
      flights_.emplace(fd, Entry{std::move(flight), index});
    }
  }

  // Until the next request is due, at most 200 ms.
  int wait_ms() const {
    constexpr double kMost = 200;
    if (!may_start()) return static_cast<int>(kMost);
    return static_cast<int>(std::ceil(std::clamp((requests_[order_[next_]].start_s - now_s()) * 1e3, 0.0, kMost)));
  }

  std::string bytes_of(const LoadRequest& request) const {
    std::string out = "POST " + target_.path + " HTTP/1.1\r\nHost: " + target_.host + ":" + std::to_string(target_.port) +
                      "\r\nConnection: close\r\nAccept: text/event-stream\r\nContent-Type: application/json\r\nContent-Length: " +
                      std::to_string(request.body.size()) + "\r\n";
    for (const auto& [name, value] : target_.headers) out += name + ": " + value + "\r\n";
    if (!request.request_id.empty()) out += "X-Request-Id: " + request.request_id + "\r\n";
    return out + "\r\n" + request.body;
  }

  void handle(const epoll_event& event) {
    const auto it = flights_.find(event.data.fd);
    if (it == flights_.end()) return;
    Flight& flight = *it->second.flight;
    if ((event.events & EPOLLOUT) != 0 && flight.wants_write()) {
      flight.on_writable();
      if (!flight.wants_write()) {
        epoll_event only_read{.events = EPOLLIN, .data = {.fd = event.data.fd}};
        ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, event.data.fd, &only_read);
      }
    }
    if (!flight.done() && (event.events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0) flight.on_readable();
    if (flight.done()) land(it);
  }

  struct Entry {
    std::unique_ptr<Flight> flight;
    size_t index;
  };
  using Flights = std::unordered_map<int, Entry>;

  void land(Flights::iterator it) {
    settle(results_[it->second.index]);
    flights_.erase(it);  // closes the socket, which leaves epoll
  }

  void settle(const LoadResult& result) {
    ++num_done_;
    if (!result.ok) ++num_failed_;
  }

  void end_silent() {
    const auto now = Clock::now();
    for (auto it = flights_.begin(); it != flights_.end();) {
      const auto here = it++;
      if (Seconds(now - here->second.flight->heard()).count() < options_.silence_s) continue;
      here->second.flight->fail("the server has been silent for " + std::to_string(static_cast<int>(options_.silence_s)) + " s");
      land(here);
    }
  }

  void interrupt() {
    while (!flights_.empty()) {
      flights_.begin()->second.flight->fail("interrupted");
      land(flights_.begin());
    }
    for (; next_ < order_.size(); ++next_) {
      results_[order_[next_]].error = "interrupted";
      settle(results_[order_[next_]]);
    }
  }

  const LoadTarget& target_;
  const std::vector<LoadRequest>& requests_;
  const LoadOptions& options_;
  const Address address_;
  const Fd epoll_;
  const Clock::time_point begin_ = Clock::now();
  std::vector<LoadResult> results_;
  std::vector<size_t> order_;  // of starting
  size_t next_ = 0;
  Flights flights_;
  int64_t num_done_ = 0;
  int64_t num_failed_ = 0;
};

}  // namespace

std::vector<LoadResult> run_load(const LoadTarget& target, const std::vector<LoadRequest>& requests, const LoadOptions& options) {
  return Load(target, requests, options).run();
}

}  // namespace tutti
