#pragma once
// Transformer Engine's C library, opened at run time: octavo is not linked against it, and a
// process without a GPU never loads it. The types of its functions come from its own headers; this
// is the only module that sees them, and CUDA's with them.

#include <ATen/core/Tensor.h>
#include <c10/core/DeviceGuard.h>
#include <transformer_engine/activation.h>
#include <transformer_engine/cast.h>
#include <transformer_engine/fused_rope.h>
#include <transformer_engine/gemm.h>
#include <transformer_engine/hadamard_transform.h>
#include <transformer_engine/normalization.h>
#include <transformer_engine/recipe.h>
#include <transformer_engine/swizzle.h>
#include <transformer_engine/transformer_engine.h>
#include <transformer_engine/transpose.h>

#include <exception>
#include <string>
#include <type_traits>

#include "engine/te/traffic.h"
#include "engine/traffic.h"

namespace octavo::engine::te {

// Fails with the name of the call and what it said.
[[noreturn]] void report_exception(const char* call, const char* said);

// One function of the library. It reports errors by C++ exceptions through its C interface; here
// they become ours.
template <class Pointer>
class Function;
template <class Result, class... Arguments>
class Function<Result (*)(Arguments...)> {
 public:
  explicit Function(const char* name) : name_(name) {}
  const char* name() const { return name_; }
  void set(void* address) { pointer_ = reinterpret_cast<Result (*)(Arguments...)>(address); }

  Result operator()(Arguments... arguments) const {
    try {
      if constexpr (std::is_void_v<Result>) {
        pointer_(arguments...);
        if (traffic_listener() != nullptr) report_call(name_, {handle_of(arguments)...});
      } else {
        return pointer_(arguments...);
      }
    } catch (const std::exception& error) {
      report_exception(name_, error.what());
    } catch (...) {
      report_exception(name_, "something that is no std::exception");
    }
  }

 private:
  template <class Argument>
  static const void* handle_of(Argument argument) {
    if constexpr (std::is_same_v<Argument, NVTETensor>)
      return argument;
    else
      return nullptr;
  }

  const char* name_;
  Result (*pointer_)(Arguments...) = nullptr;
};

// All that octavo calls. Each exists with this signature from 2.18 on.
#define OCTAVO_TE_FUNCTIONS(F)                         \
  F(nvte_create_tensor)                                \
  F(nvte_destroy_tensor)                               \
  F(nvte_set_tensor_param_v2)                          \
  F(nvte_tensor_shape)                                 \
  F(nvte_tensor_type)                                  \
  F(nvte_create_quantization_config)                   \
  F(nvte_set_quantization_config_attribute)            \
  F(nvte_destroy_quantization_config)                  \
  F(nvte_create_matmul_config)                         \
  F(nvte_set_matmul_config_attribute)                  \
  F(nvte_destroy_matmul_config)                        \
  F(nvte_is_non_tn_fp8_gemm_supported)                 \
  F(nvte_quantize_v2)                                  \
  F(nvte_compute_amax_with_config)                     \
  F(nvte_compute_scale_from_amax)                      \
  F(nvte_cublas_gemm_v2)                               \
  F(nvte_delayed_scaling_recipe_amax_and_scale_update) \
  F(nvte_layernorm_fwd)                                \
  F(nvte_layernorm_bwd)                                \
  F(nvte_rmsnorm_fwd)                                  \
  F(nvte_rmsnorm_bwd)                                  \
  F(nvte_rmsnorm_bwd_add)                              \
  F(nvte_gelu)                                         \
  F(nvte_dgelu)                                        \
  F(nvte_swiglu)                                       \
  F(nvte_dswiglu)                                      \
  F(nvte_dswiglu_cast_transpose)                       \
  F(nvte_quantize_dbias_dgelu)                         \
  F(nvte_fused_rope_forward)                           \
  F(nvte_fused_rope_backward)                          \
  F(nvte_transpose)                                    \
  F(nvte_multi_cast_transpose)                         \
  F(nvte_hadamard_transform)                           \
  F(nvte_hadamard_transform_amax)                      \
  F(nvte_swizzle_scaling_factors)                      \
  F(nvte_swizzle_block_scaling_to_mxfp8_scaling_factors)

struct Library {
  std::string path, version;  // version: "unknown" when nothing beside the library tells it
  // Of a stand-in for tests, whose "device" is the CPU, or a fake one in the same memory: the
  // compute capability that it plays, as 10 * major + minor. 0: the real library, which takes
  // tensors of GPUs only.
  int double_capability = 0;
  bool serves(at::Device device) const;

#define OCTAVO_TE_MEMBER(name) Function<decltype(&::name)> name{#name};
  OCTAVO_TE_FUNCTIONS(OCTAVO_TE_MEMBER)
#undef OCTAVO_TE_MEMBER
};

// What became of looking for the library: the first call looks, later ones remember.
struct Search {
  const Library* library = nullptr;
  std::string problem;  // why there is none, and where it was looked for
};
const Search& search();

// The library; fails where there is none.
const Library& library();

// What calls need to know of the device that tensors are on.
struct DeviceFacts {
  int capability = 0;  // 10 * major + minor
  int multiprocessors = 1;
  // FP8 GEMMs of one scale per tensor take operands in any layout (10.x); others want the summed
  // dimension contiguous, and so a transposed column copy.
  bool any_layout = false;
  // Has no GEMMs of blocks of 128; those of blocks of 32 serve.
  bool multiplies_128_as_32() const { return capability >= 100; }
};
const DeviceFacts& facts_of(at::Device device);

// Where a call runs: the tensors' device, made the current one, and its current stream. Fails for
// tensors that are not on a GPU.
struct OnDevice {
  explicit OnDevice(const at::Tensor& tensor);
  c10::DeviceGuard guard;
  at::Device device;
  const DeviceFacts& facts;
  cudaStream_t stream;
};

}  // namespace octavo::engine::te
