#include "comm/device_wait.h"

#include <fmt/format.h>

#include <algorithm>
#include <thread>
#include <vector>

#include "base/error.h"

namespace tutti {
namespace {

constexpr auto kPoll = std::chrono::microseconds(100);
constexpr auto kNap = std::chrono::microseconds(20);
constexpr auto kAnswerTimeout = std::chrono::seconds(1);

}  // namespace

void wait_for_stream(DeviceTransport& transport, DeviceStream& stream, const Call& call) {
  const uint64_t end = stream.mark();
  const auto start = Clock::now();
  while (!stream.reached(end)) {
    transport.check();
    if (call.deadline.passed()) throw transport.late(call);
    if (Clock::now() - start > kPoll) std::this_thread::sleep_for(kNap);
  }
  transport.check();
}

CommError name_late_rank(const CommGroup& group, Communicator& control, const std::string& what, int64_t number) {
  std::vector<int64_t> numbers(static_cast<size_t>(group.size));
  try {
    control.set_timeout(kAnswerTimeout);
    control.all_gather(&number, numbers.data(), sizeof number);
  } catch (const CommError& error) {
    return CommError(fmt::format("{}: {}", what, error.what()), error.peer());
  }
  const auto last = std::min_element(numbers.begin(), numbers.end());
  const int peer = static_cast<int>(last - numbers.begin());
  if (*last < number)
    return CommError(fmt::format("{}: {} is behind, at call {}", what, group.label(peer), *last), peer);
  return CommError(fmt::format("{}, though all ranks of the group have called it: the link between them has failed", what));
}

}  // namespace tutti
