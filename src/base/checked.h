#pragma once
// Arithmetic on sizes that come from files: overflow is damage, never a wrapped number.

#include <concepts>
#include <cstdint>
#include <string_view>

#include "base/error.h"

namespace octavo {

template <std::integral T>
T checked_add(T a, T b, std::string_view what) {
  T result;
  if (__builtin_add_overflow(a, b, &result))
    fail(ExitCode::kDamaged, "base", what, ": the sum of ", a, " and ", b, " overflows");
  return result;
}

template <std::integral T>
T checked_mul(T a, T b, std::string_view what) {
  T result;
  if (__builtin_mul_overflow(a, b, &result))
    fail(ExitCode::kDamaged, "base", what, ": the product of ", a, " and ", b, " overflows");
  return result;
}

template <std::integral T>
constexpr T ceil_div(T a, T b) {
  return (a + b - 1) / b;
}

template <std::integral T>
constexpr T round_up(T a, T multiple) {
  return ceil_div(a, multiple) * multiple;
}

}  // namespace octavo
