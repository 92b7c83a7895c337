#include "server/random_id.h"

#include <fmt/format.h>
#include <sys/random.h>

#include "base/check.h"

namespace tutti {

std::string random_id() {
  unsigned char bytes[16];
  CHECK_EQ(getrandom(bytes, sizeof(bytes), 0), static_cast<ssize_t>(sizeof(bytes)));
  std::string out;
  for (const unsigned char b : bytes) out += fmt::format("{:02x}", b);
  return out;
}

}  // namespace tutti
