// Variables of the environment as values.
#pragma once

#include <cstdlib>
#include <string>

namespace tutti {

// "" when it is not set.
inline std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace tutti
