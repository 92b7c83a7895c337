// TLS: a certificate made for the test, and an OpenSSL client.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>
#include <thread>

#include "base/error.h"
#include "server/http_server.h"

namespace tutti {
namespace {

using namespace std::chrono_literals;

template <typename T, void (*Free)(T*)>
struct Freed {
  void operator()(T* p) const { Free(p); }
};
using Key = std::unique_ptr<EVP_PKEY, Freed<EVP_PKEY, EVP_PKEY_free>>;
using Certificate = std::unique_ptr<X509, Freed<X509, X509_free>>;

// A self-signed certificate for localhost, and its key, in one file.
void write_certificate(const std::string& path) {
  const Key key(EVP_EC_gen("P-256"));
  const Certificate certificate(X509_new());
  X509* x = certificate.get();
  ASN1_INTEGER_set(X509_get_serialNumber(x), 1);
  X509_gmtime_adj(X509_getm_notBefore(x), -3600);
  X509_gmtime_adj(X509_getm_notAfter(x), 3600);
  X509_set_pubkey(x, key.get());
  X509_NAME* name = X509_get_subject_name(x);
  X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, reinterpret_cast<const unsigned char*>("localhost"),
                             -1, -1, 0);
  X509_set_issuer_name(x, name);
  ASSERT_GT(X509_sign(x, key.get(), EVP_sha256()), 0);
  FILE* file = std::fopen(path.c_str(), "w");
  ASSERT_NE(file, nullptr);
  PEM_write_X509(file, x);
  PEM_write_PrivateKey(file, key.get(), nullptr, nullptr, 0, nullptr, nullptr);
  std::fclose(file);
}

class TlsClient {
 public:
  // `certificate`: a file with the client's and its key. `session`: of an earlier connection.
  explicit TlsClient(int port, const std::string& certificate = "", SSL_SESSION* session = nullptr)
      : context_(SSL_CTX_new(TLS_client_method())) {
    if (!certificate.empty()) {
      SSL_CTX_use_certificate_file(context_.get(), certificate.c_str(), SSL_FILETYPE_PEM);
      SSL_CTX_use_PrivateKey_file(context_.get(), certificate.c_str(), SSL_FILETYPE_PEM);
    }
    ssl_.reset(SSL_new(context_.get()));
    if (session != nullptr) SSL_set_session(ssl_.get(), session);
    fd_ = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    timeval limit{.tv_sec = 10};
    ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    connected_ = ::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
    SSL_set_fd(ssl_.get(), fd_);
    connected_ = connected_ && SSL_connect(ssl_.get()) == 1;
  }
  ~TlsClient() { ::close(fd_); }
  bool connected() const { return connected_; }
  bool resumed() const { return SSL_session_reused(ssl_.get()) == 1; }
  SSL_SESSION* session() const { return SSL_get0_session(ssl_.get()); }

  // Everything until the server's orderly end; "cut off" when it did not say goodbye.
  std::string exchange(const std::string& request) {
    if (SSL_write(ssl_.get(), request.data(), static_cast<int>(request.size())) <= 0) return "not sent";
    std::string answer;
    char bytes[4096];
    int n = 0;
    while ((n = SSL_read(ssl_.get(), bytes, sizeof(bytes))) > 0) answer.append(bytes, static_cast<size_t>(n));
    return SSL_get_error(ssl_.get(), n) == SSL_ERROR_ZERO_RETURN ? answer : "cut off";
  }

 private:
  std::unique_ptr<SSL_CTX, Freed<SSL_CTX, SSL_CTX_free>> context_;
  std::unique_ptr<SSL, Freed<SSL, SSL_free>> ssl_;
  int fd_ = -1;
  bool connected_ = false;
};

class HttpTls : public ::testing::Test {
 protected:
  HttpTls() {
    config.port = 0;
    config.head_timeout = 500ms;
    config.tls.cert_file = ::testing::TempDir() + "tutti_tls_test_" + std::to_string(getpid()) + ".pem";
    write_certificate(config.tls.cert_file);
  }
  ~HttpTls() override {
    if (thread.joinable()) {
      server->stop(Deadline::after(100ms));
      thread.join();
    }
    ::unlink(config.tls.cert_file.c_str());
  }
  void start() {
    server = std::make_unique<HttpServer>(config, [](const std::shared_ptr<HttpExchange>& e) {
      if (e->request().path != "/stream") {
        e->respond({.body = e->request().path});
        return;
      }
      e->start_stream();
      e->write("data: 1\n\n");
      e->loop().post_after(50ms, [e] {
        e->write("data: 2\n\n");
        e->end();
      });
    });
    thread = std::thread([this] { server->run(); });
  }

  HttpConfig config;
  std::unique_ptr<HttpServer> server;
  std::thread thread;
};

TEST_F(HttpTls, AnswersAndStreams) {
  start();
  EXPECT_TRUE(server->address().starts_with("https://"));
  TlsClient client(server->port());
  ASSERT_TRUE(client.connected());
  const std::string answers = client.exchange(
      "GET /one HTTP/1.1\r\n\r\nGET /stream HTTP/1.1\r\n\r\nGET /two HTTP/1.1\r\nconnection: close\r\n\r\n");
  EXPECT_NE(answers.find("/one"), std::string::npos) << answers;
  EXPECT_NE(answers.find("data: 2"), std::string::npos) << answers;
  EXPECT_TRUE(answers.ends_with("/two")) << answers;
}

TEST_F(HttpTls, PlainTextAndSilenceAreCutOff) {
  start();
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(server->port()));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  timeval limit{.tv_sec = 10};
  ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
  ASSERT_EQ(::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  char byte = 0;
  EXPECT_EQ(::recv(fd, &byte, 1, 0), 0);  // the handshake has the deadline of a request's head
  ::close(fd);
  EXPECT_TRUE(TlsClient(server->port()).connected());
}

TEST_F(HttpTls, ClientCertificatesMayBeRequired) {
  config.tls.ca_certs = config.tls.cert_file;
  config.tls.cert_reqs = 2;
  start();
  TlsClient client(server->port());
  EXPECT_NE(client.exchange("GET / HTTP/1.1\r\nconnection: close\r\n\r\n").substr(0, 8), "HTTP/1.1");
}

TEST_F(HttpTls, AClientWithACertificateMayComeBack) {
  config.tls.ca_certs = config.tls.cert_file;
  config.tls.cert_reqs = 2;
  start();
  const std::string request = "GET /x HTTP/1.1\r\nconnection: close\r\n\r\n";
  TlsClient first(server->port(), config.tls.cert_file);
  EXPECT_TRUE(first.exchange(request).ends_with("/x"));
  TlsClient second(server->port(), config.tls.cert_file, first.session());
  EXPECT_TRUE(second.exchange(request).ends_with("/x"));
  EXPECT_TRUE(second.resumed());
}

TEST_F(HttpTls, BadFilesAreNamed) {
  config.tls.cert_file = "/nonexistent.pem";
  try {
    HttpServer server(config, [](const std::shared_ptr<HttpExchange>&) {});
    FAIL();
  } catch (const ConfigError& e) {
    EXPECT_NE(std::string(e.what()).find("--ssl-certfile /nonexistent.pem"), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace tutti
