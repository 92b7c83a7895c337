#include "cpu_limits.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>

#include "tensor/tensor.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace tutti::bench {
namespace {

// Seconds of the fastest of `runs` runs.
double best_of(int runs, const std::function<void()>& work) {
  double best = 1e30;
  for (int i = 0; i < runs; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    work();
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  return best;
}

using Words = uint64_t __attribute__((vector_size(64)));

// `kAhead`: bytes from what is read to what is asked for, 0 leaves that to the processor.
template <int kAhead>
uint64_t xor_all(const std::byte* data, size_t bytes) {
  Words sums[4] = {};
  for (size_t i = 0; i + 256 <= bytes; i += 256) {
    for (int j = 0; j < 4; ++j) {
      Words w;
      std::memcpy(&w, data + i + 64 * j, sizeof w);
      sums[j] ^= w;
      if constexpr (kAhead > 0) __builtin_prefetch(data + i + 64 * j + kAhead);
    }
  }
  const Words all = sums[0] ^ sums[1] ^ sums[2] ^ sums[3];
  uint64_t result = 0;
  for (int i = 0; i < 8; ++i) result ^= all[i];
  return result;
}

// The same from four places at once: a processor may fetch ahead in each of them.
uint64_t xor_four_streams(const std::byte* data, size_t bytes) {
  const size_t part = bytes / 4 / 64 * 64;
  Words sums[4] = {};
  for (size_t i = 0; i + 256 <= part; i += 256) {
    for (int stream = 0; stream < 4; ++stream) {
      for (int j = 0; j < 4; ++j) {
        Words w;
        std::memcpy(&w, data + static_cast<size_t>(stream) * part + i + 64 * j, sizeof w);
        sums[j] ^= w;
      }
    }
  }
  const Words all = sums[0] ^ sums[1] ^ sums[2] ^ sums[3];
  uint64_t result = 0;
  for (int i = 0; i < 8; ++i) result ^= all[i];
  return result;
}

// Runs are short, so that the best of many is one that nobody else on the machine disturbed.
constexpr int64_t kRounds = 100'000;
constexpr int kRuns = 60;
constexpr int kChains = 12;

#if defined(__x86_64__)
__attribute__((target("avx512f"))) float fma_avx512() {
  __m512 acc[kChains];
  for (auto& a : acc) a = _mm512_set1_ps(1e-3f);
  const __m512 x = _mm512_set1_ps(0.999f), y = _mm512_set1_ps(1e-5f);
  for (int64_t i = 0; i < kRounds; ++i) {
    for (auto& a : acc) a = _mm512_fmadd_ps(a, x, y);
  }
  float sum = 0;
  for (const auto& a : acc) sum += _mm512_cvtss_f32(a);
  return sum;
}

__attribute__((target("avx2,fma"))) float fma_avx2() {
  __m256 acc[kChains];
  for (auto& a : acc) a = _mm256_set1_ps(1e-3f);
  const __m256 x = _mm256_set1_ps(0.999f), y = _mm256_set1_ps(1e-5f);
  for (int64_t i = 0; i < kRounds; ++i) {
    for (auto& a : acc) a = _mm256_fmadd_ps(a, x, y);
  }
  float sum = 0;
  for (const auto& a : acc) sum += _mm256_cvtss_f32(a);
  return sum;
}

// As the kernels do where codes are narrow: sums of 16 bits. Every chain has a product of its own, or one would serve all.
__attribute__((target("avx2"))) int dot_avx2() {
  constexpr int kFirst = 2, kSecond = 4;
  __m256i acc[kFirst][kSecond], x[kFirst], y[kSecond];
  for (int i = 0; i < kFirst; ++i) x[i] = _mm256_set1_epi32(0x01020304 + i);
  for (int j = 0; j < kSecond; ++j) y[j] = _mm256_set1_epi32(0x01010101 + j);
  for (auto& row : acc) {
    for (auto& a : row) a = _mm256_set1_epi16(1);
  }
  for (int64_t round = 0; round < kRounds * kChains / (kFirst * kSecond); ++round) {
    for (int i = 0; i < kFirst; ++i) {
      for (int j = 0; j < kSecond; ++j) acc[i][j] = _mm256_add_epi16(acc[i][j], _mm256_maddubs_epi16(x[i], y[j]));
    }
    asm volatile("" : "+x"(x[0]), "+x"(x[1]));  // the rounds must not be folded into one
  }
  int sum = 0;
  for (const auto& row : acc) {
    for (const auto& a : row) sum += _mm256_extract_epi16(a, 0);
  }
  return sum;
}

__attribute__((target("avx512f,avx512vnni"))) int dot_vnni() {
  __m512i acc[kChains];
  for (auto& a : acc) a = _mm512_set1_epi32(1);
  __m512i x = _mm512_set1_epi32(0x01020304);
  const __m512i y = _mm512_set1_epi32(0x01010101);
  for (int64_t i = 0; i < kRounds; ++i) {
    for (auto& a : acc) a = _mm512_dpbusd_epi32(a, x, y);
    asm volatile("" : "+v"(x));  // the rounds must not be folded into one
  }
  int sum = 0;
  for (const auto& a : acc) sum += _mm512_cvtsi512_si32(a);
  return sum;
}
#endif

}  // namespace

double measure_read(ThreadPool& pool) {
  // Windows of a buffer far larger than the caches, one after the other.
  constexpr int64_t kWindow = int64_t{32} << 20, kWindows = 16;
  const Tensor buffer = Tensor::zeros({kWindow * kWindows}, DType::kU8);
  std::atomic<uint64_t> sink{0};
  int64_t window = 0;
  const auto seconds = [&](auto read) {
    return best_of(3 * kWindows, [&] {
      const std::byte* start = buffer.data_as<std::byte>() + window++ % kWindows * kWindow;
      pool.run([&](int thread) {
        const int64_t share = kWindow / pool.size() / 256 * 256;
        sink ^= read(start + share * thread, static_cast<size_t>(share));
      });
    });
  };
  const double best = std::min({seconds(xor_all<0>), seconds(xor_all<1024>), seconds(xor_all<4096>), seconds(xor_four_streams)});
  return static_cast<double>(kWindow) / best / 1e9;
}

double measure_sustained_read(ThreadPool& pool) {
  constexpr int64_t kBytes = int64_t{1} << 30;
  static const Tensor buffer = [] {
    Tensor made = Tensor::empty({kBytes}, DType::kU8);
    std::memset(made.data_as<std::byte>(), 1, kBytes);
    return made;
  }();
  std::atomic<uint64_t> sink{0};
  const auto begin = std::chrono::steady_clock::now();
  for (int pass = 0; pass < 4; ++pass) {
    pool.run([&](int thread) {
      constexpr int64_t kWindow = int64_t{8} << 20;  // streams a quarter of a GiB apart would meet in the same banks of memory
      const int64_t share = kBytes / pool.size() / 256 * 256;
      for (int64_t at = 0; at < share; at += kWindow) {
        sink ^= xor_four_streams(buffer.data_as<std::byte>() + share * thread + at,
                                 static_cast<size_t>(std::min(kWindow, share - at)));
      }
    });
  }
  return 4 * static_cast<double>(kBytes) / std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() / 1e9;
}

CpuLimits measure_limits(ThreadPool& pool) {
  CpuLimits limits;
  limits.read_gb_s = measure_read(pool);
#if defined(__x86_64__)
  std::atomic<int> sink{0};
  const auto on_all = [&](const std::function<double()>& kernel) {
    return best_of(kRuns, [&] { pool.run([&](int) { sink += static_cast<int>(kernel()); }); });
  };
  const double threads = pool.size(), instructions = static_cast<double>(kRounds) * kChains;
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f")) {
    limits.fma_gflop_s = instructions * 32 * threads / on_all([] { return fma_avx512(); }) / 1e9;
  } else if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    limits.fma_gflop_s = instructions * 16 * threads / on_all([] { return fma_avx2(); }) / 1e9;
  }
  if (__builtin_cpu_supports("avx512vnni")) {
    limits.int8_gop_s = instructions * 128 * threads / on_all([] { return dot_vnni(); }) / 1e9;
  } else if (__builtin_cpu_supports("avx2")) {
    limits.int8_gop_s = instructions * 64 * threads / on_all([] { return dot_avx2(); }) / 1e9;
  }
#endif
  return limits;
}

}  // namespace tutti::bench
