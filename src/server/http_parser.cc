#include "server/http_parser.h"

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <cctype>
#include <optional>

namespace tutti {
namespace {

namespace beast = boost::beast;
namespace beast_http = boost::beast::http;
using Parser = beast_http::request_parser<beast_http::string_body>;

[[noreturn]] void fail(const boost::system::error_code& ec, const HttpParser::Limits& limits) {
  using beast_http::error;
  if (ec == error::header_limit) {
    throw HttpError(431,
                    "the request's head is larger than " + std::to_string(limits.max_head_bytes) + " bytes");
  }
  if (ec == error::body_limit || ec == error::buffer_overflow) {
    throw HttpError(413,
                    "the request's body is larger than " + std::to_string(limits.max_body_bytes) + " bytes");
  }
  if (ec == error::bad_version) throw HttpError(505, "only HTTP/1.0 and HTTP/1.1 are spoken here");
  throw HttpError(400, "not a valid HTTP request: " + ec.message());
}

std::string lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(), [](unsigned char c) { return std::tolower(c); });
  return out;
}

// Origin form "/path?query"; proxies also send "http://host/path?query".
void split_target(std::string_view target, HttpRequest* request) {
  if (const size_t scheme = target.find("://");
      !target.starts_with('/') && scheme != std::string_view::npos) {
    const size_t slash = target.find('/', scheme + 3);
    target = slash == std::string_view::npos ? "/" : target.substr(slash);
  }
  target = target.substr(0, target.find('#'));
  const size_t question = target.find('?');
  const std::optional<std::string> path = percent_decode(target.substr(0, question));
  if (!path) throw HttpError(400, "the request's path is not valid percent-encoding");
  request->path = *path;
  if (question != std::string_view::npos) request->query = std::string(target.substr(question + 1));
}

}  // namespace

struct HttpParser::State {
  std::string buffer;            // received, not yet parsed
  std::optional<Parser> parser;  // of the request that is being read
  bool continue_answered = false;
  // Beast's limit holds for what one call is given, not for a head of many lines that come in pieces.
  size_t head_bytes = 0;

  void reset(const Limits& limits) {
    head_bytes = 0;
    parser.emplace();
    parser->header_limit(limits.max_head_bytes);
    parser->body_limit(limits.max_body_bytes);
    parser->eager(true);
    continue_answered = false;
  }
};

HttpParser::HttpParser(const Limits& limits) : limits_(limits), state_(std::make_unique<State>()) {
  state_->reset(limits_);
}
HttpParser::~HttpParser() = default;

bool HttpParser::feed(std::string_view bytes) {
  State& s = *state_;
  s.buffer.append(bytes);
  size_t used = 0;
  while (!s.parser->is_done() && used < s.buffer.size()) {
    boost::system::error_code ec;
    const size_t n = s.parser->put(boost::asio::buffer(s.buffer.data() + used, s.buffer.size() - used), ec);
    used += n;
    if (!s.parser->is_header_done()) s.head_bytes += n;
    if (ec == beast_http::error::need_more) break;
    if (ec) fail(ec, limits_);
    if (n == 0) break;
  }
  s.buffer.erase(0, used);
  if (s.parser->is_done()) return true;
  // What is left in the buffer is a line that has not ended, of the head or of "chunked", or trailers.
  if (s.head_bytes + s.buffer.size() > limits_.max_head_bytes) fail(beast_http::error::header_limit, limits_);
  return false;
}

HttpRequest HttpParser::take() {
  auto message = state_->parser->release();
  // Beast undoes "chunked" alone; a compressed body would reach us as it is.
  if (const auto encoding = message.find(beast_http::field::transfer_encoding);
      encoding != message.end() && !beast::iequals(encoding->value(), "chunked")) {
    throw HttpError(501, "of the transfer encodings only `chunked` is understood here");
  }
  HttpRequest request;
  request.keep_alive = message.keep_alive();
  request.http_1_0 = message.version() < 11;
  request.method = std::string(message.method_string());
  for (const auto& field : message) {
    request.headers.emplace_back(lower({field.name_string().data(), field.name_string().size()}),
                                 std::string(field.value()));
  }
  split_target({message.target().data(), message.target().size()}, &request);
  request.body = std::move(message.body());
  state_->reset(limits_);
  return request;
}

bool HttpParser::in_request() const { return !state_->buffer.empty() || state_->parser->got_some(); }

bool HttpParser::head_complete() const { return state_->parser->is_header_done(); }

bool HttpParser::wants_continue() {
  State& s = *state_;
  if (!s.parser->is_header_done() || s.parser->is_done() || s.continue_answered) return false;
  s.continue_answered = true;
  const auto expect = s.parser->get().find(beast_http::field::expect);
  return expect != s.parser->get().end() && beast::iequals(expect->value(), "100-continue");
}

}  // namespace tutti
