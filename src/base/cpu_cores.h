// Which processors this process may use, in the order in which threads are best pinned to them.
#pragma once

#include <string_view>
#include <vector>

namespace tutti {

// "0-2,8" as the kernel writes it: {0, 1, 2, 8}. What is not of that form is left out.
std::vector<int> parse_cpu_list(std::string_view text);

// The processors of this process's affinity mask, memory node by memory node; inside a node one of every core first, then
// the cores' other threads.
std::vector<int> usable_processors_by_node();

// Keeps the calling thread on one processor. A container may forbid that: running unpinned is correct, only slower.
void pin_thread(int processor);

// The share of thread group `index`, of `threads` each: neighbours in that order. Empty when there are not that many.
std::vector<int> processors_of_group(int index, int threads);

}  // namespace tutti
