#pragma once
// A small FP8 run, and faults put into it on purpose: the feed-forward part of one block computes
// something else than it should.

#include <algorithm>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "fp8/recipe_traits.h"
#include "train/step.h"
#include "train/tiny_run.h"

namespace octavo::train {

// What may be changed; null: nothing is. May be set and taken away between steps.
struct Faults {
  std::function<void(at::Tensor&)> activation;  // what GELU gives: the input of mlp.c_proj
  std::function<void(at::Tensor&)> gradient;    // of what mlp.c_fc gave
};

// GELU runs once per block, forward in their order and backward in the opposite one; the faults are
// the last block's.
class FaultyGelu final : public engine::Gelu {
 public:
  FaultyGelu(std::unique_ptr<engine::Gelu> inner, const Faults& faults, int64_t blocks)
      : inner_(std::move(inner)), faults_(faults), blocks_(blocks) {}

  at::Tensor forward(const at::Tensor& x) override {
    at::Tensor y = inner_->forward(x);
    if (++forward_ % blocks_ == 0 && faults_.activation) faults_.activation(y);
    return y;
  }
  void backward(at::Tensor& dy, const at::Tensor& x, at::Tensor& dbias,
                engine::Accumulate mode) override {
    inner_->backward(dy, x, dbias, mode);
    if (backward_++ % blocks_ == 0 && faults_.gradient) faults_.gradient(dy);
  }

 private:
  std::unique_ptr<engine::Gelu> inner_;
  const Faults& faults_;
  int64_t blocks_, forward_ = 0, backward_ = 0;
};

class Fp8Test : public TrainTest {
 protected:
  void SetUp() override {
    TrainTest::SetUp();
    set_log_level(LogLevel::kError);  // the warnings are counted all the same
  }
  void TearDown() override {
    set_log_level(LogLevel::kInfo);
    TrainTest::TearDown();
  }

  // The smallest sides that are legal, 64 tokens, statistics in every step.
  config::Settings settings(fp8::Recipe recipe = fp8::kDefaultRecipe) const {
    config::Settings s = TrainTest::settings();
    s.n_embd = std::max<int64_t>(64, fp8::traits_of(recipe).side_multiple);
    s.learning_rate = 2e-3;
    s.mixed_precision = config::Precision::kFp8;
    s.fp8_recipe = recipe;
    s.fp8_stats_freq = 1;
    s.checkpoint_dir = (folder / "checkpoints").string();
    return s;
  }
  std::unique_ptr<train::Run> start_faulty(const config::Settings& s) const {
    auto run = start(s);
    run->trained.engine->gelu =
        std::make_unique<FaultyGelu>(std::move(run->trained.engine->gelu), faults, s.n_layer);
    return run;
  }
  static monitor::StepRecord steps(train::Run& run, int count) {
    monitor::StepRecord record;
    for (int i = 0; i < count; ++i) record = train_step(run);
    return record;
  }

  Faults faults;
};

// What the statistics of a step say about one tensor of one layer; "none" when they do not name it.
inline std::string trouble_of(const monitor::StepRecord& record, const std::string& layer,
                              const std::string& tensor) {
  for (const auto& t : record.fp8_tensors)
    if (t.layer == layer && t.tensor == tensor) return t.trouble;
  return "none";
}

// The layers that are in trouble, each once: "a, b".
inline std::string troubled_layers(const monitor::StepRecord& record) {
  std::vector<std::string> names;
  for (const auto& t : record.fp8_tensors)
    if (!t.trouble.empty() && (names.empty() || names.back() != t.layer)) names.push_back(t.layer);
  return join(names, ", ");
}

// Everything that a step may change: masters, moments, FP8 scaling.
using NamedTensors = models::NamedTensors;
inline NamedTensors state_of(const Run& run) {
  NamedTensors all;
  for (const auto& p : run.trained.model->params())
    all.emplace_back(p->name, p->master.detach().clone());
  for (const auto& [name, tensor] : run.trained.optimizer->state())
    all.emplace_back(name, tensor.clone());
  for (const auto& named : run.trained.fp8->state()) all.push_back(named);
  return all;
}

// The names of what differs in any bit: "a, b".
inline std::string differences(const Run& run, const NamedTensors& then) {
  const NamedTensors now = state_of(run);
  if (now.size() != then.size()) return str(then.size(), " tensors became ", now.size());
  std::vector<std::string> names;
  for (size_t i = 0; i < now.size(); ++i)
    if (now[i].first != then[i].first || !at::equal(now[i].second, then[i].second))
      names.push_back(now[i].first);
  return join(names, ", ");
}

// The exit code and message of what an action throws.
inline std::pair<ExitCode, std::string> refusal(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return {error.code(), error.what()};
  }
  return {ExitCode::kOk, ""};
}

}  // namespace octavo::train
