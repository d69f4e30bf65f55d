#pragma once
// AdamW, with weight decay for matrices only. The moments of matrices are kept as the options say.

#include "optim/optimizer.h"

namespace octavo::optim {

class AdamW final : public Optimizer {
 public:
  AdamW(const engine::Engine& engine, nn::ParamList params, const Options& options);

  // The moments: "m.<param>" and "v.<param>", of FP8 also "m_scale.<param>" and "v_scale.<param>".
  NamedTensors state() const override;

 private:
  void update(double learning_rate, double gradient_scale) override;
  // Moments of another type are converted, which is logged.
  void load_state(const StateSource& find) override;

  std::vector<Moment> m_, v_;
};

std::unique_ptr<Optimizer> make_adamw(const engine::Engine& engine, nn::ParamList params,
                                      const Options& options);

}  // namespace octavo::optim
