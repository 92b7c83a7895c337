#include "server/http_parser.h"

#include <gtest/gtest.h>

namespace tutti {
namespace {

constexpr HttpParser::Limits kSmall{.max_head_bytes = 256, .max_body_bytes = 100};

int status_of(std::string_view bytes) {
  HttpParser parser(kSmall);
  try {
    parser.feed(bytes);
    if (!parser.head_complete()) return 0;
    parser.take();
  } catch (const HttpError& e) {
    return e.status();
  }
  return 200;
}

TEST(HttpParser, ReadsARequestByteByByteAndKeepsTheNext) {
  const std::string first = "POST /a%20b?x=1&deep HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello";
  const std::string second = "GET /next HTTP/1.1\r\n\r\n";
  HttpParser parser(kSmall);
  bool done = false;
  for (const char c : first) {
    EXPECT_FALSE(done);
    done = parser.feed(std::string_view(&c, 1));
  }
  ASSERT_TRUE(done);
  const HttpRequest request = parser.take();
  EXPECT_EQ(request.method, "POST");
  EXPECT_EQ(request.path, "/a b");
  EXPECT_EQ(request.query_param("x"), "1");
  EXPECT_EQ(request.query_param("deep"), "");
  EXPECT_EQ(request.query_param("y"), std::nullopt);
  EXPECT_EQ(*request.header("host"), "h");
  EXPECT_EQ(request.body, "hello");
  EXPECT_TRUE(request.keep_alive);
  EXPECT_FALSE(parser.in_request());
  ASSERT_TRUE(parser.feed(second));
  EXPECT_EQ(parser.take().path, "/next");
}

TEST(HttpParser, PipelinedRequestsComeOneByOne) {
  HttpParser parser(kSmall);
  ASSERT_TRUE(parser.feed("GET /1 HTTP/1.1\r\n\r\nGET /2 HTTP/1.0\r\n\r\n"));
  EXPECT_EQ(parser.take().path, "/1");
  ASSERT_TRUE(parser.feed(""));
  const HttpRequest second = parser.take();
  EXPECT_EQ(second.path, "/2");
  EXPECT_TRUE(second.http_1_0);
  EXPECT_FALSE(second.keep_alive);
}

TEST(HttpParser, ChunkedBody) {
  HttpParser parser(kSmall);
  ASSERT_TRUE(parser.feed(
      "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n"));
  EXPECT_EQ(parser.take().body, "abcde");
}

TEST(HttpParser, LimitsAndGarbage) {
  EXPECT_EQ(status_of("GET / HTTP/1.1\r\nX: " + std::string(300, 'a')), 431);
  EXPECT_EQ(status_of("GET / HTTP/1.1\r\nX: " + std::string(300, 'a') + "\r\n\r\n"), 431);
  EXPECT_EQ(status_of("POST / HTTP/1.1\r\nContent-Length: 101\r\n\r\n"), 413);
  EXPECT_EQ(status_of("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nff\r\n" + std::string(255, 'x')),
            413);
  EXPECT_EQ(status_of("\x16\x03\x01\x02\x00 TLS hello\r\n\r\n"), 400);
  EXPECT_EQ(status_of("GET / HTTP/2.0\r\n\r\n"), 505);
  EXPECT_EQ(status_of("GET /%zz HTTP/1.1\r\n\r\n"), 400);
  EXPECT_EQ(status_of("GET /%00 HTTP/1.1\r\n\r\n"), 400);
  EXPECT_EQ(status_of("GET http://host:80/v1/models HTTP/1.1\r\n\r\n"), 200);
  // Two ways to tell the length: a front end and we could disagree about where the request ends.
  EXPECT_EQ(status_of("POST / HTTP/1.1\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
            400);
  EXPECT_EQ(status_of("POST / HTTP/1.1\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd"), 400);
  EXPECT_EQ(status_of("POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n"), 400);
  EXPECT_EQ(status_of("POST / HTTP/1.1\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"), 501);
}

// Many short lines are as many bytes as one long one, in whatever pieces they come.
TEST(HttpParser, EndlessHeadsTrailersAndChunkLinesAreCutOff) {
  const std::string chunked = "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n";
  for (const std::string& begin : {std::string("GET / HTTP/1.1\r\n"), chunked + "1\r\nx\r\n0\r\n", chunked + "1;x="}) {
    const std::string more = begin.ends_with('=') ? "abcdefg" : "X: 1\r\nY: 22\r\n";
    HttpParser parser(kSmall);
    parser.feed(begin);
    size_t fed = 0;
    try {
      for (; fed < 10000; fed += more.size()) parser.feed(more);
      FAIL() << begin;
    } catch (const HttpError& e) {
      EXPECT_EQ(e.status(), 431) << begin;
      EXPECT_LT(fed, 600u);
    }
  }
  // A head and the beginning of a long body in one piece are within the limit.
  HttpParser parser({.max_head_bytes = 256, .max_body_bytes = 10000});
  EXPECT_FALSE(parser.feed("POST / HTTP/1.1\r\nContent-Length: 5000\r\n\r\n" + std::string(4000, 'x')));
  EXPECT_TRUE(parser.feed(std::string(1000, 'x')));
}

TEST(HttpParser, AsksForTheBodyOnce) {
  HttpParser parser(kSmall);
  EXPECT_FALSE(parser.feed("POST / HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n"));
  EXPECT_TRUE(parser.wants_continue());
  EXPECT_FALSE(parser.wants_continue());
  EXPECT_TRUE(parser.feed("ok"));
}

}  // namespace
}  // namespace tutti
