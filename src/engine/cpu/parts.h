#pragma once
// Work over rows, split into parts whose number depends only on the rows: sums over parts are then
// the same whatever the number of threads.

#include <algorithm>
#include <cstdint>

#include "engine/parallel.h"

namespace octavo::engine::cpu {

constexpr int64_t kMaxParts = 32;

inline int64_t part_count(int64_t rows) {
  return std::min(rows, kMaxParts);
}

// body(part, first_row, end_row); rows of `width` elements.
template <class Body>
void for_parts(int64_t rows, int64_t width, const Body& body) {
  const int64_t parts = part_count(rows);
  if (parts == 0) return;
  parallel_for(0, parts, grain_of_rows(rows / parts * width), [&](int64_t begin, int64_t end) {
    for (int64_t part = begin; part < end; ++part)
      body(part, part * rows / parts, (part + 1) * rows / parts);
  });
}

}  // namespace octavo::engine::cpu
