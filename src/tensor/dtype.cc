#include "tensor/dtype.h"

#include <array>
#include <cctype>

#include "base/check.h"

namespace tutti {
namespace {

constexpr std::array<DTypeInfo, static_cast<size_t>(DType::kCount)> kInfo = {{
    {"F32", 1, 4},     {"F16", 1, 2},     {"BF16", 1, 2},    {"F8_E4M3", 1, 1}, {"I8", 1, 1},
    {"U8", 1, 1},      {"I32", 1, 4},     {"I64", 1, 8},     {"Q8_0", 32, 34},  {"Q4_0", 32, 18},
    {"Q4_1", 32, 20},  {"Q5_0", 32, 22},  {"Q5_1", 32, 24},  {"Q2_K", 256, 84}, {"Q3_K", 256, 110},
    {"Q4_K", 256, 144}, {"Q5_K", 256, 176}, {"Q6_K", 256, 210}, {"IQ4_NL", 32, 18}, {"IQ4_XS", 256, 136},
}};

bool equal_ignoring_case(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::toupper(static_cast<unsigned char>(a[i])) != std::toupper(static_cast<unsigned char>(b[i]))) return false;
  }
  return true;
}

}  // namespace

const DTypeInfo& dtype_info(DType dtype) {
  const auto index = static_cast<size_t>(dtype);
  CHECK_LT(index, kInfo.size());
  return kInfo[index];
}

size_t dtype_bytes(DType dtype, int64_t count) {
  const DTypeInfo& info = dtype_info(dtype);
  CHECK_EQ(count % info.block_size, 0);
  return static_cast<size_t>(count / info.block_size) * static_cast<size_t>(info.block_bytes);
}

std::optional<DType> dtype_from_name(std::string_view name) {
  for (size_t i = 0; i < kInfo.size(); ++i) {
    if (equal_ignoring_case(kInfo[i].name, name)) return static_cast<DType>(i);
  }
  return std::nullopt;
}

}  // namespace tutti
