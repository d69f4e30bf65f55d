#pragma once
// Operations by Transformer Engine's C library, which is loaded when it is found. BF16 and FP8; on
// GPUs of compute capability 8.9 and above.

#include <memory>
#include <string>

#include "engine/fp8_linear.h"
#include "engine/op_table.h"
#include "engine/ops.h"

namespace octavo::engine::te {

// The library was found and is of a version that this was written for. The first call loads it: ask
// only in a process that has a GPU.
bool is_available();

struct LibraryInfo {
  std::string path, version;  // "" when there is none
  std::string problem;        // why there is none, and where it was looked for
};
LibraryInfo library_info();

// For the tables. Loads the library only for a target that wants it.
std::string refusal(const Target& target);            // of FP8 GEMMs
std::string operation_refusal(const Target& target);  // of norms, activations and RoPE
std::string matmul_refusal(const Target& target);     // of BF16 GEMMs that sum biases

std::unique_ptr<Fp8Linear> make_fp8_linear();
std::unique_ptr<Matmul> make_matmul();
std::unique_ptr<LayerNorm> make_layer_norm();
std::unique_ptr<RmsNorm> make_rms_norm();
std::unique_ptr<Gelu> make_gelu();
std::unique_ptr<SwiGlu> make_swiglu();
std::unique_ptr<Rope> make_rope();

}  // namespace octavo::engine::te
