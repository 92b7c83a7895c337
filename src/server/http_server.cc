#include "server/http_server.h"

#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "base/log.h"
#include "server/http_connection.h"
#include "server/port_owner.h"

namespace tutti {
namespace {

using asio::ip::tcp;
using asio::local::stream_protocol;

constexpr std::chrono::milliseconds kTick{100};

constexpr auto kAcceptPause = std::chrono::milliseconds(100);
constexpr auto kAcceptWarning = std::chrono::seconds(10);  // one in so long

// A thousand streams are a thousand descriptors; shells often allow 1,024 although the system would give more. Some are left for
// ranks, files and other nodes, whatever clients do.
HttpConfig within_descriptor_limit(HttpConfig config) {
  constexpr rlim_t kKept = 256;  // or half of few
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return config;
  if (limit.rlim_cur < limit.rlim_max) {
    const rlim_t before = std::exchange(limit.rlim_cur, limit.rlim_max);
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0) limit.rlim_cur = before;
  }
  const rlim_t most = limit.rlim_cur - std::min(kKept, limit.rlim_cur / 2);
  config.max_connections = static_cast<int>(std::min<rlim_t>(static_cast<rlim_t>(config.max_connections), most));
  return config;
}

}  // namespace

// One io_context, its thread, and the connections that live there.
class IoLoop final : public EventLoop {
 public:
  IoLoop(const HttpConfig& config, ArrivingBytes& arriving, const HttpHandler& handler, asio::ssl::context* tls)
      : config_(config), arriving_(arriving), handler_(handler), tls_(tls), tick_timer_(io_) {}

  asio::io_context& io() { return io_; }
  size_t num_connections() const { return num_connections_; }

  void post(std::function<void()> task) override { asio::post(io_, std::move(task)); }

  void post_after(std::chrono::milliseconds delay, std::function<void()> task) override {
    auto timer = std::make_shared<asio::steady_timer>(io_);
    post([timer, delay, task = std::move(task)]() mutable {
      timer->expires_after(delay);
      timer->async_wait([timer, task = std::move(task)](const boost::system::error_code& ec) {
        if (!ec) task();
      });
    });
  }

  void run() {
    asio::co_spawn(io_, tick(), asio::detached);
    io_.run();
  }

  void adopt(Socket socket, std::string peer) {
    ++num_connections_;
    asio::post(io_, [this, s = std::make_shared<Socket>(std::move(socket)),
                     peer = std::move(peer)]() mutable {
      if (tls_ != nullptr) {
        start(std::make_shared<Connection<TlsStream>>(TlsStream(std::move(*s), *tls_), *this, config_,
                                                      arriving_, handler_, std::move(peer)));
      } else {
        start(std::make_shared<Connection<Socket>>(std::move(*s), *this, config_, arriving_, handler_, std::move(peer)));
      }
    });
  }

  void stop(Clock::time_point deadline) {
    post([this, deadline] {
      stop_at_ = std::min(stop_at_.value_or(deadline), deadline);
      for (ConnectionBase* connection : snapshot()) connection->drain();
      tick_timer_.cancel();
    });
  }

 private:
  template <typename C>
  void start(std::shared_ptr<C> connection) {
    connections_.insert(connection.get());
    if (stop_at_) connection->drain();
    asio::co_spawn(
        io_, [connection] { return connection->run(); },
        [this, connection](std::exception_ptr error) {
          connections_.erase(connection.get());
          --num_connections_;
          if (error) fail(*connection, error);
        });
  }

  // Only a bug or a lack of memory comes here: it costs one connection, not the server.
  static void fail(ConnectionBase& connection, const std::exception_ptr& error) {
    try {
      std::rethrow_exception(error);
    } catch (const std::exception& e) {
      log::error("a connection was ended: {}", e.what());
    }
    connection.close();
  }

  // Closing a connection may end it and change the set.
  std::vector<ConnectionBase*> snapshot() const { return {connections_.begin(), connections_.end()}; }

  asio::awaitable<void> tick() {
    while (true) {
      tick_timer_.expires_after(stop_at_ ? kTick / 10 : kTick);
      co_await tick_timer_.async_wait(kAwaitResult);  // cut short by stop()
      const auto now = Clock::now();
      for (ConnectionBase* connection : snapshot()) connection->tick(now);
      if (!stop_at_) continue;
      if (now >= *stop_at_) {
        for (ConnectionBase* connection : snapshot()) connection->close();
      }
      if (num_connections_ == 0) io_.stop();
    }
  }

  asio::io_context io_{1};
  const HttpConfig& config_;
  ArrivingBytes& arriving_;
  const HttpHandler& handler_;
  asio::ssl::context* tls_;
  asio::steady_timer tick_timer_;
  std::set<ConnectionBase*> connections_;
  std::atomic<size_t> num_connections_{0};  // also those on their way to this loop
  std::optional<Clock::time_point> stop_at_;
};

struct HttpServer::Impl {
  Impl(const HttpConfig& c, HttpHandler h) : config(c), arriving(c.max_arriving_bytes), handler(std::move(h)) {}

