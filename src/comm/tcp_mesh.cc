#include "comm/tcp_mesh.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "base/log.h"
#include "comm/tcp_handshake.h"
#include "comm/tcp_socket.h"

namespace tutti {
namespace {

// How long a connection may take to say who it is, and how many that have not are kept at a time.
constexpr std::chrono::seconds kHelloTime{5};
constexpr size_t kMaxStrangers = 256;

template <typename Message>
void send_message(int socket, const Message& message, const std::string& who) {
  // A fresh connection's send buffer holds far more than one of these.
  if (::send(socket, &message, sizeof message, MSG_NOSIGNAL) !=
      static_cast<ssize_t>(sizeof message)) {
    throw CommError(fmt::format("{}: handshake: {}", who, std::strerror(errno)));
  }
}

template <typename Message>
Message receive_message(int socket, const std::string& who, Deadline deadline) {
  Message message;
  size_t done = 0;
  while (done < sizeof message) {
    if (!wait_for_events(socket, POLLIN, deadline)) {
      throw CommError(
          fmt::format("{}: connected, but no answer in the handshake within the deadline", who));
    }
    const ssize_t got =
        ::recv(socket, reinterpret_cast<char*>(&message) + done, sizeof message - done, 0);
    if (got == 0) throw CommError(fmt::format("{}: closed the connection in the handshake", who));
    if (got < 0 && errno != EAGAIN && errno != EINTR) {
      throw CommError(fmt::format("{}: handshake: {}", who, std::strerror(errno)));
    }
    done += got > 0 ? static_cast<size_t>(got) : 0;
  }
  return message;
}

// An accepted connection that has not yet said who it is.
struct Stranger {
  Fd socket;
  TcpChallenge challenge;
  TcpHello hello;
  size_t done = 0;
  Deadline deadline;
};

class MeshBuilder {
 public:
  MeshBuilder(const CommGroup& group, Store& store, const TcpOptions& options, Deadline deadline)
      : group_(group),
        store_(store),
        options_(options),
        deadline_(deadline),
        peers_(static_cast<size_t>(group.size)) {
    for (TcpPeer& peer : peers_) peer.streams.resize(static_cast<size_t>(options.streams));
    self_.epoch = group.epoch;
    self_.size = group.size;
    std::copy_n(group.name.data(), std::min(group.name.size(), self_.group.size()),
                self_.group.data());
  }

  std::vector<TcpPeer> build() {
    const std::string host =
        options_.interface.empty() ? options_.bind_address : interface_address(options_.interface);
    const int per_pair = options_.streams + 1;
    Fd listener =
        listen_on(host, options_.port_min, options_.port_max, group_.size * per_pair + 16);
    store_.set(key_of(group_.rank), SocketAddress::local_of(listener.get()).text());
    // Down first: rank 0 only accepts, so by induction everyone's connections down are answered.
    for (int r = 0; r < group_.rank; ++r) connect_down(r);
    missing_ = (group_.size - 1 - group_.rank) * per_pair;
    while (missing_ > 0) accept_some(listener.get());
    for (int r = 0; r < group_.size; ++r) {
      TcpPeer& peer = peers_[static_cast<size_t>(r)];
      if (r == group_.rank) {
        peer.streams.clear();
        continue;
      }
      peer.link = fmt::format("tcp {} - {}", SocketAddress::local_of(peer.control.get()).host(),
                              SocketAddress::peer_of(peer.control.get()).host());
    }
    return std::move(peers_);
  }

 private:
  std::string key_of(int rank) const { return fmt::format("{}/tcp/{}", group_.key(), rank); }

  void connect_down(int rank) {
    const std::string text = store_.get(key_of(rank), deadline_);
    const auto address = SocketAddress::parse_with_port(text);
    if (!address)
      throw CommError(
          fmt::format("{}: '{}' in the store is not an address", group_.label(rank), text));
    for (int stream = kControlStream; stream < options_.streams; ++stream) {
      Fd socket = connect_to(*address, group_.label(rank), deadline_);
      introduce(socket.get(), rank, stream, address->text());
      slot(rank, stream) = std::move(socket);
    }
  }

  // The connector's side of the handshake.
  void introduce(int socket, int rank, int stream, const std::string& address) {
    const std::string who = fmt::format("{} at {}", group_.label(rank), address);
    const auto challenge = receive_message<TcpChallenge>(socket, who, deadline_);
    if (challenge.magic != kTcpMagic) {
      throw CommError(fmt::format("{}: something else answers on this port", who), rank);
    }
    TcpHello hello = self_;
    hello.from = group_.rank;
    hello.to = rank;
    hello.stream = stream;
    hello.nonce = random_nonce();
    hello.tag = connector_tag(options_.secret, hello, challenge.nonce);
    send_message(socket, hello, who);
    const auto welcome = receive_message<TcpWelcome>(socket, who, deadline_);
    if (welcome.verdict != TcpVerdict::kWelcome) {
      throw CommError(
          fmt::format("{}: refused us: {}", who,
                      verdict_text(welcome.verdict, hello, welcome.epoch, welcome.version)),
          rank);
    }
    if (!equal_tags(welcome.tag, acceptor_tag(options_.secret, hello, challenge.nonce))) {
      throw CommError(fmt::format("{}: {}", who, verdict_text(TcpVerdict::kSecret, hello, 0, 0)),
                      rank);
    }
  }

