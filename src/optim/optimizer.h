#pragma once
// What training needs of an optimizer, and what all of them share: the parameters that are trained,
// the global norm of their gradients and its clipping. Weights and gradients are as the parameters
// have them (nn::Storage).

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "nn/param.h"
#include "optim/moments.h"

namespace octavo::optim {

struct Options {
  double beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0.1;
  double max_grad_norm = 1.0;              // 0: no clipping
  MomentType moments = MomentType::kFp32;  // of matrices; vectors' are FP32
  uint64_t seed = 0;                       // of stochastic rounding
};

using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;
// The stored tensor of a name, undefined when there is none.
using StateSource = std::function<at::Tensor(const std::string& name)>;

class Optimizer {
 public:
  // Frozen parameters are left out.
  Optimizer(const engine::Engine& engine, nn::ParamList params, const Options& options);
  virtual ~Optimizer() = default;

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
  // The bytes that a trainable parameter takes on average: master, compute copy, state and
  // gradient.
  double bytes_per_parameter() const;
  // What a checkpoint keeps of the optimizer: tensors named "<kind>.<param>".
  virtual NamedTensors state() const = 0;
  void load(int64_t steps, const StateSource& find);

 protected:
  // Updates the masters and compute copies of params(); gradients count times `gradient_scale`.
  // steps() counts this step already.
  virtual void update(double learning_rate, double gradient_scale) = 0;
  // A tensor that `find` does not have is an error.
  virtual void load_state(const StateSource& find) = 0;

  const engine::Engine& engine() const { return engine_; }
  const nn::ParamList& params() const { return params_; }
  const Options& options() const { return options_; }

 private:
  const engine::Engine& engine_;
  nn::ParamList params_;
  Options options_;
  int64_t steps_ = 0;
};

using Maker = std::unique_ptr<Optimizer> (*)(const engine::Engine& engine, nn::ParamList params,
                                             const Options& options);
// For a program that brings its own; adamw is there.
void add_maker(const std::string& name, Maker maker);
std::unique_ptr<Optimizer> make(const std::string& name, const engine::Engine& engine,
                                nn::ParamList params, const Options& options);

}  // namespace octavo::optim
