#pragma once
// The FP8 side of one linear layer: quantizes its three tensors by the run's recipe, keeps the
// quantized weight while the weight stays the same, and takes statistics when asked to.

#include <ATen/core/Tensor.h>

#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "nn/fp8_scaling.h"
#include "nn/norm.h"
#include "nn/param.h"

namespace octavo::nn {

struct Linear;

// How long a quantized weight lives.
enum class WeightCopies : uint8_t {
  kKeep,  // until the weight changes: the next micro-batch uses it again
  kStep,  // a copy that serves one GEMM is let go after it: its memory is still in the cache
          // when the next layer takes it
  kGemm   // no longer than one GEMM: never in memory for more than one layer
};

// What the layers of a model share.
struct Fp8Shared {
  const engine::Engine* engine = nullptr;
  fp8::Options options;
  Fp8Scaling scaling;      // empty unless the recipe is delayed
  bool measuring = false;  // this step takes statistics
  WeightCopies copies = WeightCopies::kKeep;
  std::vector<Linear*> layers;  // that may have FP8: their weights are quantized together
  // Of stochastic rounding: what the draws of a pass are of. The pass is numbered over ranks.
  uint64_t seed = 0, pass = 0;
};

class Fp8Layer {
 public:
  Fp8Layer(Fp8Shared& shared, const std::string& layer_name);

  // For the forward GEMM; `training` records the largest magnitude, `keep` makes the copy that
  // the weight gradient will read.
  engine::Fp8Matrix input(const at::Tensor& x, bool training, bool keep);
  // The same of norm(x) and of an activation of x in one pass. Nothing when the engine has no such
  // pass, or when this step takes statistics, which are of numbers that such a pass never writes.
  // delta, which is added to x first, may be undefined.
  std::optional<engine::Fp8Linear::Normed> normed_input(const at::Tensor& x,
                                                        const at::Tensor& delta, const Norm& norm,
                                                        bool training, bool keep);
  std::optional<engine::Fp8Matrix> activated_input(engine::Activation activation,
                                                   const at::Tensor& x, bool training, bool keep);
  // An input again from what was kept of it (codes, scales).
  engine::Fp8Matrix kept_input(int64_t rows, int64_t columns,
                               const std::vector<at::Tensor>& kept) const;
  // Made once for each state of the weight; the column copy when it is first needed.
  const engine::Fp8Matrix& weight(const Param& param, bool column);
  // What there is of it now.
  const engine::Fp8Matrix& kept_weight() const { return weight_; }
  // What was made of the weight is let go, and made again when it is next needed.
  void forget_weight() {
    weight_.row = weight_.column = {};
    weight_version_.reset();
  }
  // The same of the own part: its magnitudes are recorded again.
  void forget_parts() { parts_ = {}; }
  // A weight whose rows are spread over ranks is quantized before it is gathered.
  // What a rank's rows do not say of the whole, to be agreed by a maximum over ranks before
  // `part`: per-tensor recipes other than delayed the largest magnitude [1], rowwise that of every
  // column [I]; nothing otherwise.
  std::optional<at::Tensor> magnitudes(const Param& param) const;
  void agree(const at::Tensor& magnitudes) { agreed_ = magnitudes; }
  // This rank's rows (Param::own) as one-byte codes and scales, both row-major, made once for each
  // state of the weight. `shared_scales`: they are the same on all ranks.
  struct Part {
    at::Tensor codes, scales;
    bool shared_scales = false;
  };
  Part part(const Param& param, fp8::Direction direction);
  // Why not, in a few words; "" when it can.
  std::string no_parts_reason(const Param& param) const;
  bool one_part_serves_both() const {
    return side(fp8::Role::kWeight, fp8::Direction::kRow) ==
               side(fp8::Role::kWeight, fp8::Direction::kColumn) &&
           is_symmetric(side(fp8::Role::kWeight, fp8::Direction::kRow).granularity);
  }
  // The weight from everybody's parts. Until forget_weight().
  void adopt(const Param& param, fp8::Direction direction, const Part& whole);

  // After a GEMM: lets the copy go that nobody will read. `training`: of a training step.
  void release_weight(fp8::Direction direction, bool training);
  // `row` is read by the input gradient, `column` by the weight gradient. Adds dy's column sums to
  // the gradient of `bias`, unless it is null.
  engine::Fp8Matrix gradient(const at::Tensor& dy, bool row, bool column, Param* bias = nullptr);
  // The same of the gradient of an activation's input; adds its column sums to the bias's gradient.
  std::optional<engine::Fp8Matrix> activation_gradient(engine::Activation activation,
                                                       const at::Tensor& dy, const at::Tensor& x,
                                                       Param* bias, bool row, bool column);

  // What is quantized from here on stands for no token: it is nothing in the statistics.
  void set_idle(bool idle) { idle_ = idle; }

  // What was measured since the last take_measured(), micro-batch after micro-batch: its stats
  // (fp8/health.h) lie on the device until the host reads those of all layers at once.
  struct Measured {
    fp8::Role role;
    fp8::Direction direction;
    at::Tensor stats;  // of a down projection's input with those of its channels (fp8/channels.h)
  };
  const std::vector<Measured>& measured() const { return measured_; }
  std::vector<Measured> take_measured() { return std::exchange(measured_, {}); }

  fp8::Side side(fp8::Role role, fp8::Direction direction) const;

 private:
  // Whether the weight is here, is to be quantized anew, and may be while others are.
  bool awaits_weight(const Param& param) const;
  void quantize_together();
  engine::QuantizeSpec order(fp8::Role role, fp8::Direction direction, bool wanted,
                             bool record) const;
  void measure(fp8::Role role, const at::Tensor& x, const engine::Fp8Matrix& quantized);

  Fp8Shared& shared_;
  uint64_t stream_;  // of random numbers
  // Delayed: the slot of each role and direction.
  std::array<std::array<int64_t, 2>, 3> slots_{};
  engine::Fp8Matrix weight_;
  std::optional<uint64_t> weight_version_;
  struct VersionedPart {
    Part part;
    uint64_t version = 0;
  };
  std::array<std::optional<VersionedPart>, 2> parts_;  // by direction
  at::Tensor agreed_;
  std::vector<Measured> measured_;
  bool idle_ = false;
  bool watches_channels_;  // of its input: it is a down projection
};

}  // namespace octavo::nn
