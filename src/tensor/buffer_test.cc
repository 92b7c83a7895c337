#include "tensor/buffer.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

namespace tutti {
namespace {

size_t resident_bytes() {
  std::ifstream file("/proc/self/smaps_rollup");
  for (std::string word; file >> word;) {
    size_t kib = 0;
    if (word == "Rss:" && file >> kib) return kib << 10;
  }
  return 0;
}

constexpr size_t kBytes = (size_t{4} << 20) + (size_t{64} << 10), kCount = 24;

std::vector<std::shared_ptr<Buffer>> written_buffers() {
  std::vector<std::shared_ptr<Buffer>> buffers;
  for (size_t i = 0; i < kCount; ++i) {
    buffers.push_back(Buffer::allocate(kBytes, Device::cpu()));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffers.back()->data()) % 64, 0u);
    std::memset(buffers.back()->data(), static_cast<int>(i + 1), kBytes);
  }
  return buffers;
}

// A huge page for the last few bytes of each of many weights would be memory for nothing.
TEST(Buffer, LargeOnesTakeWhatTheyHold) {
  const size_t before = resident_bytes();
  if (before == 0) GTEST_SKIP() << "no /proc/self/smaps_rollup";
  const auto buffers = written_buffers();
  const size_t taken = resident_bytes() - before;
  EXPECT_GE(taken, kCount * kBytes);
  EXPECT_LE(taken, kCount * kBytes * 11 / 10);
}

TEST(Buffer, LargeOnesGoBack) {
  if (resident_bytes() == 0) GTEST_SKIP() << "no /proc/self/smaps_rollup";
  auto buffers = written_buffers();
  const size_t all = resident_bytes();
  for (size_t i = 0; i < kCount; i += 3) buffers[i].reset(), buffers[i + 1].reset();  // every third stays
  EXPECT_LE(resident_bytes(), all - kCount * 2 / 3 * (size_t{2} << 20));
  for (size_t i = 2; i < kCount; i += 3) {
    const auto* bytes = reinterpret_cast<const unsigned char*>(buffers[i]->data());
    EXPECT_EQ(bytes[0], i + 1);
    EXPECT_EQ(bytes[kBytes - 1], i + 1);
  }
}

}  // namespace
}  // namespace tutti
