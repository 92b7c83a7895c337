#include "text/byte_alphabet.h"

#include <array>

#include "text/unicode.h"

namespace tutti {
namespace {

// Printable Latin-1 bytes stand for themselves, the others for U+0100, U+0101, ... in order.
struct Alphabet {
  std::array<char32_t, 256> of_byte{};
  std::array<int16_t, 512> to_byte{};

  static const Alphabet& get() {
    static const Alphabet alphabet;
    return alphabet;
  }

 private:
  Alphabet() {
    to_byte.fill(-1);
    char32_t next = 256;
    for (char32_t b = 0; b < 256; ++b) {
      const bool printable = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
      of_byte[b] = printable ? b : next++;
      to_byte[of_byte[b]] = static_cast<int16_t>(b);
    }
  }
};

}  // namespace

std::optional<std::string> bytes_from_alphabet(std::string_view spelled) {
  const Alphabet& alphabet = Alphabet::get();
  std::string out;
  out.reserve(spelled.size());
  for (size_t pos = 0; pos < spelled.size();) {
    size_t length;
    if (classify_utf8(spelled, pos, length) != Utf8Kind::kCharacter) return std::nullopt;
    const char32_t cp = decode_utf8(spelled, pos, length);
    if (cp >= alphabet.to_byte.size() || alphabet.to_byte[cp] < 0) return std::nullopt;
    out.push_back(static_cast<char>(alphabet.to_byte[cp]));
    pos += length;
  }
  return out;
}

std::string alphabet_from_bytes(std::string_view bytes) {
  std::string out;
  for (const char c : bytes) append_utf8(out, Alphabet::get().of_byte[static_cast<uint8_t>(c)]);
  return out;
}

}  // namespace tutti
