#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace tutti::internal {

void check_failed(const char* file, int line, const std::string& what) {
  std::fprintf(stderr, "tutti: internal error at %s:%d: CHECK failed: %s\n", file, line, what.c_str());
  std::fflush(stderr);
  std::abort();
}

}  // namespace tutti::internal
