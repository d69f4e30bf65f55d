#pragma once
// The state of delayed scaling: a factor and a history of largest magnitudes for every tensor that
// is quantized. All of them lie in two tensors, so that a step updates (and, over ranks, reduces)
// them at once.

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "fp8/recipe.h"

namespace octavo::nn {

class Fp8Scaling {
 public:
  Fp8Scaling() = default;
  Fp8Scaling(const engine::Engine& engine, const fp8::Options& options)
      : engine_(&engine), options_(options) {}

  // A slot for one tensor; all are added before the first is used. `of_step`: it is quantized once
  // a step (a weight), and finish_pass() leaves it alone.
  int64_t add(std::string name, fp8::Format format, bool of_step = false);
  const at::Tensor& factor(int64_t slot);  // FP32 [1]
  const at::Tensor& amax(int64_t slot);    // FP32 [1]: since the last update
  const at::Tensor& amaxes();  // FP32 [slots]: to be reduced over ranks before an update

  // What the host judges a step by, as amaxes() are known: FP32 [2, slots], magnitudes and factors.
  // After a finish_pass() [4, slots]: also the largest magnitudes of the passes before, and the
  // largest of magnitude times factor. To be copied with other numbers, and handed to filled().
  at::Tensor step_magnitudes();
  struct Filled {
    double magnitudes = 0;     // of all tensors together: finite when each is
    std::vector<double> fill;  // of each format: above 1 its tensor saturated
  };
  Filled filled(const at::Tensor& on_host) const;
  const std::string& name(size_t slot) const { return names_.at(slot); }

  std::string infinite_slot() const;  // the first with an infinite magnitude; "" when none has

  // An update: factors from what was seen since the last one, at every multiple of fp8_interval (of
  // updates, counted by `number`), and the very first time, since a factor of 1 fits nothing.
  // finish_pass() is for those within a step, which drop_step() takes back.
  void finish_pass(int64_t number);
  void finish_step(int64_t number);
  // The step was not applied: forgets what it saw.
  void drop_step();
  // As before the first step, in the same memory.
  void start_anew();

  bool empty() const { return names_.empty(); }
  // By name, as a checkpoint keeps them: "factor.<slot>" [1], "amax_history.<slot>" [length].
  std::vector<std::pair<std::string, at::Tensor>> state() const;
  // The same memory, as all ranks have it alike: without the history's row of the step in progress,
  // which is a rank's own until ranks join theirs.
  std::vector<std::pair<std::string, at::Tensor>> replicated() const;
  // Returns the slots that were not found and start anew. Of a history of another length the newest
  // entries are taken.
  std::vector<std::string> load(const std::function<at::Tensor(const std::string&)>& find);

 private:
  void allocate();
  void update(int64_t number);
  void forget_passes();

  const engine::Engine* engine_ = nullptr;
  fp8::Options options_;
  std::vector<std::string> names_;
  std::vector<fp8::Format> formats_;
  std::vector<bool> of_step_;
  // [1 + length, slots], the same memory for good: factors, then the history, whose first row are
  // the magnitudes since the last update. So both go to the host in one piece.
  at::Tensor memory_;
  // Views of it, made once: a layer asks for a dozen of them in every step.
  at::Tensor history_, factors_, amaxes_;
  std::vector<at::Tensor> factor_of_, amax_of_;
  // Experts ask for their slots at the same time.
  std::unique_ptr<std::once_flag> allocated_ = std::make_unique<std::once_flag>();
  bool is_new_ = true;  // nothing was updated yet
  // Of a step in which a pass was finished: what it started from, and its passes' part of
  // step_magnitudes().
  at::Tensor old_history_, old_factors_, earlier_;
  at::Tensor is_of_step_;  // of_step_ on the device
  bool was_new_ = true;
};

}  // namespace octavo::nn
