// Brings the tokens that the last pipeline stage samples to the other stages, without making a stage wait for tokens
// that its next step does not need. All stages see the same steps, so all know which tokens a step depends on:
//
//   first stage   | A1 | B1 |<-ids A1| A2 |<-ids B1| B2 |      A, B: two groups of requests in turn
//   last stage         | A1 |ids A1->| B1 |ids B1->| A2 |
//
// Messages wait in the communicator until their reader comes, as many as it holds: what the last stage samples beyond them it
// keeps until the reader is known to have gone on. Worker thread only.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <vector>

#include "comm/communicator.h"
#include "protocol/step.h"

namespace tutti {

// For whom a step samples, in the order of its rows.
struct SampledRow {
  RequestId id = 0;
  uint64_t incarnation = 0;
};

class TokenRelay {
 public:
  using Append = std::function<void(const SampledRow& row, int32_t token)>;

  explicit TokenRelay(Communicator& pp) : pp_(pp) {}

  // Every stage, before it builds a step that depends on tokens sampled up to step `needed`: the last one sends what
  // it has kept of those, the others receive them.
  void begin_step(int64_t needed, const Append& append);
  // Last stage: the previous stage's part of that step is here, so all others have the tokens up to `needed`.
  void others_have(int64_t needed);
  // Last stage: `tokens` of a step are chosen.
  void publish(int64_t step, std::vector<int32_t> tokens);
  // Other stages: a step whose tokens will come.
  void expect(int64_t step, std::vector<SampledRow> rows);
  // A new epoch: what was on its way belongs to nobody.
  void clear();

 private:
  struct Kept {
    int64_t step;
    std::vector<int32_t> tokens;
  };
  struct Expected {
    int64_t step;
    std::vector<SampledRow> rows;
  };
  bool is_last() const { return pp_.rank() == pp_.size() - 1; }
  void send_front();
  void send_kept();

  Communicator& pp_;
  std::deque<Kept> kept_;           // last stage
  std::deque<int64_t> unread_;      // last stage: steps of the messages that may lie unread
  std::deque<Expected> expected_;   // other stages
};

}  // namespace tutti
