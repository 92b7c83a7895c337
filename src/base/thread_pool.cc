#include "base/thread_pool.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "base/check.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace tutti {
namespace {

void relax() {
#if defined(__x86_64__)
  _mm_pause();
#else
  std::this_thread::yield();
#endif
}

constexpr auto kAloneTime = std::chrono::microseconds(50);

void pin_to_core(int core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(core, &set);
  // A container may forbid the core; running unpinned is correct, only slower.
  (void)pthread_setaffinity_np(pthread_self(), sizeof set, &set);
}

}  // namespace

struct ThreadPool::Shared {
  std::atomic<uint64_t> generation{0};  // counts jobs; a change starts the next one
  std::atomic<int> running{0};          // helpers still inside the job
  std::atomic<int> sleepers{0};         // threads that wait for `wake`, or are about to
  std::atomic<bool> stopping{false};
  const std::function<void(int)>* job = nullptr;
  int spin_us = 0;
  std::mutex mutex;
  std::condition_variable wake;
  std::vector<std::thread> threads;

  // Polls `done` for spin_us; false when the time is over. Soon it lets others onto its core between polls: where there are
  // more threads than cores, the one that is waited for may be among them.
  template <typename Done>
  bool spin(Done done) const {
    if (done()) return true;
    const auto begin = std::chrono::steady_clock::now();
    for (auto now = begin; now - begin < std::chrono::microseconds(spin_us); now = std::chrono::steady_clock::now()) {
      for (int i = 0; i < 32; ++i) {
        if (done()) return true;
        relax();
      }
      if (now - begin > kAloneTime) std::this_thread::yield();
    }
    return done();
  }

  // A sleeper announces itself and then looks, the other side changes something and then looks for sleepers: in one order
  // of all (seq_cst), one of them sees the other. So nobody is missed, and nobody awake costs a lock.
  template <typename Done>
  void wait(Done done) {
    if (spin(done)) return;
    std::unique_lock lock(mutex);
    ++sleepers;
    wake.wait(lock, done);
    --sleepers;
  }
  void wake_sleepers() {
    if (sleepers.load() == 0) return;
    { const std::lock_guard lock(mutex); }
    wake.notify_all();
  }

  void helper(int thread) {
    uint64_t seen = 0;
    while (true) {
      wait([&] { return generation.load() != seen; });
      seen = generation.load();
      if (stopping.load(std::memory_order_relaxed)) return;
      (*job)(thread);
      if (--running == 0) wake_sleepers();
    }
  }

  void start() {
    ++generation;
    wake_sleepers();
  }
};

ThreadPool::ThreadPool(int num_threads, int spin_us, int first_core)
    : num_threads_(num_threads), shared_(std::make_unique<Shared>()) {
  CHECK_GE(num_threads, 1);
  shared_->spin_us = spin_us;
  if (first_core >= 0) pin_to_core(first_core);
  for (int t = 1; t < num_threads; ++t) {
    shared_->threads.emplace_back([this, t, first_core] {
      if (first_core >= 0) pin_to_core(first_core + t);
      shared_->helper(t);
    });
  }
}

ThreadPool::~ThreadPool() {
  shared_->stopping = true;
  shared_->start();
  for (auto& thread : shared_->threads) thread.join();
}

void ThreadPool::run(const std::function<void(int)>& job) {
  Shared& s = *shared_;
  if (num_threads_ == 1) {
    job(0);
    return;
  }
  s.job = &job;
  s.running.store(num_threads_ - 1, std::memory_order_relaxed);
  s.start();
  job(0);
  s.wait([&] { return s.running.load() == 0; });
}

void ThreadPool::parallel_for(int64_t count, int64_t grain,
                              const std::function<void(int64_t, int64_t)>& job) {
  if (count <= 0) return;
  grain = std::max<int64_t>(1, grain);
  if (num_threads_ == 1 || count <= grain) {
    job(0, count);
    return;
  }
  std::atomic<int64_t> next{0};
  run([&](int) {
    while (true) {
      const int64_t begin = next.fetch_add(grain, std::memory_order_relaxed);
      if (begin >= count) return;
      job(begin, std::min(count, begin + grain));
    }
  });
}

}  // namespace tutti
