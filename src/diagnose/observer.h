#pragma once
// Looks at the operands of every linear layer while a pass runs. Nothing of it is on the way of
// training: layers have no observer there.

#include <map>
#include <string>
#include <vector>

#include "diagnose/what_if.h"
#include "nn/fp8_model.h"

namespace octavo::diagnose {

class Observer final : public nn::LinearObserver {
 public:
  struct Options {
    fp8::Options in_use;
    bool keep_tensors = false;               // for a capture file
    const engine::Engine* hopper = nullptr;  // with Hopper's accumulators, when those are asked for
    std::function<void(const std::string& layer)> on_layer;
  };
  // `engine` rehearses.
  Observer(const engine::Engine& engine, const nn::LinearList& layers, Options options);
  ~Observer() override;
  Observer(const Observer&) = delete;
  Observer& operator=(const Observer&) = delete;

  // From now on tensors are looked at; before, only their largest magnitudes are remembered, from
  // which delayed takes its factors. `state`: of the run's own delayed scaling, which is taken
  // where it has a tensor.
  void start_observing(const std::vector<std::pair<std::string, at::Tensor>>& state);

  void on_input(nn::Linear& layer, const at::Tensor& x) override;
  void on_gradient(nn::Linear& layer, const at::Tensor& dy) override;

  // In the order of the layers.
  std::vector<LayerStats> take_stats();
  // "<layer>.input", "<layer>.weight", "<layer>.gradient", in BF16.
  std::vector<std::pair<std::string, at::Tensor>> take_tensors();

 private:
  struct ObservedLayer {
    nn::LinearPtr layer;
    std::array<float, 3> amax{};  // of the passes before, by role
    at::Tensor x;                 // until its gradient comes
    LayerStats stats;
  };
  ObservedLayer& observed(const nn::Linear& layer);
  void remember(ObservedLayer& observed, fp8::Role role, const at::Tensor& tensor);
  FactorOf factor_of(const ObservedLayer& observed) const;

  const engine::Engine& engine_;
  Options options_;
  std::vector<ObservedLayer> layers_;
  std::map<const nn::Linear*, size_t> places_;
  std::map<std::string, float> factors_;  // "<layer>.<role>", as Fp8Scaling names them
  std::map<std::string, at::Tensor> tensors_;
  bool looking_ = false;
};

}  // namespace octavo::diagnose
