// The opening messages of a connection between two ranks; see tcp_mesh.h for their order. Plain
// little-endian structs.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <string>

namespace tutti {

static_assert(std::endian::native == std::endian::little);

constexpr uint32_t kTcpMagic = 0x74746370;
constexpr uint32_t kTcpVersion = 1;
using Nonce = std::array<unsigned char, 32>;
using Tag = std::array<unsigned char, 32>;

struct TcpChallenge {
  uint32_t magic = kTcpMagic;
  uint32_t version = kTcpVersion;
  Nonce nonce{};
};

struct TcpHello {
  uint32_t magic = kTcpMagic;
  uint32_t version = kTcpVersion;
  uint64_t epoch = 0;
  int32_t from = 0;              // rank of the connector
  int32_t to = 0;                // rank of the acceptor
  int32_t size = 0;              // ranks in the group
  int32_t stream = 0;            // kControlStream or the number of a data stream
  std::array<char, 64> group{};  // its name, cut to fit
  Nonce nonce{};
  Tag tag{};  // last: of everything before and the challenge's nonce
};
static_assert(sizeof(TcpHello) == 160);

constexpr int32_t kControlStream = -1;

enum class TcpVerdict : uint32_t { kWelcome, kVersion, kGroup, kEpoch, kRank, kSecret };

struct TcpWelcome {
  TcpVerdict verdict = TcpVerdict::kWelcome;
  uint32_t version = kTcpVersion;
  uint64_t epoch = 0;  // the acceptor's
  Tag tag{};           // of the Hello and both nonces; only with kWelcome
};

Nonce random_nonce();
// What the connector (hello.tag) and the acceptor (welcome.tag) prove that they know the secret
// with.
Tag connector_tag(const std::string& secret, const TcpHello& hello, const Nonce& challenge);
Tag acceptor_tag(const std::string& secret, const TcpHello& hello, const Nonce& challenge);
bool equal_tags(const Tag& a, const Tag& b);  // in constant time

// Judges a Hello. `expected` holds what the acceptor knows: epoch, to, size, group.
TcpVerdict judge(const TcpHello& hello, const TcpHello& expected, const std::string& secret,
                 const Nonce& challenge);
// Why, for people: "epoch 3 is over, the group is at epoch 4".
std::string verdict_text(TcpVerdict verdict, const TcpHello& hello, uint64_t epoch,
                         uint32_t version);

}  // namespace tutti