  const HttpConfig config;
  ArrivingBytes arriving;
  const HttpHandler handler;
  std::optional<asio::ssl::context> tls;
  std::vector<std::unique_ptr<IoLoop>> loops;
  std::optional<tcp::acceptor> tcp_acceptor;
  std::optional<stream_protocol::acceptor> unix_acceptor;

  void load_tls();
  void listen_tcp();
  void listen_unix();
  void close_listener();
  IoLoop& emptiest_loop();
  size_t num_connections() const;
  template <typename Acceptor>
  asio::awaitable<void> accept(Acceptor& acceptor);
  template <typename S>
  void accepted(S socket, IoLoop& loop);
};

void HttpServer::Impl::load_tls() {
  tls.emplace(asio::ssl::context::tls_server);
  const TlsConfig& c = config.tls;
  const auto check = [](const boost::system::error_code& ec, const std::string& flag,
                        const std::string& value) {
    if (ec) throw ConfigError(flag + " " + value + ": " + ec.message());
  };
  boost::system::error_code ec;
  tls->set_options(asio::ssl::context::default_workarounds | asio::ssl::context::no_tlsv1 |
                   asio::ssl::context::no_tlsv1_1);
  tls->use_certificate_chain_file(c.cert_file, ec);
  check(ec, "--ssl-certfile", c.cert_file);
  const std::string& key = c.key_file.empty() ? c.cert_file : c.key_file;
  tls->use_private_key_file(key, asio::ssl::context::pem, ec);
  check(ec, "--ssl-keyfile", key);
  if (!c.ca_certs.empty()) {
    tls->load_verify_file(c.ca_certs, ec);
    check(ec, "--ssl-ca-certs", c.ca_certs);
  }
  if (!c.ciphers.empty() && SSL_CTX_set_cipher_list(tls->native_handle(), c.ciphers.c_str()) != 1) {
    throw ConfigError("--ssl-ciphers " + c.ciphers + ": no cipher of this list is known to OpenSSL");
  }
  // Without a name for them OpenSSL refuses sessions of clients with certificates that come back.
  constexpr unsigned char kSessions[] = {'t', 'u', 't', 't', 'i'};
  SSL_CTX_set_session_id_context(tls->native_handle(), kSessions, sizeof(kSessions));
  int mode = asio::ssl::verify_none;
  if (c.cert_reqs >= 1) mode = asio::ssl::verify_peer;
  if (c.cert_reqs >= 2) mode |= asio::ssl::verify_fail_if_no_peer_cert;
  tls->set_verify_mode(mode);
}

void HttpServer::Impl::listen_tcp() {
  asio::io_context& io = loops[0]->io();
  const std::string where = config.host + ":" + std::to_string(config.port);
  boost::system::error_code ec;
  tcp::resolver resolver(io);
  const auto results = resolver.resolve(config.host, std::to_string(config.port),
                                        tcp::resolver::passive | tcp::resolver::numeric_service, ec);
  if (ec || results.empty())
    throw ConfigError("--host " + config.host + " is no address of this machine: " + ec.message());
  tcp::endpoint endpoint = *results.begin();
  for (const auto& result : results) {
    if (result.endpoint().address().is_v4()) {
      endpoint = result;
      break;
    }
  }
  tcp_acceptor.emplace(io);
  tcp_acceptor->open(endpoint.protocol(), ec);
  if (!ec) tcp_acceptor->set_option(tcp::acceptor::reuse_address(true), ec);
  if (!ec) tcp_acceptor->bind(endpoint, ec);
  if (!ec) tcp_acceptor->listen(4096, ec);
  if (ec == asio::error::address_in_use) {
    throw ConfigError(fmt::format("port {} is taken{}: --port {}, or end it", config.port,
                                  describe_port_owner(config.port), config.port + 1));
  }
  if (ec) throw ConfigError("cannot listen on " + where + ": " + ec.message());
}

void HttpServer::Impl::listen_unix() {
  asio::io_context& io = loops[0]->io();
  constexpr size_t kLongest = sizeof(sockaddr_un::sun_path) - 1;
  if (config.uds.size() > kLongest) throw ConfigError(fmt::format("--uds {}: a socket's path has {} bytes at most, this one {}", config.uds, kLongest, config.uds.size()));
  const stream_protocol::endpoint endpoint(config.uds);
  boost::system::error_code ec;
  // A socket file that nobody listens on is left from an earlier run.
  struct stat info {};
  if (::stat(config.uds.c_str(), &info) == 0) {
    if (!S_ISSOCK(info.st_mode)) throw ConfigError("--uds " + config.uds + " exists and is not a socket");
    stream_protocol::socket probe(io);
    probe.connect(endpoint, ec);
    if (!ec) throw ConfigError("--uds " + config.uds + " is in use by another process");
    ::unlink(config.uds.c_str());
  }
  unix_acceptor.emplace(io);
  unix_acceptor->open(endpoint.protocol(), ec);
  if (!ec) unix_acceptor->bind(endpoint, ec);
  if (!ec) unix_acceptor->listen(4096, ec);
  if (ec) throw ConfigError("cannot listen on --uds " + config.uds + ": " + ec.message());
}

