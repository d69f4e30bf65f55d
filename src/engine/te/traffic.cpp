#include "engine/te/traffic.h"

#include <string_view>
#include <unordered_map>

#include "engine/traffic.h"

namespace octavo::engine::te {
namespace {

struct Buffers {
  int64_t row = 0, column = 0, column_scales = 0, others = 0;
  int64_t all() const { return row + column + column_scales + others; }
};

// Handles live as long as a call, and in its thread.
std::unordered_map<const void*, Buffers>& remembered() {
  thread_local std::unordered_map<const void*, Buffers> all;
  return all;
}

// What a call does with its tensors, in their order: r read, w written, o written and, where a copy
// transposed is wanted of one scale per tensor, read again by a kernel of its own; k working
// memory, without which the call only asks how much it wants; - not touched, or a few numbers.
struct LibraryCall {
  std::string_view name, tensors;
};
constexpr LibraryCall kLibraryCalls[] = {
    {"nvte_quantize_v2", "rw"},
    {"nvte_compute_amax_with_config", "r-"},
    {"nvte_compute_scale_from_amax", "-"},
    {"nvte_cublas_gemm_v2", "rrrwk"},
    {"nvte_delayed_scaling_recipe_amax_and_scale_update", "rrww"},
    {"nvte_layernorm_fwd", "rrrowwk"},
    {"nvte_layernorm_bwd", "rrrrrwwwk"},
    {"nvte_rmsnorm_fwd", "rrowk"},
    {"nvte_rmsnorm_bwd", "rrrrwwk"},
    {"nvte_rmsnorm_bwd_add", "rrrrrwwk"},
    {"nvte_gelu", "ro"},
    {"nvte_dgelu", "rro"},
    {"nvte_swiglu", "ro"},
    {"nvte_dswiglu", "rro"},
    {"nvte_dswiglu_cast_transpose", "rrw"},
    {"nvte_quantize_dbias_dgelu", "rrwwk"},
    {"nvte_transpose", "rw"},
    {"nvte_multi_cast_transpose", "rw"},  // told for each matrix of its list
    {"nvte_hadamard_transform", "rw"},
    {"nvte_hadamard_transform_amax", "r-"},
    {"nvte_swizzle_scaling_factors", "rw"},
    {"nvte_swizzle_block_scaling_to_mxfp8_scaling_factors", "rw"},
    {"nvte_fused_rope_forward", "r-rrw"},
    {"nvte_fused_rope_backward", "r-rrw"},
};

struct Traffic {
  int64_t read = 0, written = 0;
  bool runs = true;

  void add(char what, const Buffers& b) {
    if (what == 'k') runs = b.all() > 0;
    if (what == 'r' || what == 'k') read += b.all();
    if (what == 'w' || what == 'o' || what == 'k') written += b.all();
    const bool one_scale = b.column_scales <= static_cast<int64_t>(sizeof(float));
    if (what == 'o' && b.column > 0 && one_scale) read += b.row;
  }
};

}  // namespace

void remember_buffer(NVTETensor handle, NVTETensorParam param, int64_t bytes) {
  Buffers& b = remembered()[handle];
  if (param == kNVTERowwiseData)
    b.row = bytes;
  else if (param == kNVTEColumnwiseData)
    b.column = bytes;
  else if (param == kNVTEColumnwiseScaleInv)
    b.column_scales = bytes;
  else
    b.others += bytes;
}

void forget_buffers(NVTETensor handle) {
  remembered().erase(handle);
}

void report_call(const char* name, std::initializer_list<const void*> arguments) {
  for (const LibraryCall& call : kLibraryCalls) {
    if (call.name != name) continue;
    Traffic traffic;
    size_t next = 0;
    for (const void* argument : arguments) {
      if (next == call.tensors.size()) break;
      if (argument == nullptr) continue;
      const auto found = remembered().find(argument);
      traffic.add(call.tensors[next++], found == remembered().end() ? Buffers{} : found->second);
    }
    if (traffic.runs) traffic_listener()->on_operation(name, traffic.read, traffic.written);
  }
}

}  // namespace octavo::engine::te
