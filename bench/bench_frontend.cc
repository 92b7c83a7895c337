// What the front end can carry: HTTP, tokenising, the scheduler, detokenising and event streams over an executor that
// answers at once, with a client in the same process (one epoll thread), so both share the machine's cores. Prints JSON.
//   bench_frontend [--streams 256] [--tokens 256] [--prompt-bytes 512] [--seconds 10] [--step-us 0] [--io-threads 1]
//                  [--tokenizer FOLDER]
// `events` says how many streamed chunks carried the tokens: a front end that lags merges them. With --step-us the
// executor takes that long a step, so that every token is a chunk of its own if the front end keeps up.
#include <arpa/inet.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "server/server.h"
#include "server/testing/fake_model.h"

using namespace tutti;

namespace {

struct Options {
  int streams = 256;
  int tokens = 256;
  int prompt_bytes = 512;
  double seconds = 10;
  int step_us = 0;
  int io_threads = 1;
  std::string tokenizer;
};

struct Totals {
  int64_t requests = 0;
  int64_t failed = 0;
  int64_t tokens = 0;
  int64_t events = 0;
  double max_gap = 0;
  std::vector<double> first;  // seconds to the first event
};

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

double resident_mib() {
  double size = 0;
  double pages = 0;
  std::ifstream("/proc/self/statm") >> size >> pages;
  return pages * static_cast<double>(sysconf(_SC_PAGESIZE)) / (1 << 20);
}

// One keep-alive connection that sends the same request again and again.
class LoadStream {
 public:
  LoadStream(int port, const std::string& request, int epoll, Totals& totals) : request_(request), totals_(totals) {
    fd_ = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) throw IoError("cannot connect");
    epoll_event event{.events = EPOLLIN, .data = {.ptr = this}};
    ::epoll_ctl(epoll, EPOLL_CTL_ADD, fd_, &event);
    send();
  }
  ~LoadStream() { ::close(fd_); }
  LoadStream(const LoadStream&) = delete;

  // Reads what is there; sends the next request when an answer is complete and `more` are wanted.
  void on_readable(bool more) {
    char bytes[65536];
    const ssize_t n = ::recv(fd_, bytes, sizeof(bytes), MSG_DONTWAIT);
    if (n <= 0) {
      if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
      ++totals_.failed;
      throw IoError("the server closed a stream");
    }
    const auto now = Clock::now();
    totals_.max_gap = std::max(totals_.max_gap, std::chrono::duration<double>(now - last_).count());
    last_ = now;
    tail_.append(bytes, static_cast<size_t>(n));
    count(now);
    if (!tail_.ends_with("\r\n0\r\n\r\n")) return;
    finish();
    if (more) send();
  }
  bool idle() const { return idle_; }

 private:
  void send() {
    begin_ = last_ = Clock::now();
    first_ = true;
    idle_ = false;
    tail_.clear();
    scanned_ = 0;
    if (::send(fd_, request_.data(), request_.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(request_.size())) {
      throw IoError("a request could not be sent in one piece");
    }
  }

  void count(Clock::time_point now) {
    constexpr std::string_view kEvent = "data: {";
    size_t at = scanned_;
    while ((at = tail_.find(kEvent, at)) != std::string::npos) {
      if (first_) totals_.first.push_back(std::chrono::duration<double>(now - begin_).count());
      first_ = false;
      ++totals_.events;
      at += kEvent.size();
      scanned_ = at;
    }
    // The last kilobyte is enough to find the usage and the end.
    if (tail_.size() > 8192) {
      const size_t cut = tail_.size() - 1024;
      tail_.erase(0, cut);
      scanned_ = scanned_ > cut ? scanned_ - cut : 0;
    }
  }

  void finish() {
    constexpr std::string_view kCount = "\"completion_tokens\":";
    const size_t at = tail_.rfind(kCount);
    if (at == std::string::npos) throw IoError("a stream ended without usage: " + tail_);
    totals_.tokens += std::atoll(tail_.c_str() + at + kCount.size());
    --totals_.events;  // the usage is no token
    ++totals_.requests;
    idle_ = true;
  }

  const std::string& request_;
  Totals& totals_;
  int fd_ = -1;
  bool first_ = true;
  bool idle_ = false;
  std::string tail_;
  size_t scanned_ = 0;
  Clock::time_point begin_;
  Clock::time_point last_;
};

Totals run_load(int port, const Options& options, double* rss_early, double* rss_end) {
  const Json body = {{"prompt", std::string(static_cast<size_t>(options.prompt_bytes), 'x')},
                     {"max_tokens", options.tokens},
                     {"ignore_eos", true},
                     {"stream", true},
                     {"stream_options", {{"include_usage", true}}}};
  const std::string text = dump_json(body);
  const std::string request = "POST /v1/completions HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\ncontent-length: " +
                              std::to_string(text.size()) + "\r\n\r\n" + text;
  Totals totals;
  const int epoll = ::epoll_create1(0);
  std::vector<std::unique_ptr<LoadStream>> streams;
  for (int i = 0; i < options.streams; ++i) {
    streams.push_back(std::make_unique<LoadStream>(port, request, epoll, totals));
  }
  const auto begin = Clock::now();
  std::vector<epoll_event> events(1024);
  while (true) {
    const double now = seconds_since(begin);
    const bool more = now < options.seconds;
    if (*rss_early == 0 && now > std::min(120.0, options.seconds / 2)) *rss_early = resident_mib();
    if (!more && std::all_of(streams.begin(), streams.end(), [](const auto& s) { return s->idle(); })) break;
    const int n = ::epoll_wait(epoll, events.data(), static_cast<int>(events.size()), 1000);
    for (int i = 0; i < n; ++i) static_cast<LoadStream*>(events[static_cast<size_t>(i)].data.ptr)->on_readable(more);
  }
  *rss_end = resident_mib();
  ::close(epoll);
  return totals;
}

Options parse(int argc, char** argv) {
  std::map<std::string, std::string> flags;
  for (int i = 1; i + 1 < argc; i += 2) flags[argv[i]] = argv[i + 1];
  Options o;
  const auto take = [&flags](const char* name, auto* value) {
    if (!flags.contains(name)) return;
    *value = static_cast<std::decay_t<decltype(*value)>>(std::atof(flags[name].c_str()));
  };
  take("--streams", &o.streams);
  take("--tokens", &o.tokens);
  take("--prompt-bytes", &o.prompt_bytes);
  take("--seconds", &o.seconds);
  take("--step-us", &o.step_us);
  take("--io-threads", &o.io_threads);
  if (flags.contains("--tokenizer")) o.tokenizer = flags["--tokenizer"];
  return o;
}

double percentile(std::vector<double> values, double share) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(share * static_cast<double>(values.size() - 1))];
}

}  // namespace

