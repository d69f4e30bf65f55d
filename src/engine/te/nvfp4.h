#pragma once
// NVFP4 by the library, in the order in which Transformer Engine's own layers call it. For each
// matrix:
//
//   amax      of the matrix and, of a copy that is rotated, of what rotating makes: FP32, on the
//             device. They are the scales of whole matrices; no other is written
//   row       codes and block scales of the matrix
//   column    codes and block scales of the transposed matrix; rotated: written in BF16 first
//   swizzle   block scales into the order that GEMMs read, with zeros for what is missing
//
// A GEMM reads both operands with the sum along their rows, and takes alpha from both amaxes on
// the device: the host never waits. (The library can rotate and quantize in one kernel, for some
// shapes; that is not called yet.)

#include <map>

#include "engine/fp8_linear.h"
#include "engine/te/layout.h"

namespace octavo::engine::te {

// Bit i: the sign that the i-th of 16 values gets before the Hadamard transform (fp8/nvfp4.h).
inline constexpr int kHadamardSigns = 0xD7E8;

class Nvfp4Quantizer {
 public:
  Fp8Matrix quantize(const at::Tensor& x, fp8::Recipe recipe, const QuantizeSpec& row,
                     const QuantizeSpec& column);

 private:
  at::Tensor draws(const fp8::Nvfp4Rounding& rounding, at::Device device);

  struct Seed {
    at::Tensor seed, second;  // {seed, 0} and {0, 1}
  };
  std::map<std::pair<at::DeviceIndex, uint64_t>, Seed> seeds_;
};

// The Hadamard transform of every 16 values of a column, transposed: BF16 [columns, rows].
at::Tensor rotated_transposed(const at::Tensor& x, const OnDevice& on);

}  // namespace octavo::engine::te
