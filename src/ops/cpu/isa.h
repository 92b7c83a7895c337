// The instruction set levels of this processor, best last, and the kernel table of each.
#pragma once

#include <span>
#include <string_view>

#include "ops/cpu/level.h"
#include "ops/kernel_table.h"

namespace tutti::cpu {

// Tables of the levels that this processor and this build have; the first is `portable`.
std::span<const KernelTable> available_tables();

// The level that TUTTI_CPU_ISA names (portable, avx2, avx512, vnni, bf16, amx), else the best. Read once. Throws ConfigError
// naming the levels there are when the processor lacks the one asked for.
const KernelTable& best_kernel_table();

// The level that all ranks of a cluster compute with, as its head named it. Throws ConfigError when this processor lacks it,
// or when TUTTI_CPU_ISA names another one here.
const KernelTable& kernel_table_of_level(std::string_view level);

}  // namespace tutti::cpu
