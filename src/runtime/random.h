// Random numbers that are a function of a key and a counter, not of what was drawn before: Philox 4x32-10 (Salmon et
// al., "Parallel random numbers: as easy as 1, 2, 3"). A request's draw for its n-th token is the same alone and in a
// crowd, before and after a preemption. Any thread.
#pragma once

#include <array>
#include <cstdint>

namespace tutti {

std::array<uint32_t, 4> philox(uint64_t key, uint64_t counter);

// Uniform in [0, 1), 53 bits.
double uniform(uint64_t key, uint64_t counter);

}  // namespace tutti
