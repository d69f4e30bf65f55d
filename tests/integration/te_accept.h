#pragma once
// What the cases of `te_calls_tool accept` share: an engine by the real library on the fake CUDA
// device.

#include <ATen/ATen.h>

#include "engine/engine.h"
#include "te_cases.h"

namespace octavo {

// cudaDataType_t
inline constexpr int32_t kCudaE2M1 = 33;

inline const at::Device kGpu(at::kCUDA, 0);

inline at::Tensor bf16(at::IntArrayRef shape) {
  return at::empty(shape, at::TensorOptions(kGpu).dtype(at::kBFloat16));
}
inline at::Tensor fp32(at::IntArrayRef shape) {
  return at::empty(shape, at::TensorOptions(kGpu).dtype(at::kFloat));
}

class Acceptance {
 public:
  explicit Acceptance(int capability)
      : cases_(str("capability ", capability)),
        capability_(capability),
        engine_({.device = kGpu,
                 .capability = capability,
                 .fp8 = engine::Fp8Kernels::kTransformerEngine}) {}
  int run();

 private:
  struct Orders {
    engine::QuantizeSpec row, column;
  };
  struct Sides {
    int64_t rows, columns, summed;
  };
  engine::QuantizeSpec order(fp8::Recipe recipe, fp8::FormatChoice format, fp8::Role role,
                             fp8::Direction direction, bool wanted);
  engine::Fp8Matrix quantized(fp8::Recipe recipe, fp8::FormatChoice format, fp8::Role role,
                              int64_t rows, int64_t columns, bool row = true, bool column = true);

  bool has(fp8::Recipe recipe) const;  // the device
  void choices();
  void linear(fp8::Recipe recipe);
  void gemms(fp8::Recipe recipe, fp8::FormatChoice format, int64_t tokens, int64_t outputs,
             int64_t inputs);
  void one_gemm(const std::string& name, const Sides& sides, bool fast, float beta,
                const std::function<void()>& call);
  void fused();
  void fused_by(fp8::Recipe recipe, bool column);
  void update();
  void swizzle();
  void adopt();
  void nvfp4();
  void nvfp4_operands(int64_t tokens);
  void nvfp4_launches();
  void operations();
  void wrong_uses();
  void nothing_unexpected();

  Cases cases_;
  int capability_;
  engine::Engine engine_;
  at::Tensor factors_ = at::ones({4}, at::TensorOptions(kGpu).dtype(at::kFloat));
};

}  // namespace octavo
