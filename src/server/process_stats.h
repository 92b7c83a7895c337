// The process_* lines that Prometheus clients give: memory, processor time, descriptors, start.
#pragma once

#include <string>

namespace tutti {

std::string process_stats_text();

}  // namespace tutti