  // Waits for connections from above and for what they say, and moves each on as far as it goes. A
  // connection that says nothing holds up no other.
  void accept_some(int listener) {
    std::vector<pollfd> entries{{listener, POLLIN, 0}};
    for (const Stranger& s : strangers_) entries.push_back({s.socket.get(), POLLIN, 0});
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline_.left()).count();
    if (left == 0) {
      throw CommError(fmt::format("{}: did not connect within the deadline", missing_ranks()),
                      first_missing());
    }
    const int ready =
        ::poll(entries.data(), entries.size(), static_cast<int>(std::min<int64_t>(left, 1000)));
    if (ready < 0 && errno != EINTR) throw CommError(fmt::format("poll: {}", std::strerror(errno)));
    for (Stranger& s : strangers_) {
      if (!read_hello(s)) s.socket.reset();
    }
    std::erase_if(strangers_, [](const Stranger& s) { return !s.socket || s.deadline.passed(); });
    if (ready > 0 && (entries[0].revents & POLLIN) != 0) accept_one(listener);
  }

  void accept_one(int listener) {
    Fd socket(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket || strangers_.size() >= kMaxStrangers) return;
    tune_socket(socket.get());
    Stranger stranger{std::move(socket), {}, {}, 0, Deadline::after(kHelloTime)};
    stranger.challenge.nonce = random_nonce();
    if (::send(stranger.socket.get(), &stranger.challenge, sizeof stranger.challenge,
               MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof stranger.challenge)) {
      strangers_.push_back(std::move(stranger));
    }
  }

  // False when the connection is of no further use as a stranger: admitted, refused or gone.
  bool read_hello(Stranger& s) {
    char* begin = reinterpret_cast<char*>(&s.hello);
    const ssize_t got = ::recv(s.socket.get(), begin + s.done, sizeof s.hello - s.done, 0);
    if (got < 0) return errno == EAGAIN || errno == EINTR;
    if (got == 0) return false;
    s.done += static_cast<size_t>(got);
    if (s.done < sizeof s.hello) return true;
    admit_or_refuse(s);
    return false;
  }

  void admit_or_refuse(Stranger& s) {
    TcpHello expected = self_;
    expected.to = group_.rank;
    TcpWelcome welcome;
    welcome.epoch = self_.epoch;
    welcome.verdict = judge(s.hello, expected, options_.secret, s.challenge.nonce);
    const bool known_stream = s.hello.stream >= kControlStream && s.hello.stream < options_.streams;
    if (welcome.verdict == TcpVerdict::kWelcome &&
        (!known_stream || slot(s.hello.from, s.hello.stream))) {
      welcome.verdict = TcpVerdict::kRank;
    }
    if (welcome.verdict == TcpVerdict::kWelcome) {
      welcome.tag = acceptor_tag(options_.secret, s.hello, s.challenge.nonce);
      send_message(s.socket.get(), welcome, group_.label(s.hello.from));
      slot(s.hello.from, s.hello.stream) = std::move(s.socket);
      --missing_;
      return;
    }
    log::warning("refused a connection from {} to group {}: {}",
                 SocketAddress::peer_of(s.socket.get()).text(), group_.key(),
                 verdict_text(welcome.verdict, s.hello, self_.epoch, s.hello.version));
    // Whether it learns why is its own affair.
    (void)::send(s.socket.get(), &welcome, sizeof welcome, MSG_NOSIGNAL);
  }

  Fd& slot(int rank, int stream) {
    TcpPeer& peer = peers_[static_cast<size_t>(rank)];
    return stream == kControlStream ? peer.control : peer.streams[static_cast<size_t>(stream)];
  }

  bool is_missing(int rank) const {
    const TcpPeer& peer = peers_[static_cast<size_t>(rank)];
    return !peer.control ||
           std::any_of(peer.streams.begin(), peer.streams.end(), [](const Fd& fd) { return !fd; });
  }
  int first_missing() const {
    for (int r = group_.rank + 1; r < group_.size; ++r) {
      if (is_missing(r)) return r;
    }
    return -1;
  }
  std::string missing_ranks() const {
    std::string text;
    for (int r = group_.rank + 1; r < group_.size; ++r) {
      if (is_missing(r)) text += (text.empty() ? "" : ", ") + group_.label(r);
    }
    return text;
  }

  const CommGroup& group_;
  Store& store_;
  const TcpOptions& options_;
  const Deadline deadline_;
  TcpHello self_;
  std::vector<TcpPeer> peers_;
  std::vector<Stranger> strangers_;
  int missing_ = 0;
};

}  // namespace

std::vector<TcpPeer> connect_mesh(const CommGroup& group, Store& store, const TcpOptions& options,
                                  Deadline deadline) {
  return MeshBuilder(group, store, options, deadline).build();
}

}  // namespace tutti
