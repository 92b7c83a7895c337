// For tests: runs one function on every rank of a group, each rank a thread of this process.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "comm/comm_factory.h"
#include "comm/store.h"

namespace tutti {

// What each rank's function threw: its message, or nothing.
using RankErrors = std::vector<std::string>;

// `common` holds everything but the rank and the size. Ranks have their communicator until all have
// returned.
inline RankErrors run_rank_threads(int size, const CommOptions& common,
                                   const std::function<void(Communicator&)>& body) {
  InMemoryStore store;
  RankErrors errors(static_cast<size_t>(size));
  std::vector<std::unique_ptr<Communicator>> communicators(static_cast<size_t>(size));
  std::vector<std::thread> threads;
  for (int r = 0; r < size; ++r) {
    threads.emplace_back([&, r] {
      const auto index = static_cast<size_t>(r);
      try {
        CommOptions options = common;
        options.rank = r;
        options.size = size;
        communicators[index] = make_communicator(options, store);
        body(*communicators[index]);
      } catch (const std::exception& error) {
        errors[index] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

}  // namespace tutti
