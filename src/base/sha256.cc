#include "base/sha256.h"

#include <openssl/evp.h>

#include "base/check.h"

namespace tutti {

Sha256Digest sha256(std::span<const std::byte> data) {
  // Fetched once: looking the algorithm up costs more than hashing one block of tokens.
  static const EVP_MD* const algorithm = EVP_MD_fetch(nullptr, "SHA256", nullptr);
  Sha256Digest digest;
  unsigned size = 0;
  CHECK_EQ(EVP_Digest(data.data(), data.size(), digest.data(), &size, algorithm, nullptr), 1);
  CHECK_EQ(size, digest.size());
  return digest;
}

std::string to_hex(std::span<const uint8_t> bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  text.reserve(bytes.size() * 2);
  for (uint8_t b : bytes) {
    text += kDigits[b >> 4];
    text += kDigits[b & 15];
  }
  return text;
}

}  // namespace tutti
