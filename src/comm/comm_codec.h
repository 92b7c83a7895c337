// Smaller numbers for slow links: float32 in blocks of 64 with one scale, as int8 or as fp8 (E4M3).
// A sum of encoded parts loses accuracy (comm_codec_test measures how much), so it is off unless
// asked for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace tutti {

enum class CommDType : uint8_t { kFull, kI8, kF8 };

// "auto" (as the tensors are), "int8", "fp8"; nothing for another name.
std::optional<CommDType> comm_dtype_from_name(std::string_view name);

constexpr int64_t kCodecBlock = 64;

// What goes over the wire for 64 numbers; each is scale * code. A block that holds an infinity or a
// NaN decodes to NaN.
struct CodecBlock {
  float scale;
  uint8_t codes[kCodecBlock];
};
static_assert(sizeof(CodecBlock) == 68);

inline int64_t codec_blocks(int64_t count) { return (count + kCodecBlock - 1) / kCodecBlock; }
inline size_t codec_bytes(int64_t count) {
  return static_cast<size_t>(codec_blocks(count)) * sizeof(CodecBlock);
}

// Both take whole messages: the last block may be partly filled. `type` is kI8 or kF8.
void encode(CodecBlock* out, const float* in, int64_t count, CommDType type);
// out[i] = parts[0][i] + parts[1][i] + ..., decoded, in rank order.
void sum_encoded(float* out, const CodecBlock* const* parts, int num_parts, int64_t count,
                 CommDType type);

}  // namespace tutti
