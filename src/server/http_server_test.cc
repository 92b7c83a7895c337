// Sockets against clients that behave and clients that do not.
#include "server/http_server.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "base/error.h"
#include "server/testing/test_client.h"

namespace tutti {
namespace {

using namespace std::chrono_literals;

class HttpServerTest : public ::testing::Test {
 protected:
  HttpServerTest() {
    config.port = 0;
    config.head_timeout = 400ms;
    config.body_timeout = 400ms;
    config.idle_timeout = 600ms;
    config.write_timeout = 1500ms;
    config.keep_alive_comment = 200ms;
    config.max_head_bytes = 4096;
    config.max_body_bytes = 4 * 1024 * 1024;
  }
  ~HttpServerTest() override { stop(); }

  void start(HttpHandler handler) {
    server = std::make_unique<HttpServer>(config, std::move(handler));
    thread = std::thread([this] { server->run(); });
  }
  // GET /echo gives the body back; so does POST.
  void start_echo() {
    start([](const std::shared_ptr<HttpExchange>& e) {
      e->respond({.content_type = "text/plain", .body = e->request().path + "|" + e->request().body});
    });
  }
  void stop() {
    if (!thread.joinable()) return;
    server->stop(Deadline::after(100ms));
    thread.join();
  }

  HttpConfig config;
  std::unique_ptr<HttpServer> server;
  std::thread thread;
};

TEST_F(HttpServerTest, KeepsTheConnectionAndAnswersPipelinedRequestsInOrder) {
  start_echo();
  TestClient client(server->port());
  EXPECT_EQ(client.get("/a").body, "/a|");
  client.send("GET /b HTTP/1.1\r\n\r\nGET /c HTTP/1.1\r\n\r\nGET /d HTTP/1.1\r\nconnection: close\r\n\r\n");
  EXPECT_EQ(client.read_response().body, "/b|");
  EXPECT_EQ(client.read_response().body, "/c|");
  const ClientResponse last = client.read_response();
  EXPECT_EQ(last.body, "/d|");
  EXPECT_EQ(last.headers.at("connection"), "close");
  EXPECT_TRUE(client.closed_by_server());
}

// The next request comes when the answer is out, but before the loop knows that it is.
TEST_F(HttpServerTest, ARequestThatCrossesTheEndOfAnAnswerIsNotLost) {
  std::atomic<bool> sent{false};
  start([&](const std::shared_ptr<HttpExchange>& e) {
    if (e->request().path == "/second") return e->respond({.body = "2"});
    e->loop().post([&, e] {
      e->respond({.body = "1"});
      e->loop().post([&] {  // after the write, before its completion
        for (const Deadline deadline = Deadline::after(5s); !sent && !deadline.passed();) std::this_thread::sleep_for(1ms);
      });
    });
  });
  TestClient client(server->port());
  for (int i = 0; i < 20; ++i) {
    sent = false;
    client.send("GET /first HTTP/1.1\r\n\r\n");
    EXPECT_EQ(client.read_response().body, "1");
    client.send("GET /second HTTP/1.1\r\n\r\n");
    sent = true;
    ASSERT_EQ(client.read_response().body, "2") << i;
  }
}

TEST_F(HttpServerTest, ClientsAreKnownByTheirAddress) {
  start([](const std::shared_ptr<HttpExchange>& e) { e->respond({.body = e->request().peer}); });
  TestClient client(server->port());
  EXPECT_EQ(client.get("/").body.rfind("127.0.0.1:", 0), 0u);
}

TEST_F(HttpServerTest, OldClientsAndHead) {
  start_echo();
  TestClient old(server->port());
  old.send("GET /x HTTP/1.0\r\n\r\n");
  EXPECT_EQ(old.read_response().body, "/x|");
  EXPECT_TRUE(old.closed_by_server());
  TestClient head(server->port());
  head.send("HEAD /x HTTP/1.1\r\n\r\nGET /y HTTP/1.1\r\n\r\n");
  const ClientResponse response = head.read_response(/*head_only=*/true);
  EXPECT_EQ(response.headers.at("content-length"), "3");
  EXPECT_EQ(head.read_response().body, "/y|");
}

TEST_F(HttpServerTest, LargeBodiesAndContinue) {
  start_echo();
  TestClient client(server->port());
  const std::string body(3 * 1024 * 1024, 'x');
  client.send(TestClient::post_text("/p", body));
  EXPECT_EQ(client.read_response().body.size(), body.size() + 3);
  client.send("POST /p HTTP/1.1\r\nexpect: 100-continue\r\ncontent-length: 2\r\n\r\n");
  EXPECT_EQ(client.read_response().status, 100);
  client.send("ok");
  EXPECT_EQ(client.read_response().body, "/p|ok");
}

TEST_F(HttpServerTest, RefusesWhatIsTooLargeOrNotHttp) {
  start_echo();
  const std::vector<std::pair<std::string, int>> cases = {
      {TestClient::post_text("/p", std::string(5 * 1024 * 1024, 'x')), 413},
      {"GET / HTTP/1.1\r\n" + std::string(100'000, 'a'), 431},
      {"GET / HTTP/1.1\r\nx: " + std::string(10'000, 'a') + "\r\n\r\n", 431},
      {"\x16\x03\x01\x02garbage\r\n\r\n", 400},
      {std::string(5000, '\0'), 400},
      {"GET / HTTP/3.0\r\n\r\n", 505}};
  for (const auto& [bytes, status] : cases) {
    TestClient client(server->port());
    client.send(bytes);
    const ClientResponse response = client.read_response();
    EXPECT_EQ(response.status, status) << bytes.substr(0, 30);
    EXPECT_EQ(response.json()["error"]["code"], status);
    EXPECT_TRUE(client.closed_by_server());
  }
  EXPECT_EQ(TestClient(server->port()).get("/still").status, 200);
}

TEST_F(HttpServerTest, SlowClientsAreCutOff) {
  start_echo();
  TestClient trickle(server->port());
  trickle.send("GET / HT");
  EXPECT_EQ(trickle.read_response().status, 408);
  EXPECT_TRUE(trickle.closed_by_server());

  // A byte now and then does not help.
  TestClient body(server->port());
  body.send("POST / HTTP/1.1\r\ncontent-length: 1000\r\n\r\n");
  std::atomic<bool> done{false};
  std::thread sender([&] {
    while (!done) {
      body.send("x");
      std::this_thread::sleep_for(50ms);
    }
  });
  EXPECT_EQ(body.read_response().status, 408);
  done = true;
  sender.join();

  TestClient silent(server->port());
  EXPECT_TRUE(silent.closed_by_server());
  TestClient idle(server->port());
  EXPECT_EQ(idle.get("/").status, 200);
  EXPECT_TRUE(idle.closed_by_server());
}

TEST_F(HttpServerTest, LargeBodiesThatNeverEndDoNotFillTheMemory) {
  config.body_timeout = 10s;
  config.max_arriving_bytes = 1024 * 1024;
  start_echo();
  const std::string head = "POST /p HTTP/1.1\r\ncontent-length: 2000000\r\n\r\n";
  auto hoarder = std::make_unique<TestClient>(server->port());
  hoarder->send(head + std::string(900'000, 'x'));
  const auto large = TestClient::post_text("/p", std::string(500'000, 'x'));
  const auto status = [&](const std::string& request) {
    TestClient client(server->port());
    client.send(request);
    return client.read_response().status;
  };
  // Until the first body has arrived: whoever comes last is refused, and that must not be the first.
  Deadline deadline = Deadline::after(20s);
  while (server->arriving_bytes() < 800'000 && !deadline.passed()) std::this_thread::sleep_for(1ms);
  EXPECT_EQ(status(large), 503);
  EXPECT_EQ(status(TestClient::post_text("/p", std::string(50'000, 'x'))), 200);
  hoarder.reset();
  deadline = Deadline::after(20s);
  while (status(large) != 200 && !deadline.passed()) std::this_thread::sleep_for(5ms);
  EXPECT_EQ(status(large), 200);
}

TEST_F(HttpServerTest, AThousandHeadersNeverFinishing) {
  start_echo();
  std::vector<std::unique_ptr<TestClient>> clients;
  for (int i = 0; i < 100; ++i) {
    clients.push_back(std::make_unique<TestClient>(server->port()));
    clients.back()->send("GET / HTTP/1.1\r\nx-a: 1\r\n");
  }
  EXPECT_EQ(TestClient(server->port()).get("/alive").status, 200);
  for (auto& client : clients) EXPECT_EQ(client->read_response().status, 408);
}

TEST_F(HttpServerTest, StreamsWithKeepAliveComments) {
  start([](const std::shared_ptr<HttpExchange>& e) {
    e->start_stream();
    e->write("data: 1\n\n");
    e->loop().post_after(600ms, [e] {
      e->write("data: 2\n\n");
      e->end();
    });
  });
  TestClient client(server->port());
  client.send("GET / HTTP/1.1\r\n\r\n");
  const ClientResponse response = client.read_response();
  EXPECT_TRUE(response.complete);
  EXPECT_EQ(response.headers.at("content-type"), "text/event-stream; charset=utf-8");
  EXPECT_NE(response.body.find(": keep-alive\n\n"), std::string::npos);
  EXPECT_EQ(response.events(), (std::vector<std::string>{"1", "2"}));
  TestClient old(server->port());
  old.send("GET / HTTP/1.0\r\n\r\n");
  EXPECT_EQ(old.read_response().events(), (std::vector<std::string>{"1", "2"}));
}

TEST_F(HttpServerTest, AHalfClosedClientStillGetsItsStream) {
  std::atomic<int> status{0};
  start([&](const std::shared_ptr<HttpExchange>& e) {
    e->on_finish([&](int s) { status = s; });
    e->start_stream();
    e->loop().post_after(200ms, [e] {
      e->write("data: late\n\n");
      e->end();
    });
  });
  TestClient client(server->port());
  client.send("GET / HTTP/1.1\r\n\r\n");
  client.half_close();
  EXPECT_EQ(client.read_response().events(), (std::vector<std::string>{"late"}));
  EXPECT_EQ(status, 200);
}

TEST_F(HttpServerTest, NoticesThatTheClientIsGone) {
  std::atomic<int> gone{0};
  start([&](const std::shared_ptr<HttpExchange>& e) {
    if (e->request().path == "/stream") e->start_stream();
    e->on_disconnect([&gone, e] { ++gone; });
  });
  for (const char* path : {"/plain", "/stream"}) {
    const int before = gone;
    {
      TestClient client(server->port());
      client.send("GET " + std::string(path) + " HTTP/1.1\r\n\r\n");
      std::this_thread::sleep_for(50ms);
    }
    const Deadline deadline = Deadline::after(5s);
    while (gone == before && !deadline.passed()) std::this_thread::sleep_for(5ms);
    EXPECT_EQ(gone, before + 1) << path;
  }
}

TEST_F(HttpServerTest, ASlowReaderHoldsBackTheWriterAndIsCutOff) {
  std::atomic<size_t> written{0};
  std::atomic<bool> gone{false};
  start([&](const std::shared_ptr<HttpExchange>& e) {
    e->start_stream();
    const auto more = [&, e] {
      while (e->writable()) {
        e->write("data: " + std::string(1000, 'x') + "\n\n");
        written += 1000;
      }
    };
    e->on_writable(more);
    e->on_disconnect([&, e] {
      gone = true;
      e->on_writable(nullptr);
    });
    more();
  });
  TestClient client(server->port());
  client.send("GET / HTTP/1.1\r\n\r\n");
  std::this_thread::sleep_for(500ms);
  const size_t stalled = written;
  std::this_thread::sleep_for(300ms);
  EXPECT_EQ(written, stalled);
  EXPECT_LT(stalled, 64u << 20);  // what the kernel takes, and a few KiB
  const Deadline deadline = Deadline::after(8s);
  while (!gone && !deadline.passed()) std::this_thread::sleep_for(5ms);
  EXPECT_TRUE(gone);
}

TEST_F(HttpServerTest, StopLetsAnswersEndAndClosesTheRest) {
  std::shared_ptr<HttpExchange> held;
  std::atomic<bool> asked{false};
  start([&](const std::shared_ptr<HttpExchange>& e) {
    held = e;
    asked = true;
  });
  TestClient idle(server->port());
  TestClient client(server->port());
  client.send("GET / HTTP/1.1\r\n\r\n");
  while (!asked) std::this_thread::sleep_for(1ms);
  server->stop(Deadline::after(5s));
  EXPECT_TRUE(idle.closed_by_server());
  held->loop().post([&] { held->respond({.body = "done"}); });
  EXPECT_EQ(client.read_response().body, "done");
  EXPECT_TRUE(client.closed_by_server());
  thread.join();
  held.reset();
}

TEST_F(HttpServerTest, SeveralLoops) {
  config.io_threads = 3;
  start_echo();
  std::vector<std::thread> clients;
  std::atomic<int> good{0};
  for (int i = 0; i < 8; ++i) {
    clients.emplace_back([&] {
      TestClient client(server->port());
      for (int k = 0; k < 50; ++k)
        good += client.get("/" + std::to_string(k)).body == "/" + std::to_string(k) + "|";
    });
  }
  for (std::thread& t : clients) t.join();
  EXPECT_EQ(good, 400);
}

TEST_F(HttpServerTest, TooManyConnections) {
  config.max_connections = 2;
  start_echo();
  TestClient a(server->port());
  TestClient b(server->port());
  EXPECT_EQ(a.get("/").status, 200);
  EXPECT_EQ(b.get("/").status, 200);
  EXPECT_EQ(TestClient(server->port()).read_response().status, 503);
}

TEST_F(HttpServerTest, ATakenPortNamesItsOwner) {
  start_echo();
  config.port = server->port();
  try {
    HttpServer second(config, [](const std::shared_ptr<HttpExchange>&) {});
    FAIL() << "two servers on one port";
  } catch (const ConfigError& e) {
    const std::string text = e.what();
    EXPECT_NE(text.find("is taken by pid " + std::to_string(getpid())), std::string::npos) << text;
  }
}

TEST_F(HttpServerTest, ALongUnixSocketIsNamed) {
  config.uds = "/tmp/" + std::string(200, 'a');
  try {
    start_echo();
    FAIL() << "a path that no socket can have";
  } catch (const ConfigError& e) {
    EXPECT_NE(std::string(e.what()).find("a socket's path has 107 bytes at most, this one 205"), std::string::npos) << e.what();
  }
}

TEST_F(HttpServerTest, UnixSocket) {
  config.uds = ::testing::TempDir() + "tutti_http_test_" + std::to_string(getpid()) + ".sock";
  for (int run = 0; run < 2; ++run) {
    start_echo();
    EXPECT_EQ(server->address(), "unix:" + config.uds);
    const int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
    sockaddr_un address{.sun_family = AF_UNIX};
    config.uds.copy(address.sun_path, sizeof(address.sun_path) - 1);
    ASSERT_EQ(::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    const std::string request = "GET /u HTTP/1.0\r\n\r\n";
    ASSERT_EQ(::send(fd, request.data(), request.size(), 0), static_cast<ssize_t>(request.size()));
    std::string answer;
    char bytes[512];
    for (ssize_t n; (n = ::recv(fd, bytes, sizeof(bytes), 0)) > 0;)
      answer.append(bytes, static_cast<size_t>(n));
    ::close(fd);
    EXPECT_TRUE(answer.ends_with("/u|")) << answer;
    stop();
  }
  EXPECT_NE(::access(config.uds.c_str(), F_OK), 0);
}

}  // namespace
}  // namespace tutti
