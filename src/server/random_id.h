// Ids that nobody can guess: of requests and of tool calls.
#pragma once

#include <string>

namespace tutti {

// 32 hexadecimal digits.
std::string random_id();

}  // namespace tutti
