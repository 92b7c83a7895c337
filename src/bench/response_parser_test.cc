#include "bench/response_parser.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/error.h"

namespace tutti {
namespace {

// Feeds `bytes` in pieces of `size`; the body.
std::string body_of(ResponseParser& parser, std::string_view bytes, size_t size) {
  std::string body;
  for (size_t i = 0; i < bytes.size(); i += size) {
    parser.feed(bytes.substr(i, size), [&](std::string_view piece) { body.append(piece); });
  }
  return body;
}

TEST(ResponseParser, BodiesOfEveryFramingInPiecesOfAnySize) {
  const std::string chunked =
      "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;x=1\r\nhello\r\n7\r\n, world\r\n0\r\nT: 1\r\n\r\n";
  const std::string counted = "HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\nhello, world";
  for (const std::string& bytes : {chunked, counted}) {
    for (size_t size : {1, 2, 7, 1000}) {
      ResponseParser parser;
      EXPECT_EQ(body_of(parser, bytes, size), "hello, world");
      EXPECT_TRUE(parser.complete());
      EXPECT_EQ(parser.status(), 200);
    }
  }
  ResponseParser until_end;
  EXPECT_EQ(body_of(until_end, "HTTP/1.0 404 Not Found\r\n\r\nnothing", 3), "nothing");
  EXPECT_FALSE(until_end.complete());
  until_end.end();
  EXPECT_TRUE(until_end.complete());
  EXPECT_EQ(until_end.status(), 404);
}

TEST(ResponseParser, CutAnswersAndOtherProtocolsAreErrors) {
  for (const char* bytes : {"", "HTTP/1.1 200 OK\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell",
                            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"}) {
    ResponseParser parser;
    body_of(parser, bytes, 4);
    EXPECT_THROW(parser.end(), IoError) << bytes;
  }
  for (const char* bytes : {"SSH-2.0-OpenSSH\r\n", "HTTP/1.1 200 OK\r\nContent-Length: five\r\n\r\n",
                            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
                            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nabc\r\n"}) {
    ResponseParser parser;
    EXPECT_THROW(body_of(parser, bytes, 100), IoError) << bytes;
  }
  ResponseParser endless;
  EXPECT_THROW(body_of(endless, std::string(1 << 20, 'x'), 4096), IoError);
}

TEST(EventStream, DataLinesWithoutComments) {
  const std::string bytes = ": keep-alive\n\ndata: {\"a\": 1}\n\nevent: x\r\ndata:two\r\n\r\ndata: [DONE]\n\n";
  for (size_t size : {1, 3, 1000}) {
    EventStream events;
    std::vector<std::string> seen;
    for (size_t i = 0; i < bytes.size(); i += size) {
      events.feed(std::string_view(bytes).substr(i, size), [&](std::string_view data) { seen.emplace_back(data); });
    }
    EXPECT_EQ(seen, (std::vector<std::string>{"{\"a\": 1}", "two", "[DONE]"}));
  }
}

TEST(ErrorMessage, TheServersOwnWords) {
  EXPECT_EQ(error_message(400, R"({"error": {"message": "no"}})"), "the server answers 400: no");
  EXPECT_EQ(error_message(502, "<html>"), "the server answers 502: <html>");
}

}  // namespace
}  // namespace tutti
