// CHECK: an invariant of our own code. When it does not hold the program has a bug: it prints the condition with the
// values and stops. Never use it on outside input (files, requests, flags, peers): that is an Error (error.h).
#pragma once

#include <sstream>
#include <string>

namespace tutti::internal {

[[noreturn]] void check_failed(const char* file, int line, const std::string& what);

template <typename A, typename B>
std::string describe(const char* condition, const A& a, const B& b) {
  std::ostringstream out;
  out << condition << " (" << a << " vs " << b << ")";
  return out.str();
}

}  // namespace tutti::internal

#define TUTTI_CHECK_FAILED(what) ::tutti::internal::check_failed(__FILE__, __LINE__, (what))

#define CHECK(condition)                            \
  do {                                              \
    if (!(condition)) TUTTI_CHECK_FAILED(#condition); \
  } while (false)

#define TUTTI_CHECK_OP(op, a, b)                                                              \
  do {                                                                                        \
    const auto& check_a_ = (a);                                                               \
    const auto& check_b_ = (b);                                                               \
    if (!(check_a_ op check_b_))                                                              \
      TUTTI_CHECK_FAILED(::tutti::internal::describe(#a " " #op " " #b, check_a_, check_b_)); \
  } while (false)

#define CHECK_EQ(a, b) TUTTI_CHECK_OP(==, a, b)
#define CHECK_NE(a, b) TUTTI_CHECK_OP(!=, a, b)
#define CHECK_LT(a, b) TUTTI_CHECK_OP(<, a, b)
#define CHECK_LE(a, b) TUTTI_CHECK_OP(<=, a, b)
#define CHECK_GT(a, b) TUTTI_CHECK_OP(>, a, b)
#define CHECK_GE(a, b) TUTTI_CHECK_OP(>=, a, b)
