#pragma once
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/random.h"
#include "engine/cpu/fp8_kernels.h"

namespace octavo::engine {

// A matrix of BF16 numbers, by their bits.
struct Bits {
  std::string name;
  int64_t rows, columns;
  std::vector<uint16_t> values;
  cpu::Bf16Matrix matrix() const { return {values.data(), rows, columns}; }
  std::vector<float> numbers() const {
    std::vector<float> result(values.size());
    std::ranges::transform(values, result.begin(), cpu::from_bits);
    return result;
  }
};

// Bits from `draw`, which gets a random word for every element.
template <class Draw>
Bits drawn(std::string name, int64_t rows, int64_t columns, const Draw& draw) {
  Bits made{std::move(name), rows, columns, {}};
  made.values.resize(static_cast<size_t>(rows * columns));
  for (size_t i = 0; i < made.values.size(); ++i)
    made.values[i] = static_cast<uint16_t>(draw(i, philox(1, 2, i)[0]));
  return made;
}

}  // namespace octavo::engine
