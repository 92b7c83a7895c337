// The bytes of the two structs of the seam (step.h) between processes. Little-endian, fixed widths, a header with magic,
// version and kind. Decoding treats its input as hostile: every count is checked against the bytes that are left before
// anything is allocated, and a message must end exactly where its last field ends.
//
// Called by the head's engine thread and by the rank's worker thread; no state.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "protocol/step.h"

namespace tutti::wire {

// Raised with every change of the layout. Both ends of a cluster must have the same one (the join handshake compares).
constexpr uint16_t kVersion = 2;

std::string encode(const SchedulerOutput& step);
std::string encode(const ModelRunnerOutput& output);

// Throw IoError that says what was expected and found: short input, a count that cannot be true, another version.
SchedulerOutput decode_scheduler_output(std::string_view bytes);
ModelRunnerOutput decode_model_runner_output(std::string_view bytes);

}  // namespace tutti::wire
