#include "engine/te/tensor.h"

#include <ATen/ATen.h>

#include "base/error.h"
#include "base/log.h"

namespace octavo::engine::te {
namespace {

NVTEShape shape_of(at::IntArrayRef sizes) {
  NVTEShape shape{};
  OCTAVO_ASSERT(sizes.size() <= std::size(shape.data));
  shape.ndim = sizes.size();
  for (size_t i = 0; i < sizes.size(); ++i) shape.data[i] = static_cast<size_t>(sizes[i]);
  return shape;
}

int64_t bytes_of(int64_t elements, NVTEDType type) {
  switch (type) {
    case kNVTEInt64:
      return 8 * elements;
    case kNVTEFloat32:
    case kNVTEInt32:
      return 4 * elements;
    case kNVTEBFloat16:
      return 2 * elements;
    case kNVTEFloat4E2M1:
      return elements / 2;
    default:
      return elements;
  }
}

// For destructors, which must not throw.
template <class Destroy, class Object>
void destroy(const Destroy& function, Object object) noexcept {
  if (object == nullptr) return;
  try {
    function(object);
  } catch (const Error& error) {
    log_warn(error.what());
  }
}

}  // namespace

NVTEDType type_of(at::ScalarType type) {
  switch (type) {
    case at::kBFloat16:
      return kNVTEBFloat16;
    case at::kFloat:
      return kNVTEFloat32;
    case at::kInt:
      return kNVTEInt32;
    case at::kLong:
      return kNVTEInt64;
    case at::kByte:
      return kNVTEByte;
    default:
      fail(ExitCode::kEnvironment, "te", "wanted BF16, FP32, int32, int64 or bytes, found ",
           at::toString(type));
  }
}

NVTEDType type_of(fp8::Format format) {
  switch (format) {
    case fp8::Format::kE4M3:
      return kNVTEFloat8E4M3;
    case fp8::Format::kE5M2:
      return kNVTEFloat8E5M2;
    case fp8::Format::kE2M1:
      break;
  }
  return kNVTEFloat4E2M1;
}

Handle::Handle(NVTEScalingMode mode) : tensor_(library().nvte_create_tensor(mode)) {}

Handle::Handle(const at::Tensor& tensor) : Handle() {
  OCTAVO_ASSERT(tensor.is_contiguous());
  set(kNVTERowwiseData, tensor, type_of(tensor.scalar_type()));
}

Handle::~Handle() {
  if (traffic_listener() != nullptr) forget_buffers(tensor_);
  destroy(library().nvte_destroy_tensor, tensor_);
}

void Handle::set(NVTETensorParam param, const at::Tensor& buffer, NVTEDType type) {
  if (buffer.defined()) set(param, buffer.data_ptr(), type, buffer.sizes());
}

void Handle::set(NVTETensorParam param, void* data, NVTEDType type, at::IntArrayRef shape) {
  const NVTEBasicTensor basic{data, type, shape_of(shape)};
  library().nvte_set_tensor_param_v2(tensor_, param, &basic, sizeof basic);
  if (traffic_listener() != nullptr)
    remember_buffer(tensor_, param,
                    data != nullptr ? bytes_of(c10::multiply_integers(shape), type) : 0);
}

void Handle::set_swizzled() {
  const uint8_t yes = 1;
  library().nvte_set_tensor_param_v2(tensor_, kNVTEWithGEMMSwizzledScales, &yes, sizeof yes);
}

void Handle::clear(NVTETensorParam param) {
  set(param, nullptr, kNVTEFloat32, {0});
}

QuantizationConfig::QuantizationConfig(bool power_of_two_scales)
    : config_(library().nvte_create_quantization_config()) {
  set(kNVTEQuantizationConfigForcePow2Scales, power_of_two_scales);
}

QuantizationConfig::QuantizationConfig(bool squares, const at::Tensor& draws)
    : config_(library().nvte_create_quantization_config()) {
  set(kNVTEQuantizationConfigNVFP42DQuantization, squares);
  set(kNVTEQuantizationConfigStochasticRounding, draws.defined());
  if (!draws.defined()) return;
  draws_.emplace(draws);
  const NVTETensor tensor = *draws_;
  library().nvte_set_quantization_config_attribute(config_, kNVTEQuantizationConfigRNGState,
                                                   &tensor, sizeof tensor);
}

void QuantizationConfig::set(NVTEQuantizationConfigAttribute attribute, bool value) {
  const uint8_t flag = value ? 1 : 0;
  library().nvte_set_quantization_config_attribute(config_, attribute, &flag, sizeof flag);
}

QuantizationConfig::~QuantizationConfig() {
  destroy(library().nvte_destroy_quantization_config, config_);
}

MatmulConfig::MatmulConfig(bool split_accumulator, const Handle* bias, const Handle* bias_gradient)
    : config_(library().nvte_create_matmul_config()) {
  const uint8_t flag = split_accumulator ? 1 : 0;
  library().nvte_set_matmul_config_attribute(config_, kNVTEMatmulConfigUseSplitAccumulator, &flag,
                                             sizeof flag);
  const auto set = [&](NVTEMatmulConfigAttribute attribute, const Handle* handle) {
    if (handle == nullptr) return;
    const NVTETensor tensor = *handle;
    library().nvte_set_matmul_config_attribute(config_, attribute, &tensor, sizeof tensor);
  };
  set(kNVTEMatmulConfigBiasTensor, bias);
  set(kNVTEMatmulConfigDBiasTensor, bias_gradient);
}

void MatmulConfig::set_epilogue(NVTEMatmulConfigAttribute which, const Handle& input) {
  const uint8_t yes = 1;
  library().nvte_set_matmul_config_attribute(config_, which, &yes, sizeof yes);
  const NVTETensor tensor = input;
  library().nvte_set_matmul_config_attribute(config_, kNVTEMatmulConfigEpilogueAuxTensor, &tensor,
                                             sizeof tensor);
}
void MatmulConfig::set_gelu(const Handle& input) {
  set_epilogue(kNVTEMatmulConfigWithGELUEpilogue, input);
}
void MatmulConfig::set_gelu_gradient(const Handle& input) {
  set_epilogue(kNVTEMatmulConfigWithDGELUEpilogue, input);
}

MatmulConfig::~MatmulConfig() {
  destroy(library().nvte_destroy_matmul_config, config_);
}

at::Tensor fill_workspace(Handle& asked, at::Device device) {
  const NVTEShape shape = library().nvte_tensor_shape(asked);
  const NVTEDType type = library().nvte_tensor_type(asked);
  std::vector<int64_t> sizes;
  for (size_t i = 0; i < shape.ndim; ++i) sizes.push_back(static_cast<int64_t>(shape.data[i]));
  OCTAVO_ASSERT(type == kNVTEByte || type == kNVTEFloat32);
  at::Tensor memory =
      at::empty(sizes, at::TensorOptions(device).dtype(type == kNVTEByte ? at::kByte : at::kFloat));
  asked.set(kNVTERowwiseData, memory, type);  // exactly the shape that was asked for
  return memory;
}

}  // namespace octavo::engine::te
