// The constants and what they mean: thirty, each with a prior. bench/calibrate_plan.py writes the
// values.
//   memory            share of the data sheet's memory bandwidth that long passes reach
//   ramp              steps of the contraction that filling and draining a GEMM's pipeline costs
//   nvlink, pcie, network   share of the link's rate that collectives reach
//   adapters          traffic of LoRA's scaling, dropout and sums, 1 = each byte moved once
//   attention         rate of attention's forward pass over that of large GEMMs, heads of 128
//   attention_cut     the same where the vendor cuts the rate of GEMMs: GeForce
//   attention_ramp    tokens of a sequence that filling attention's pipeline costs
//   flash2            rate of flash attention 2 on GPUs newer than it, of the tuned kernels'
//   FAMILY.bf16       share of the peak that large GEMMs reach: what power leaves
//   fp8_share         that of FP8 GEMMs, over BF16's
//   STACK.passes      elementwise traffic, 1 = every fusion that is obvious
//   logits            bytes moved per logit in the loss, forward and backward, times the passes
//   quantize          traffic of quantization, 1 = each byte moved once, times the passes
//   host              microseconds of host work per layer and pass, times the passes
//   overlap           share of the computation that collectives can hide behind
//   contention        share of a hidden collective's time that slows what hides it
//   selective         share of the forward pass that selective recomputation repeats
// Stacks: native (hand-written CUDA), fused (Transformer Engine), compiled (torch.compile), eager
// (PyTorch), foundry (PyTorch eager with FSDP 1), hf (transformers' trainer), xla (JAX). What more
// than one of them, or of the families, would need has one constant and the stack's passes: a
// program that moves more bytes than it must does so everywhere.

#include "plan/calibration.h"

#include "base/error.h"

namespace octavo::plan {
namespace {

bool is_stack(std::string_view name) {
  constexpr std::string_view kStacks[] = {"native",  "fused", "compiled", "eager",
                                          "foundry", "hf",    "xla"};
  for (const std::string_view stack : kStacks)
    if (stack == name) return true;
  return false;
}

// Families that share what they were measured by.
std::string_view measured_family(std::string_view family) {
  if (family == "blackwell_ultra") return "blackwell";
  if (family == "hopper_500w") return "hopper";
  return family == "ada" || family == "blackwell_rtx" ? "rtx" : family;
}

// GeForce accumulates in FP32 at half the rate; softmax runs at all of it.
bool is_cut(std::string_view family) {
  return family == "blackwell_rtx" || family == "ada";
}

}  // namespace

double power_of(std::string_view family) {
  if (family == "hopper_500w") return 500.0 / 700;
  return family == "blackwell_ultra" ? 1400.0 / 1200 : 1;  // GB300's over GB200's
}

const Calibration& Calibration::fitted() {
  static const Calibration kFitted = [] {
    struct Entry {
      const char* name;
      double value;
    };
    static constexpr Entry kTable[] = {
#include "plan/calibration_table.inc"
    };
    Calibration calibration;
    for (const Entry& entry : kTable) calibration.set(entry.name, entry.value);
    return calibration;
  }();
  return kFitted;
}

double Calibration::of(std::string_view name) const {
  const auto found = values_.find(name);
  if (found != values_.end()) return found->second;
  const size_t dot = name.find('.');
  if (dot == name.npos)
    fail(ExitCode::kUsage, "plan", str("no constant named ", name, " in the calibration"));
  const std::string_view who = name.substr(0, dot), what = name.substr(dot + 1);
  return is_stack(who) ? of_stack(who, what) : of_family(who, what);
}

double Calibration::of_stack(std::string_view stack, std::string_view what) const {
  if (what == "attention") return 1;
  if (what == "overlap" || what == "contention" || what == "selective") return of(what);
  if (what == "passes")
    fail(ExitCode::kUsage, "plan", str("no constant named ", stack, ".passes in the calibration"));
  return of(what) * of(str(stack, ".passes"));
}

double Calibration::of_family(std::string_view family, std::string_view what) const {
  if (what == "fp8") return of(str(family, ".bf16")) * of("fp8_share");
  if (what == "attention")
    return of(str(family, ".bf16")) * of(is_cut(family) ? "attention_cut" : "attention");
  const std::string_view measured = measured_family(family);
  if (what != "bf16" || measured == family)
    fail(ExitCode::kUsage, "plan",
         str("no constant named ", family, ".", what, " in the calibration"));
  return power_of(family) * of(str(measured, ".", what));
}

}  // namespace octavo::plan