void HttpServer::Impl::close_listener() {
  boost::system::error_code ignored;
  if (tcp_acceptor) tcp_acceptor->close(ignored);
  if (unix_acceptor && unix_acceptor->is_open()) {
    unix_acceptor->close(ignored);
    ::unlink(config.uds.c_str());
  }
}

size_t HttpServer::Impl::num_connections() const {
  size_t sum = 0;
  for (const auto& loop : loops) sum += loop->num_connections();
  return sum;
}

IoLoop& HttpServer::Impl::emptiest_loop() {
  return **std::min_element(loops.begin(), loops.end(), [](const auto& a, const auto& b) {
    return a->num_connections() < b->num_connections();
  });
}

template <typename S>
void HttpServer::Impl::accepted(S socket, IoLoop& loop) {
  boost::system::error_code ec;
  if (num_connections() >= static_cast<size_t>(config.max_connections)) {
    const std::string_view busy =
        "HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\ncontent-length: 0\r\n"
        "connection: close\r\n\r\n";
    socket.non_blocking(true, ec);
    socket.write_some(asio::buffer(busy), ec);
    return;
  }
  std::string peer = "unix";
  if constexpr (std::is_same_v<typename S::protocol_type, tcp>) {  // whatever its executor is
    socket.set_option(tcp::no_delay(true), ec);
    const tcp::endpoint remote = socket.remote_endpoint(ec);
    if (ec) return;  // gone already
    peer = remote.address().to_string() + ":" + std::to_string(remote.port());
  }
  loop.adopt(Socket(std::move(socket)), std::move(peer));
}

template <typename Acceptor>
asio::awaitable<void> HttpServer::Impl::accept(Acceptor& acceptor) {
  Clock::time_point next_warning{};
  while (acceptor.is_open()) {
    IoLoop& loop = emptiest_loop();
    auto [ec, socket] = co_await acceptor.async_accept(loop.io(), kAwaitResult);
    if (ec == asio::error::operation_aborted) break;
    if (ec) {
      // Out of descriptors or memory: wait for connections to end rather than spin.
      if (const auto now = Clock::now(); now >= next_warning) {
        log::warning("connections cannot be accepted: {}. Trying again every 100 ms", ec.message());
        next_warning = now + kAcceptWarning;
      }
      asio::steady_timer pause(acceptor.get_executor(), kAcceptPause);
      co_await pause.async_wait(kAwaitResult);
      continue;
    }
    accepted(std::move(socket), loop);
  }
}

HttpServer::HttpServer(const HttpConfig& config, HttpHandler handler)
    : impl_(std::make_unique<Impl>(within_descriptor_limit(config), std::move(handler))) {
  if (config.tls.enabled()) impl_->load_tls();
  for (int i = 0; i < std::max(1, config.io_threads); ++i) {
    impl_->loops.push_back(
        std::make_unique<IoLoop>(impl_->config, impl_->arriving, impl_->handler, impl_->tls ? &*impl_->tls : nullptr));
  }
  if (config.uds.empty()) {
    impl_->listen_tcp();
  } else {
    impl_->listen_unix();
  }
}

HttpServer::~HttpServer() { impl_->close_listener(); }

int HttpServer::port() const {
  return impl_->tcp_acceptor ? impl_->tcp_acceptor->local_endpoint().port() : 0;
}

std::string HttpServer::address() const {
  if (!impl_->config.uds.empty()) return "unix:" + impl_->config.uds;
  const bool v6 = impl_->config.host.find(':') != std::string::npos;
  return fmt::format("{}://{}{}{}:{}", impl_->tls ? "https" : "http", v6 ? "[" : "", impl_->config.host,
                     v6 ? "]" : "", port());
}

EventLoop& HttpServer::loop() { return *impl_->loops[0]; }
uint64_t HttpServer::arriving_bytes() const { return impl_->arriving.sum(); }

void HttpServer::run() {
  IoLoop& first = *impl_->loops[0];
  if (impl_->tcp_acceptor) asio::co_spawn(first.io(), impl_->accept(*impl_->tcp_acceptor), asio::detached);
  if (impl_->unix_acceptor) asio::co_spawn(first.io(), impl_->accept(*impl_->unix_acceptor), asio::detached);
  std::vector<std::thread> threads;
  for (size_t i = 1; i < impl_->loops.size(); ++i) {
    threads.emplace_back([loop = impl_->loops[i].get()] { loop->run(); });
  }
  first.run();
  for (std::thread& thread : threads) thread.join();
}

void HttpServer::stop(Deadline deadline) {
  impl_->loops[0]->post([impl = impl_.get()] { impl->close_listener(); });
  for (const auto& loop : impl_->loops) loop->stop(deadline.instant());
}

}  // namespace tutti
