#include "comm/tcp_handshake.h"

#include <fmt/format.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include <cstddef>
#include <string_view>

#include "base/error.h"

namespace tutti {
namespace {

Tag tag_of(std::string_view role, const std::string& secret, const TcpHello& hello,
           const Nonce& challenge) {
  std::string text(role);
  text.append(reinterpret_cast<const char*>(&hello), offsetof(TcpHello, tag));
  text.append(reinterpret_cast<const char*>(challenge.data()), challenge.size());
  Tag tag{};
  unsigned length = 0;
  if (HMAC(EVP_sha256(), secret.data(), static_cast<int>(secret.size()),
           reinterpret_cast<const unsigned char*>(text.data()), text.size(), tag.data(),
           &length) == nullptr ||
      length != tag.size()) {
    throw CommError("HMAC-SHA256 failed in OpenSSL");
  }
  return tag;
}

}  // namespace

Nonce random_nonce() {
  Nonce nonce;
  if (RAND_bytes(nonce.data(), static_cast<int>(nonce.size())) != 1)
    throw CommError("no random bytes from OpenSSL");
  return nonce;
}

Tag connector_tag(const std::string& secret, const TcpHello& hello, const Nonce& challenge) {
  return tag_of("connector", secret, hello, challenge);
}

Tag acceptor_tag(const std::string& secret, const TcpHello& hello, const Nonce& challenge) {
  return tag_of("acceptor", secret, hello, challenge);
}

bool equal_tags(const Tag& a, const Tag& b) {
  return CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

TcpVerdict judge(const TcpHello& hello, const TcpHello& expected, const std::string& secret,
                 const Nonce& challenge) {
  if (hello.magic != kTcpMagic || hello.version != kTcpVersion) return TcpVerdict::kVersion;
  // Before anything is said about the group: only those who know the secret learn more.
  if (!equal_tags(hello.tag, connector_tag(secret, hello, challenge))) return TcpVerdict::kSecret;
  if (hello.group != expected.group) return TcpVerdict::kGroup;
  if (hello.epoch != expected.epoch) return TcpVerdict::kEpoch;
  const bool rank_fits =
      hello.to == expected.to && hello.from > hello.to && hello.from < expected.size;
  return rank_fits && hello.size == expected.size ? TcpVerdict::kWelcome : TcpVerdict::kRank;
}

std::string verdict_text(TcpVerdict verdict, const TcpHello& hello, uint64_t epoch,
                         uint32_t version) {
  switch (verdict) {
    case TcpVerdict::kWelcome:
      return "welcome";
    case TcpVerdict::kVersion:
      return fmt::format("protocol version {} there, {} here: install the same build on all nodes",
                         version, kTcpVersion);
    case TcpVerdict::kGroup:
      return "it belongs to another group of ranks";
    case TcpVerdict::kEpoch:
      return fmt::format("epoch {} is over, the group is at epoch {}", hello.epoch, epoch);
    case TcpVerdict::kRank:
      return fmt::format("it does not expect rank {} of {} on stream {}", hello.from, hello.size,
                         hello.stream);
    case TcpVerdict::kSecret:
      return "the cluster's secret differs";
  }
  return "an unknown verdict";
}

}  // namespace tutti