int main(int argc, char** argv) {
  const Options options = parse(argc, argv);
  std::unique_ptr<Tokenizer> tokenizer;
  if (options.tokenizer.empty()) {
    tokenizer = std::make_unique<ByteTokenizer>();
  } else {
    tokenizer = Tokenizer::from_folder(options.tokenizer);
  }
  const auto vocab = static_cast<int32_t>(tokenizer->vocab_size());
  // Any tokens do; those of text that does not repeat are the costliest to turn into text.
  RuleExecutor executor([vocab, bytes = options.tokenizer.empty()](const std::vector<int32_t>& prompt, int64_t index) {
    const auto n = static_cast<uint32_t>(prompt.size() * 31 + static_cast<size_t>(index) * 2654435761u);
    return bytes ? static_cast<int32_t>('a' + n % 26) : static_cast<int32_t>(n % static_cast<uint32_t>(vocab));
  });
  executor.step_delay_us = options.step_us;
  EngineConfig engine_config;
  engine_config.scheduler.max_num_seqs = options.streams;
  engine_config.scheduler.max_num_batched_tokens = 8192;
  engine_config.scheduler.max_model_len = 16384;
  ModelInfo model;
  model.served_names = {"bench"};
  model.max_model_len = 16384;
  model.vocab_size = vocab;
  ServerConfig config;
  config.http.port = 0;
  config.http.io_threads = options.io_threads;
  Metrics metrics(engine_config, "bench", config.metrics_prefixes);
  AsyncEngine engine(engine_config, {}, executor, metrics);
  const ChatTemplate chat_template(ChatTemplate::chatml());
  Server server(config, model, engine, metrics, *tokenizer, chat_template);
  std::thread serving([&server] { server.run(); });

  double rss_early = 0;
  double rss_end = 0;
  const auto begin = Clock::now();
  const Totals totals = run_load(server.port(), options, &rss_early, &rss_end);
  const double seconds = seconds_since(begin);
  server.drain(Deadline::after(std::chrono::seconds(5)));
  serving.join();
  std::printf("{\"bench\": \"frontend\", \"streams\": %d, \"tokens_per_request\": %d, \"step_us\": %d, \"io_threads\": %d, "
              "\"seconds\": %.2f, \"requests\": %lld, \"tokens_per_s\": %.0f, \"events_per_s\": %.0f, "
              "\"ttft_p50_ms\": %.1f, \"ttft_p99_ms\": %.1f, \"max_gap_ms\": %.1f, \"rss_early_mib\": %.1f, "
              "\"rss_end_mib\": %.1f}\n",
              options.streams, options.tokens, options.step_us, options.io_threads, seconds,
              static_cast<long long>(totals.requests), static_cast<double>(totals.tokens) / seconds,
              static_cast<double>(totals.events) / seconds, 1e3 * percentile(totals.first, 0.5),
              1e3 * percentile(totals.first, 0.99), 1e3 * totals.max_gap, rss_early, rss_end);
  return totals.failed == 0 ? 0 : 1;
}
