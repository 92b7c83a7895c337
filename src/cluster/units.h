// Numbers as people read them. Pure.
#pragma once

#include <cstdint>
#include <string>

namespace tutti {

// "470.2 GB", "98.9 MB": decimal units, as file sizes are given.
std::string format_bytes(double bytes);
// "902,912"
std::string group_digits(int64_t number);
// "1 rank", "8 ranks"
std::string count_of(int64_t number, const std::string& noun);

}  // namespace tutti
