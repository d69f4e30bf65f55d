// Handles, configurations and counts.

#include <transformer_engine/gemm.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

#include "configs.h"
#include "te_double.h"
#include "te_double_counts.h"

namespace te_double {
namespace {

std::mutex mutex;
std::map<std::string, unsigned long> calls;
unsigned long handles = 0;

}  // namespace

int capability() {
  static const int value = [] {
    const char* text = std::getenv("OCTAVO_TE_DOUBLE_CAPABILITY");
    return text != nullptr ? std::atoi(text) : 90;
  }();
  return value;
}

void count_call(const char* name) {
  const std::lock_guard lock(mutex);
  ++calls[name];
}

bool Tensor::is_fp8() const {
  const NVTEDType type =
      has(kNVTERowwiseData) ? of(kNVTERowwiseData).dtype : of(kNVTEColumnwiseData).dtype;
  return type == kNVTEFloat8E4M3 || type == kNVTEFloat8E5M2;
}

Tensor& tensor(NVTETensor handle) {
  check(handle != nullptr, "a null handle");
  return *static_cast<Tensor*>(handle);
}

at::Tensor view(const NVTEBasicTensor& basic) {
  check(basic.data_ptr != nullptr, "a tensor without memory");
  std::vector<int64_t> sizes;
  for (size_t i = 0; i < basic.shape.ndim; ++i)
    sizes.push_back(static_cast<int64_t>(basic.shape.data[i]));
  const auto type = [&] {
    switch (basic.dtype) {
      case kNVTEBFloat16:
        return at::kBFloat16;
      case kNVTEFloat32:
        return at::kFloat;
      case kNVTEInt32:
        return at::kInt;
      case kNVTEInt64:
        return at::kLong;
      default:
        return at::kByte;
    }
  }();
  return at::from_blob(basic.data_ptr, sizes, at::TensorOptions().dtype(type));
}

at::Tensor view(NVTETensor handle) {
  return view(tensor(handle).of(kNVTERowwiseData));
}

float* number(const Tensor& t, NVTETensorParam param) {
  const NVTEBasicTensor& basic = t.of(param);
  check(basic.data_ptr != nullptr && basic.dtype == kNVTEFloat32, "wanted one FP32 number");
  return static_cast<float*>(basic.data_ptr);
}

}  // namespace te_double

using te_double::tensor;

extern "C" {

int octavo_te_double_capability() {
  return te_double::capability();
}
unsigned long octavo_te_double_calls(const char* name) {
  const std::lock_guard lock(te_double::mutex);
  return te_double::calls[name];
}
unsigned long octavo_te_double_handles() {
  const std::lock_guard lock(te_double::mutex);
  return te_double::handles;
}

NVTETensor nvte_create_tensor(NVTEScalingMode mode) {
  const std::lock_guard lock(te_double::mutex);
  ++te_double::handles;
  auto* made = new te_double::Tensor;
  made->mode = mode;
  return made;
}
void nvte_destroy_tensor(NVTETensor handle) {
  if (handle == nullptr) return;
  const std::lock_guard lock(te_double::mutex);
  --te_double::handles;
  delete static_cast<te_double::Tensor*>(handle);
}
void nvte_set_tensor_param_v2(NVTETensor handle, NVTETensorParam param, const void* buffer,
                              size_t bytes) {
  if (param == kNVTEWithGEMMSwizzledScales) {
    te_double::check(bytes == 1, "a flag is one byte");
    tensor(handle).swizzled = *static_cast<const uint8_t*>(buffer) != 0;
    return;
  }
  te_double::check(bytes == sizeof(NVTEBasicTensor) && param < kNVTENumTensorParams,
                   "wrong parameter of a tensor");
  std::memcpy(&tensor(handle).params[param], buffer, bytes);
}
NVTEShape nvte_tensor_shape(const NVTETensor handle) {
  return tensor(handle).of(kNVTERowwiseData).shape;
}
NVTEDType nvte_tensor_type(const NVTETensor handle) {
  return tensor(handle).of(kNVTERowwiseData).dtype;
}

NVTEQuantizationConfig nvte_create_quantization_config() {
  return new te_double::QuantizationConfig;
}
void nvte_set_quantization_config_attribute(NVTEQuantizationConfig config,
                                            NVTEQuantizationConfigAttribute attribute,
                                            const void* buffer, size_t bytes) {
  auto& c = *static_cast<te_double::QuantizationConfig*>(config);
  const auto flag = [&] { return *static_cast<const uint8_t*>(buffer) != 0; };
  if (attribute == kNVTEQuantizationConfigForcePow2Scales && bytes == 1)
    c.power_of_two_scales = flag();
  else if (attribute == kNVTEQuantizationConfigNVFP42DQuantization && bytes == 1)
    c.squares = flag();
  else if (attribute == kNVTEQuantizationConfigStochasticRounding && bytes == 1)
    c.stochastic = flag();
  else if (attribute == kNVTEQuantizationConfigRNGState && bytes == sizeof(NVTETensor))
    c.draws = *static_cast<const NVTETensor*>(buffer);
  else
    te_double::check(false, "an attribute that the stand-in does not know");
}
void nvte_destroy_quantization_config(NVTEQuantizationConfig config) {
  delete static_cast<te_double::QuantizationConfig*>(config);
}

NVTEMatmulConfig nvte_create_matmul_config() {
  return new te_double::MatmulConfig;
}
void nvte_set_matmul_config_attribute(NVTEMatmulConfig config, NVTEMatmulConfigAttribute attribute,
                                      const void* buffer, size_t bytes) {
  auto& c = *static_cast<te_double::MatmulConfig*>(config);
  if (attribute == kNVTEMatmulConfigUseSplitAccumulator && bytes == 1)
    c.split_accumulator = *static_cast<const uint8_t*>(buffer) != 0;
  else if (attribute == kNVTEMatmulConfigBiasTensor && bytes == sizeof(NVTETensor))
    c.bias = *static_cast<const NVTETensor*>(buffer);
  else if (attribute == kNVTEMatmulConfigDBiasTensor && bytes == sizeof(NVTETensor))
    c.bias_gradient = *static_cast<const NVTETensor*>(buffer);
  else if (attribute == kNVTEMatmulConfigEpilogueAuxTensor && bytes == sizeof(NVTETensor))
    c.gelu_input = *static_cast<const NVTETensor*>(buffer);
  else if (attribute == kNVTEMatmulConfigWithGELUEpilogue && bytes == 1)
    c.gelu = *static_cast<const uint8_t*>(buffer) != 0;
  else if (attribute == kNVTEMatmulConfigWithDGELUEpilogue && bytes == 1)
    c.gelu_gradient = *static_cast<const uint8_t*>(buffer) != 0;
  else
    te_double::check(false, "an attribute that the stand-in does not know");
}
void nvte_destroy_matmul_config(NVTEMatmulConfig config) {
  delete static_cast<te_double::MatmulConfig*>(config);
}

int nvte_is_non_tn_fp8_gemm_supported() {
  return te_double::any_layout() ? 1 : 0;
}

}  // extern "C"
