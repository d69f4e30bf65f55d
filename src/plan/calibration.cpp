// The constants and what they mean. bench/calibrate_plan.py writes the values.
//   memory            share of the data sheet's memory bandwidth that long passes reach
//   ramp              steps of the contraction that filling and draining a GEMM's pipeline costs
//   nvlink, pcie, network   share of the link's rate that collectives reach
//   adapters          traffic of LoRA's scaling, dropout and sums, 1 = each byte moved once
//   attention_ramp    tokens of a sequence that filling attention's pipeline costs
//   flash2            rate of flash attention 2 on GPUs newer than it, of the tuned kernels'
//   FAMILY.bf16, .fp8, .attention   share of the peak that large GEMMs and attention reach
//   STACK.passes      elementwise traffic, 1 = every fusion that is obvious
//   STACK.logits      bytes moved per logit in the loss, forward and backward
//   STACK.quantize    traffic of quantization, 1 = each byte moved once
//   STACK.attention   quality of the attention kernels, times the family's share
//   STACK.host        microseconds of host work per layer and pass, launches included
//   STACK.step        milliseconds a step costs beside its micro-steps
//   STACK.overlap     share of the computation that collectives can hide behind
//   STACK.contention  share of a hidden collective's time that slows what hides it
//   STACK.selective   share of the forward pass that selective recomputation repeats
// Stacks: native (hand-written CUDA), fused (Transformer Engine), compiled (torch.compile), eager
// (PyTorch), foundry (PyTorch eager with FSDP 1), hf (transformers' trainer), xla (JAX).

#include "plan/calibration.h"

#include "base/error.h"

namespace octavo::plan {

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
  if (found == values_.end())
    fail(ExitCode::kUsage, "plan", str("no constant named ", name, " in the calibration"));
  return found->second;
}

}  // namespace octavo::plan
