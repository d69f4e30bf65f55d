// NaN and infinity put into a training step on purpose, at places of a real run: which place is
// named, on which rank, what cause is found, and whether anything was learned. Driven by
// tests/faults/bad_steps.py, one process for each rank.
// usage: number_faults_tool CONFIG FLAG…   (as `octavo train` takes them). Prints one JSON line.

#include <ATen/ATen.h>

#include <cstdio>
#include <functional>
#include <limits>

#include "base/error.h"
#include "base/log.h"
#include "config/parse.h"
#include "train/persist.h"
#include "train/run.h"
#include "train/step.h"

namespace octavo::train {
namespace {

enum class Lasts { kOnce, kInFp8, kAlways };

// What is put where.
struct Fault {
  std::string tensor;  // "input", "gradient", "weight"
  std::string name;    // of the layer, or of the parameter
  int rank = 0;
  Lasts lasts = Lasts::kOnce;
  float value = 0;
};

// Changes an operand of one layer in the passes that it is told to.
class Saboteur final : public nn::LinearObserver {
 public:
  explicit Saboteur(const Fault& fault) : fault_(fault) {}
  void on_input(nn::Linear& layer, const at::Tensor& x) override { change("input", layer, x); }
  void on_gradient(nn::Linear& layer, const at::Tensor& dy) override {
    change("gradient", layer, dy);
  }
  int64_t done() const { return done_; }

 private:
  void change(const char* tensor, const nn::Linear& layer, const at::Tensor& values) {
    if (fault_.tensor != tensor || (fault_.lasts == Lasts::kOnce && done_ > 0) ||
        (fault_.lasts == Lasts::kInFp8 && layer.fp8 == nullptr))
      return;
    // Past autograd, as a fault of the machine would be.
    const int64_t at = values.numel() / 2 + 1;
    if (values.scalar_type() == at::kBFloat16)
      static_cast<at::BFloat16*>(values.data_ptr())[at] = fault_.value;
    else
      static_cast<float*>(values.data_ptr())[at] = fault_.value;
    ++done_;
  }
  const Fault& fault_;
  int64_t done_ = 0;
};

std::vector<at::Tensor> copies_of(const Run& run) {
  std::vector<at::Tensor> all;
  for (const auto& p : run.model->params()) all.push_back(p->master.clone());
  for (const auto& [name, moment] : run.optimizer->state()) all.push_back(moment.clone());
  return all;
}

bool same_as(const Run& run, const std::vector<at::Tensor>& before) {
  const auto now = copies_of(run);
  for (size_t i = 0; i < now.size(); ++i)
    if (!at::equal(now[i], before[i])) return false;
  return true;
}

const nn::ParamPtr& parameter(const Run& run, const std::string& name) {
  for (const auto& p : run.model->params())
    if (p->name == name) return p;
  fail(ExitCode::kUsage, "faults", "no parameter is named ", name);
}

// One step with the fault, then one without it.
Json one_fault(Run& run, const Fault& fault) {
  const bool here = run.world.rank() == fault.rank;
  Saboteur saboteur(fault);
  at::Tensor weight, kept;
  auto before = copies_of(run);
  if (fault.tensor == "weight") {
    weight = parameter(run, fault.name)->compute;
    kept = weight.clone();
    if (here) weight.view({-1})[weight.numel() / 2].fill_(fault.value);
    // Where the master is what layers compute with, the fault itself is no update.
    before = copies_of(run);
  } else {
    for (const auto& layer : run.model->linears())
      if (layer->name == fault.name && here) layer->observer = &saboteur;
  }
  run.incidents.clear();
  const auto record = train_step(run);
  for (const auto& layer : run.model->linears()) layer->observer = nullptr;
  const bool unchanged =
      fault.tensor == "weight" && !parameter(run, fault.name)->master_copy().defined()
          ? run.progress.skipped_in_a_row > 0  // NaN is not equal to itself
          : same_as(run, before);
  if (weight.defined()) weight.copy_(kept);
  Json result = {{"tensor", fault.tensor},
                 {"name", fault.name},
                 {"rank", fault.rank},
                 {"lasts", static_cast<int>(fault.lasts)},
                 {"value", std::isnan(fault.value) ? "nan" : "inf"},
                 {"injected", fault.tensor == "weight" || !here || saboteur.done() > 0},
                 {"skipped", record.skipped},
                 {"unchanged", unchanged}};
  if (!run.incidents.empty()) result["incident"] = run.incidents.front().json();
  result["goes_on"] = !train_step(run).skipped;
  return result;
}

// 20 places: both operands of eight layers, and four weights; ranks in turn.
std::vector<Fault> places_of(const Run& run) {
  std::vector<Fault> places;
  for (const auto& layer : run.model->linears())
    for (const char* tensor : {"input", "gradient"})
      if (places.size() < 16) places.push_back({tensor, layer->name});
  const auto& params = run.model->params();
  for (size_t i = 0; i < 4; ++i)
    places.push_back({"weight", params[i * (params.size() - 1) / 3]->name});
  for (size_t i = 0; i < places.size(); ++i)
    places[i].rank = static_cast<int>(i) % run.world.size();
  return places;
}

int inject(int count, char** words) {
  const std::vector<std::string> arguments(words + 1, words + count);
  std::string resumed_from;
  const auto run =
      assemble(config::parse(arguments, config::kTrainArguments).settings, &resumed_from);
  for (int i = 0; i < 3; ++i) train_step(*run);
  Json faults = Json::array();
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (Fault fault : places_of(*run))
    for (const float value : {kNan, kInfinity})
      for (const Lasts lasts : {Lasts::kOnce, Lasts::kInFp8, Lasts::kAlways}) {
        // A weight stays as it is; in BF16 nothing is in FP8.
        if (fault.tensor == "weight" && lasts != Lasts::kAlways) continue;
        if (lasts == Lasts::kInFp8 && run->fp8 == nullptr) continue;
        fault.value = value;
        fault.lasts = lasts;
        faults.push_back(one_fault(*run, fault));
      }
  std::puts(Json{{"rank", run->world.rank()}, {"faults", faults}}.dump().c_str());
  return 0;
}

}  // namespace
}  // namespace octavo::train

int main(int count, char** words) {
  octavo::set_log_level(octavo::LogLevel::kError);
  try {
    return octavo::train::inject(count, words);
  } catch (const octavo::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return static_cast<int>(error.code());
  }
}
