#pragma once
// What the routers of a model have in common in a training pass: the losses that keep experts in
// even use, which are of all layers together, and how many rows each expert got.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace octavo::nn {

struct RoutingSizes {
  int64_t layers = 0;  // with experts
  int64_t experts = 0, active = 0;
  int64_t weights = 0;        // of all routers
  double balance_weight = 0;  // of the balance loss, as the model's file asks for it; 0: not in use
};

class Routing {
 public:
  explicit Routing(const RoutingSizes& sizes) : sizes_(sizes) {}

  // Between the two a forward and backward pass of training runs, whose gradients take
  // balance_scale times the balance loss and z_scale times the z-loss.
  void begin_pass(double balance_scale, double z_scale);
  // FP64 [2 + layers * experts] on the device: the balance loss and the z-loss, unscaled, and the
  // rows of each expert, layer by layer.
  at::Tensor end_pass();

  // For the routers. A layer that runs again in the backward pass tells the same again.
  bool recording() const { return recording_; }
  struct Layer {
    int64_t tokens = 0;
    at::Tensor counts;         // [experts] int64: rows
    at::Tensor probabilities;  // [experts] FP32: sums over tokens
    at::Tensor squares;        // [] FP32: sum of logsumexp^2
  };
  void record(int64_t layer, Layer told);
  // What the losses add to the gradient of every token's probabilities [experts], and the factor of
  // logsumexp times probability in the gradient of its logits. All layers have run.
  at::Tensor balance_gradient() const;
  double z_gradient() const { return 2 * z_scale_ / rows(); }

  const RoutingSizes& sizes() const { return sizes_; }

 private:
  double rows() const;                             // tokens of all layers
  at::Tensor sum_of(at::Tensor Layer::*of) const;  // over layers

  RoutingSizes sizes_;
  bool recording_ = false;
  double balance_scale_ = 0, z_scale_ = 0;
  std::vector<Layer> layers_;
};

}  // namespace octavo::nn
