#pragma once
// What the checks of FP8 share: the small layer that they compute.

#include "verify/kernel_checks.h"

namespace octavo::verify {

// On the device that is checked, and by the reference.
struct Quantized {
  engine::Fp8Matrix found, wanted;
};

// x[T,I], w[O,I] and dy[T,O] on the CPU, and both their quantized forms.
struct Fp8Layer {
  at::Tensor x, w, dy;
  Quantized qx, qw, qdy;
};

// Both copies of a tensor of this role; they share the slot of its amax. `bench` null: for the
// reference, on the CPU.
struct Orders {
  engine::QuantizeSpec row, column;
};
Orders orders_for(fp8::Recipe recipe, fp8::Role role, const Bench* bench);

// The numbers that a quantized matrix stands for are of the size of those it was made from.
at::Tensor size_of(const at::Tensor& x);

// Sums of 4096 and 14336 terms, forward and of the input's gradient. Allowed beyond the last
// rounding: twice what Hopper's accumulators (fp8/accumulator.h) do to the same operands, where
// Hopper has the recipe; else 2^-14 of the terms' magnitudes, with which sums of 25 fraction bits
// that are cut after every 32 terms agree.
void check_long_sums(engine::Fp8Linear& op, engine::Fp8Linear& oracle, fp8::Recipe recipe,
                     Bench& bench);

// Passes in which a norm, an activation or the sums of a bias's gradient quantize their result, and
// many weights at once: what GEMMs make of it must be what they make of two passes.
void check_fused(engine::Fp8Linear& op, engine::Fp8Linear& oracle, fp8::Recipe recipe,
                 const Fp8Layer& layer, Bench& bench);

}  // namespace octavo::verify
