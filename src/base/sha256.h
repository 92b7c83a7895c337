// SHA-256, for hashes that outsiders may try to collide (prefix-cache blocks, model files).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace tutti {

using Sha256Digest = std::array<uint8_t, 32>;

Sha256Digest sha256(std::span<const std::byte> data);
std::string to_hex(std::span<const uint8_t> bytes);

}  // namespace tutti
