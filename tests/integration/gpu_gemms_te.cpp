// Transformer Engine's GEMMs: the real library multiplies on the device, and its stand-in
// (te_double/), whose quantizer really runs, makes the operands in the CPU's memory.

#include <dlfcn.h>
#include <stdlib.h>
#include <transformer_engine/cast.h>
#include <transformer_engine/recipe.h>

#include "base/error.h"
#include "engine/te/layout.h"
#include "engine/te/te.h"
#include "gpu_gemms.h"

namespace octavo::gemms {
namespace {

using at::Tensor;
using engine::Fp8Copy;
using engine::Fp8Matrix;
using engine::QuantizeSpec;
using fp8::Direction;
using fp8::Granularity;
using fp8::Recipe;

class StandIn {
 public:
  explicit StandIn(int capability)
      : facts_{.capability = capability,
               .any_layout = capability >= 100 && (capability < 120 || capability >= 130)} {
    setenv("OCTAVO_TE_DOUBLE_CAPABILITY", std::to_string(capability).c_str(), 1);
    void* library = dlopen("libte_double.so", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) fail(ExitCode::kEnvironment, "gpu_gemms", dlerror());
    const auto bind = [&](auto& function, const char* name) {
      function =
          reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
      if (function == nullptr) fail(ExitCode::kEnvironment, "gpu_gemms", "no ", name);
    };
    bind(create_, "nvte_create_tensor");
    bind(destroy_, "nvte_destroy_tensor");
    bind(set_, "nvte_set_tensor_param_v2");
    bind(create_config_, "nvte_create_quantization_config");
    bind(set_config_, "nvte_set_quantization_config_attribute");
    bind(destroy_config_, "nvte_destroy_quantization_config");
    bind(amax_, "nvte_compute_amax_with_config");
    bind(scale_, "nvte_compute_scale_from_amax");
    bind(quantize_, "nvte_quantize_v2");
  }

  Fp8Copy quantize(const Tensor& x, Recipe recipe, const QuantizeSpec& order,
                   Direction direction) const {
    const fp8::Side& side = order.side;
    const auto layout = [&](Direction d) {
      return engine::te::layout_of(side, d, x.size(0), x.size(1), facts_);
    };
    const Fp8Copy copy = engine::te::allocate_copy(layout(direction), at::kCPU);
    const NVTETensor in = create_(NVTE_DELAYED_TENSOR_SCALING),
                     out = create_(layout(direction).mode);
    set(in, kNVTERowwiseData, x, kNVTEBFloat16);
    describe(out, copy, side, direction);
    // Squares, and one scale per tensor, are written with their row copy.
    Fp8Copy row;
    if (layout(direction).transposed && is_symmetric(side.granularity)) {
      row = engine::te::allocate_copy(layout(Direction::kRow), at::kCPU);
      if (side.granularity == Granularity::kTensor) row.scales = copy.scales;
      describe(out, row, side, Direction::kRow);
    }
    const Tensor factor = order.factor.defined() ? order.factor : at::zeros({1}),
                 amax = at::zeros({1});
    if (side.granularity == Granularity::kTensor) {
      set(out, kNVTEScale, factor, kNVTEFloat32);
      set(out, kNVTEAmax, amax, kNVTEFloat32);
    }
    const NVTEQuantizationConfig config = create_config_();
    const uint8_t power_of_two =
        side.granularity == Granularity::kBlock128 || side.granularity == Granularity::kSquare128;
    set_config_(config, kNVTEQuantizationConfigForcePow2Scales, &power_of_two, 1);
    if (fp8::traits_of(recipe).scale_rule == fp8::ScaleRule::kTe) {
      amax_(in, out, config, nullptr);
      scale_(out, config, nullptr);
    }
    quantize_(in, out, config, nullptr);
    destroy_config_(config);
    destroy_(in);
    destroy_(out);
    return copy;
  }

 private:
  void set(NVTETensor tensor, NVTETensorParam param, const Tensor& buffer, NVTEDType type) const {
    NVTEBasicTensor basic{buffer.data_ptr(), type, {}};
    basic.shape.ndim = static_cast<size_t>(buffer.dim());
    for (int64_t i = 0; i < buffer.dim(); ++i)
      basic.shape.data[i] = static_cast<size_t>(buffer.size(i));
    set_(tensor, param, &basic, sizeof basic);
  }
  void describe(NVTETensor tensor, const Fp8Copy& copy, const fp8::Side& side,
                Direction direction) const {
    const engine::te::CopyParams params = engine::te::params_of(side, direction, facts_);
    set(tensor, params.data, copy.codes, engine::te::type_of(side.format));
    const bool bytes = side.granularity == Granularity::kBlock32;
    set(tensor, params.scales, copy.scales, bytes ? kNVTEFloat8E8M0 : kNVTEFloat32);
    const uint8_t swizzled = bytes ? 1 : 0;
    set_(tensor, kNVTEWithGEMMSwizzledScales, &swizzled, 1);
  }

  engine::te::DeviceFacts facts_;
  decltype(&nvte_create_tensor) create_ = nullptr;
  decltype(&nvte_destroy_tensor) destroy_ = nullptr;
  decltype(&nvte_set_tensor_param_v2) set_ = nullptr;
  decltype(&nvte_create_quantization_config) create_config_ = nullptr;
  decltype(&nvte_set_quantization_config_attribute) set_config_ = nullptr;
  decltype(&nvte_destroy_quantization_config) destroy_config_ = nullptr;
  decltype(&nvte_compute_amax_with_config) amax_ = nullptr;
  decltype(&nvte_compute_scale_from_amax) scale_ = nullptr;
  decltype(&nvte_quantize_v2) quantize_ = nullptr;
};

}  // namespace

Backend make_te_backend(int capability) {
  const auto info = engine::te::library_info();
  if (!info.problem.empty()) fail(ExitCode::kEnvironment, "gpu_gemms", info.problem);
  const auto stand_in = std::make_shared<StandIn>(capability);
  return {.name = "te",
          .capability = capability,
          .quantize =
              [stand_in](const Tensor& x, Recipe recipe, const QuantizeSpec& row,
                         const QuantizeSpec& column) {
                Fp8Matrix matrix = matrix_for(x, row, column);
                if (row.wanted) matrix.row = stand_in->quantize(x, recipe, row, Direction::kRow);
                if (column.wanted)
                  matrix.column = stand_in->quantize(x, recipe, column, Direction::kColumn);
                return matrix;
              },
          .op = engine::te::make_fp8_linear(),
          // No rowwise recipe; rows in eights for blocks of 128, and from 10.0 on none of these: a
          // kernel rewrites their scales for the GEMM, and kernels do not run on this device
          // (te_calls has such steps with numbers).
          .serves =
              [capability](Recipe recipe, const Shape& shape) {
                const fp8::RecipeTraits& row = fp8::traits_of(recipe);
                if (row.activations == Granularity::kBlock128)
                  return capability < 100 && shape.tokens % 8 == 0;
                return row.in_transformer_engine;
              }};
}

}  // namespace octavo::gemms
