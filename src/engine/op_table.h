#pragma once
// Which implementation of an operation runs is decided by an ordered table that ends in the
// reference. An implementation that cannot serve a target refuses with its reason, and the reasons
// are kept for the receipt.

#include <ATen/core/Tensor.h>

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace octavo::engine {

// Whose FP8 kernels run: decided once for the run (fp8::decide).
enum class Fp8Kernels : uint8_t { kRehearsal, kAten, kTransformerEngine };

// BF16 units of the CPU: as they are, or as a test or a page of the docs would have them.
enum class Bf16Units : uint8_t { kAsFound, kPresent, kAbsent };

// What the chosen implementations must serve.
struct Target {
  at::Device device = at::kCPU;
  at::ScalarType compute = at::kBFloat16;  // dtype of activations: BF16 or FP32
  bool reference_only = false;             // for tests and for finding out who is wrong
  int capability = 0;                      // of a GPU: 10 * major + minor
  bool deterministic = false;              // every sum in a fixed order
  Fp8Kernels fp8 = Fp8Kernels::kRehearsal;
  // Norms, activations and RoPE by Transformer Engine whatever multiplies, so that runs in BF16 and
  // in FP8 differ by their GEMMs alone.
  bool te_operations = false;
  Bf16Units bf16_units = Bf16Units::kAsFound;
  bool hopper_sums = false;  // FP8 GEMMs are rehearsed with Hopper's accumulators, on a CPU
};

struct Refused {
  std::string implementation, reason;
};

// One line of the receipt: who runs an operation, and why those before it in the table do not.
struct Choice {
  std::string op, implementation;
  std::vector<Refused> refused;
};

template <class Op>
struct Implementation {
  std::string_view name;                  // "cpu/onednn", "reference", …
  std::string (*refusal)(const Target&);  // "" = serves this target
  std::unique_ptr<Op> (*make)();
};

// The ordered table of an operation; specialised once per operation beside its implementations.
template <class Op>
std::span<const Implementation<Op>> implementations();

template <class Op>
std::unique_ptr<Op> pick(const Target& target, std::vector<Choice>& choices) {
  Choice choice{.op = std::string(Op::kName), .implementation = {}, .refused = {}};
  for (const auto& candidate : implementations<Op>()) {
    std::string reason = candidate.refusal(target);
    if (reason.empty()) {
      choice.implementation = candidate.name;
      choices.push_back(choice);
      return candidate.make();
    }
    choice.refused.push_back({std::string(candidate.name), std::move(reason)});
  }
  fail(ExitCode::kEnvironment, "engine", "no implementation of ", Op::kName, " serves ",
       target.device.str(), " in ", at::toString(target.compute));
}

}  // namespace octavo::engine
