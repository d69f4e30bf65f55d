#pragma once
// Where the numbers of a pass stop being finite. Every GEMM of a linear layer adds some of its
// results, at least one of each row, to a slot of its layer: a NaN or an infinity in an operand
// fills a row of the result, so the first slot that is not finite names the layer. It costs a
// strided read and no wait for the device; the slots are read when a step has gone wrong.

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>

#include "nn/linear.h"

namespace octavo::nn {

enum class Pass : uint8_t { kForward, kBackward };

// Adds to the layer's slot; `result` may be undefined.
void note_result(Linear& layer, Pass pass, const at::Tensor& result);
// A cast that saturates has hidden an infinity of the layer's operand.
void note_infinity(Linear& layer, Pass pass);

// On a GPU a look is two launches for every GEMM. Where what is not finite reaches the loss or a
// gradient by itself, so that no step misses it, they look when a step is done again to see why.
enum class ProbeUse : uint8_t { kEveryStep, kRepeatedSteps };

class Probes {
 public:
  explicit Probes(const LinearList& layers, ProbeUse use = ProbeUse::kEveryStep);
  ~Probes();
  Probes(const Probes&) = delete;
  Probes& operator=(const Probes&) = delete;

  void begin_step(bool repeated = false);
  bool looking() const { return looking_; }  // in this step
  at::Tensor total() const;                  // double [1] on the device: finite when all are

  // The order of a step: the layers forward, the loss, the layers backward. Waits for the device.
  std::optional<int64_t> first_bad() const;
  int64_t places() const { return 2 * static_cast<int64_t>(layers_.size()) + 1; }
  std::string name_of_place(int64_t place) const;

 private:
  void look(bool yes);

  LinearList layers_;
  ProbeUse use_;
  bool looking_ = false;
  at::Tensor slots_;    // FP32 [layers, 2]
  at::Tensor nothing_;  // the total of a step in which nobody looks
};

}  // namespace octavo::nn
