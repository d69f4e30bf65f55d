#pragma once
// AdamW, with weight decay for matrices only, and clipping of the global gradient norm. Masters and
// gradients are as the parameters have them (nn::Storage), the moments of matrices as the options
// say. Frozen parameters are left out.

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "nn/param.h"
#include "optim/moments.h"

namespace octavo::optim {

struct AdamWOptions {
  double beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0.1;
  double max_grad_norm = 1.0;              // 0: no clipping
  MomentType moments = MomentType::kFp32;  // of matrices; vectors' are FP32
  uint64_t seed = 0;                       // of stochastic rounding
};

class AdamW {
 public:
  AdamW(const engine::Engine& engine, nn::ParamList params, const AdamWOptions& options);

  struct Norm {
    double value = 0;
    std::string
        not_finite;  // the parameter whose gradient has a NaN or an infinity; "" when none has
  };
  Norm gradient_norm() const;  // waits for the device
  // Sums of squares, double [trainable parameters] on the device: does not wait for it.
  at::Tensor gradient_squares() const;
  // Of the sums above, once they are in the CPU's memory.
  Norm gradient_norm(const at::Tensor& squares) const;
  // Clips, updates every master and its compute copy, and uses up the gradients. The norm is
  // finite.
  void step(double learning_rate, const Norm& norm);
  // Uses up the gradients and changes nothing else.
  void drop_gradients();

  int64_t steps() const { return steps_; }
  // The bytes that a trainable parameter takes on average: master, compute copy, moments with their
  // scales, and gradient.
  double bytes_per_parameter() const;
  // The moments by name ("m.<param>", "v.<param>"; of FP8 also "m_scale.<param>",
  // "v_scale.<param>"), as a checkpoint keeps them.
  std::vector<std::pair<std::string, at::Tensor>> state() const;
  // `find` returns the stored tensor of a name, undefined when there is none (an error). Moments of
  // another type are converted, which is logged.
  void load(int64_t steps, const std::function<at::Tensor(const std::string&)>& find);

 private:
  const engine::Engine& engine_;
  nn::ParamList params_;
  AdamWOptions options_;
  std::vector<Moment> m_, v_;
  int64_t steps_ = 0;
};

}  // namespace octavo::optim
