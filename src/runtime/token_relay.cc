#include "runtime/token_relay.h"

namespace tutti {

void TokenRelay::begin_step(int64_t needed, const Append& append) {
  if (is_last()) {
    while (!kept_.empty() && kept_.front().step <= needed) send_front();
    return;
  }
  while (!expected_.empty() && expected_.front().step <= needed) {
    const Expected expected = std::move(expected_.front());
    expected_.pop_front();
    std::vector<int32_t> tokens(expected.rows.size());
    pp_.recv(tokens.data(), tokens.size() * sizeof(int32_t), pp_.size() - 1);
    for (size_t i = 0; i < tokens.size(); ++i) append(expected.rows[i], tokens[i]);
  }
}

void TokenRelay::others_have(int64_t needed) {
  while (!unread_.empty() && unread_.front() <= needed) unread_.pop_front();
  send_kept();
}

void TokenRelay::publish(int64_t step, std::vector<int32_t> tokens) {
  if (pp_.size() == 1 || tokens.empty()) return;
  kept_.push_back({step, std::move(tokens)});
  send_kept();
}

void TokenRelay::send_kept() {
  while (!kept_.empty() && unread_.size() < Communicator::kMostUnread) send_front();
}

void TokenRelay::expect(int64_t step, std::vector<SampledRow> rows) {
  if (!rows.empty()) expected_.push_back({step, std::move(rows)});
}

void TokenRelay::clear() {
  kept_.clear();
  expected_.clear();
  unread_.clear();
}

void TokenRelay::send_front() {
  const Kept kept = std::move(kept_.front());
  kept_.pop_front();
  for (int stage = 0; stage + 1 < pp_.size(); ++stage) {
    pp_.send(kept.tokens.data(), kept.tokens.size() * sizeof(int32_t), stage);
  }
  unread_.push_back(kept.step);
}

}  // namespace tutti
