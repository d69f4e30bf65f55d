#pragma once
// Handles of the library, as values. A handle describes memory and owns none. The library has about
// 20,000 tensor handles in all, so they live as long as a call.

#include <ATen/core/Tensor.h>

#include <optional>
#include <utility>

#include "engine/te/library.h"
#include "fp8/formats.h"

namespace octavo::engine::te {

NVTEDType type_of(at::ScalarType type);  // of a tensor that is not quantized
NVTEDType type_of(fp8::Format format);

class Handle {
 public:
  explicit Handle(NVTEScalingMode mode = NVTE_DELAYED_TENSOR_SCALING);
  // A tensor as it is.
  explicit Handle(const at::Tensor& tensor);
  ~Handle();
  Handle(Handle&& other) noexcept : tensor_(std::exchange(other.tensor_, nullptr)) {}
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  Handle& operator=(Handle&&) = delete;

  operator NVTETensor() const { return tensor_; }  // NOLINT: to be passed on

  // One of the buffers that make up a tensor. An undefined tensor sets none.
  void set(NVTETensorParam param, const at::Tensor& buffer, NVTEDType type);
  void set(NVTETensorParam param, void* data, NVTEDType type, at::IntArrayRef shape);
  void set_swizzled();  // block scales are, or are to be written, in the order that GEMMs read
  void clear(NVTETensorParam param);

 private:
  NVTETensor tensor_;
};

class QuantizationConfig {
 public:
  explicit QuantizationConfig(bool power_of_two_scales);
  // Of NVFP4. `squares`: blocks of 16 x 16, else 1 x 16. `draws`: int64 {seed, offset} of
  // stochastic rounding; undefined: to nearest. It must outlive the call.
  QuantizationConfig(bool squares, const at::Tensor& draws);
  ~QuantizationConfig();
  QuantizationConfig(const QuantizationConfig&) = delete;
  QuantizationConfig& operator=(const QuantizationConfig&) = delete;
  operator NVTEQuantizationConfig() const { return config_; }  // NOLINT: to be passed on

 private:
  void set(NVTEQuantizationConfigAttribute attribute, bool value);
  NVTEQuantizationConfig config_;
  std::optional<Handle> draws_;
};

class MatmulConfig {
 public:
  // Without the split accumulator sums are kept in fewer bits inside the matrix units: faster, and
  // good enough for the forward GEMM. `bias`, which is added, and `bias_gradient`, which is
  // written, may be null, and must outlive the call.
  MatmulConfig(bool split_accumulator, const Handle* bias, const Handle* bias_gradient = nullptr);
  // The result goes through GELU, and `input` receives what it read; or it is multiplied with the
  // derivative of GELU at `input`. `input` must outlive the call.
  void set_gelu(const Handle& input);
  void set_gelu_gradient(const Handle& input);
  ~MatmulConfig();
  MatmulConfig(const MatmulConfig&) = delete;
  MatmulConfig& operator=(const MatmulConfig&) = delete;
  operator NVTEMatmulConfig() const { return config_; }  // NOLINT: to be passed on

 private:
  void set_epilogue(NVTEMatmulConfigAttribute which, const Handle& input);
  NVTEMatmulConfig config_;
};

// Calls that need working memory are made twice: with an empty handle they say how much, of which
// shape, and do nothing. `call` takes the handle.
template <class Call>
void with_workspace(at::Device device, const Call& call);

at::Tensor fill_workspace(Handle& asked, at::Device device);

template <class Call>
void with_workspace(at::Device device, const Call& call) {
  Handle workspace;
  call(workspace);
  const at::Tensor memory = fill_workspace(workspace, device);
  call(workspace);
}

}  // namespace octavo::engine::te
