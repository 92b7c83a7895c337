#include "tensor/buffer.h"

#include <gtest/gtest.h>

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

// A huge page for the last few bytes of each of many weights would be memory for nothing.
TEST(Buffer, LargeOnesTakeWhatTheyHold) {
  constexpr size_t kBytes = (size_t{4} << 20) + (size_t{64} << 10), kCount = 24;
  if (resident_bytes() == 0) GTEST_SKIP() << "no /proc/self/smaps_rollup";
  std::vector<std::shared_ptr<Buffer>> buffers;
  const size_t before = resident_bytes();
  for (size_t i = 0; i < kCount; ++i) {
    buffers.push_back(Buffer::allocate(kBytes, Device::cpu()));
    std::memset(buffers.back()->data(), 1, kBytes);
  }
  const size_t taken = resident_bytes() - before;
  EXPECT_GE(taken, kCount * kBytes);
  EXPECT_LE(taken, kCount * kBytes * 11 / 10);
}

}  // namespace
}  // namespace tutti
