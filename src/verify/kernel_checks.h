#pragma once
// One small comparison for each operation: what an implementation gives on the device against what
// the reference gives on the CPU, in FP64, of the same numbers.

#include <ATen/ATen.h>

#include <string>

#include "engine/fp8_linear.h"
#include "engine/ops.h"

namespace octavo::verify {

// How far a value may be from the reference's: its last rounding (one unit in the last place of
// BF16, two of FP32) and
//   of_sum      of the magnitudes that were added up, for GEMMs and sums
//   of_largest  of the largest value of the tensor, for everything else
struct Tolerance {
  double of_sum = 0, of_largest = 0;
  bool same_bits = false;  // AdamW: random numbers and roundings are the reference's own
  std::string text() const;
};
// `name`: of the implementation. Those of libtorch and Transformer Engine round to BF16 between
// kernels; matrix units of GPUs drop bits of FP32 sums that a CPU keeps.
Tolerance tolerance_of(std::string_view name, at::Device device, at::ScalarType compute);
// Of GEMMs of FP8 matrix units. Hopper's keep 14 bits of a sum.
Tolerance native_fp8_tolerance();

class Bench {
 public:
  Bench(at::Device device, at::ScalarType compute, const Tolerance& tolerance)
      : device_(device), compute_(compute), tolerance_(tolerance) {}

  bool on_gpu() const { return device_.is_cuda(); }
  at::ScalarType compute() const { return compute_; }
  const Tolerance& tolerance() const { return tolerance_; }

  // On the CPU: N(0, scale) in the compute dtype.
  at::Tensor random(at::IntArrayRef shape, double scale = 1) const {
    return (at::randn(shape) * scale).to(compute_);
  }
  // Scales of norms and biases: numbers that the compute dtype has, in FP32.
  at::Tensor random_parameter(at::IntArrayRef shape) const { return random(shape).to(at::kFloat); }

  // A copy on the device that is checked.
  at::Tensor to_device(const at::Tensor& t) const {
    return t.defined() ? t.to(device_, false, true) : t;
  }
  // Of a parameter: FP32 on CPUs, the compute dtype on GPUs.
  at::Tensor parameter_to_device(const at::Tensor& t) const {
    return on_gpu() ? t.to(at::TensorOptions(device_).dtype(compute_)) : t.clone();
  }

  // `found` of the device, `wanted` of the reference.
  void same_values(const char* what, const at::Tensor& found, const at::Tensor& wanted);
  // The same for sums: `magnitudes` of what was added up.
  void same_sums(const char* what, const at::Tensor& found, const at::Tensor& wanted,
                 const at::Tensor& magnitudes);
  void same_bits(const char* what, const at::Tensor& found, const at::Tensor& wanted);
  void same_within(const char* what, const at::Tensor& found, const at::Tensor& wanted,
                   const at::Tensor& slack);

  const std::string& trouble() const { return trouble_; }  // "" when all is well
  double worst() const { return worst_; }  // largest error, as a share of what is allowed
  int64_t compared() const { return compared_; }

 private:
  at::Device device_;
  at::ScalarType compute_;
  Tolerance tolerance_;
  std::string trouble_;
  double worst_ = 0;
  int64_t compared_ = 0;
};

void check(engine::Matmul& op, engine::Matmul& oracle, Bench& bench);
void check(engine::LayerNorm& op, engine::LayerNorm& oracle, Bench& bench);
void check(engine::RmsNorm& op, engine::RmsNorm& oracle, Bench& bench);
void check(engine::Gelu& op, engine::Gelu& oracle, Bench& bench);
void check(engine::SwiGlu& op, engine::SwiGlu& oracle, Bench& bench);
void check(engine::GeGlu& op, engine::GeGlu& oracle, Bench& bench);
void check(engine::Rope& op, engine::Rope& oracle, Bench& bench);
void check(engine::ColumnSum& op, engine::ColumnSum& oracle, Bench& bench);
void check(engine::CrossEntropy& op, engine::CrossEntropy& oracle, Bench& bench);
void check(engine::Attention& op, engine::Attention& oracle, Bench& bench);
void check(engine::Embedding& op, engine::Embedding& oracle, Bench& bench);
void check(engine::AdamW& op, engine::AdamW& oracle, Bench& bench);
// All three GEMMs of a layer in one recipe, the update of delayed scaling, and passes that quantize
// what they make.
void check(engine::Fp8Linear& op, engine::Fp8Linear& oracle, fp8::Recipe recipe, Bench& bench);

}  // namespace octavo::verify
