// NaN and infinity put into a training step on purpose, at places of a real run: which place is
// named, on which rank, what cause is found, and whether an update was applied. Driven by
// tests/faults/bad_steps.py, one process for each rank.
// usage: number_faults_tool CONFIG FLAG…   (as `octavo train` takes them). Prints one JSON line.

#include <ATen/ATen.h>

#include <cstdio>
#include <cstring>
#include <limits>

#include "base/error.h"
#include "base/log.h"
#include "config/parse.h"
#include "conformance/tool_main.h"
#include "train/run.h"
#include "train/state/persist.h"
#include "train/step.h"

namespace octavo::train {
namespace {

enum class FaultDuration { kOnce, kInFp8, kAlways };

// What is put where.
struct Fault {
  std::string tensor;  // "input" or "gradient" of a layer; "weight", "weight gradient"
  std::string name;    // of the layer, or of the parameter
  int rank = 0;
  FaultDuration lasts = FaultDuration::kOnce;
  float value = 0;
};

// Changes an operand of one layer in the passes that it is told to.
class FaultInjector final : public nn::LinearObserver {
 public:
  explicit FaultInjector(const Fault& fault) : fault_(fault) {}
  void on_input(nn::Linear& layer, const at::Tensor& x) override { change("input", layer, x); }
  void on_gradient(nn::Linear& layer, const at::Tensor& dy) override {
    change("gradient", layer, dy);
  }
  int64_t done() const { return done_; }

 private:
  void change(const char* tensor, const nn::Linear& layer, const at::Tensor& values) {
    if (fault_.tensor != tensor || (fault_.lasts == FaultDuration::kOnce && done_ > 0) ||
        (fault_.lasts == FaultDuration::kInFp8 && layer.fp8 == nullptr))
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

// Of masters, what layers compute with, and moments.
std::vector<at::Tensor> copies_of(const Run& run) {
  std::vector<at::Tensor> all;
  const auto add = [&](const at::Tensor& values) {
    all.push_back(values.clone(at::MemoryFormat::Contiguous));
  };
  for (const auto& p : run.trained.model->params()) {
    add(p->master);
    add(p->compute);
  }
  for (const auto& [name, moment] : run.trained.optimizer->state()) add(moment);
  return all;
}

// By bytes: a NaN that was put there is not equal to itself.
bool same_as(const Run& run, const std::vector<at::Tensor>& before) {
  const auto now = copies_of(run);
  for (size_t i = 0; i < now.size(); ++i)
    if (now[i].nbytes() != before[i].nbytes() ||
        std::memcmp(now[i].data_ptr(), before[i].data_ptr(), now[i].nbytes()) != 0)
      return false;
  return now.size() == before.size();
}

const nn::ParamPtr& parameter(const Run& run, const std::string& name) {
  for (const auto& p : run.trained.model->params())
    if (p->name == name) return p;
  fail(ExitCode::kUsage, "faults", "no parameter is named ", name);
}

void put_into_weight(Run& run, const Fault& fault) {
  const at::Tensor weight = parameter(run, fault.name)->compute;
  weight.view({-1})[weight.numel() / 2].fill_(fault.value);
}

// As if it had been left there: the backward pass adds to it.
void put_into_gradient(Run& run, const Fault& fault) {
  auto& p = *parameter(run, fault.name);
  p.next_write();  // is what the pass takes for its first
  p.grad.zero_();
  p.grad.view({-1})[p.grad.numel() / 2].fill_(fault.value);
}

// One step with the fault, then one without it.
Json one_fault(Run& run, const Fault& fault) {
  const bool here = run.world.rank() == fault.rank;
  const bool in_weight = fault.tensor == "weight", in_gradient = fault.tensor == "weight gradient";
  FaultInjector injector(fault);
  at::Tensor kept;
  if (in_weight) kept = parameter(run, fault.name)->compute.clone();
  if (in_weight && here) put_into_weight(run, fault);
  if (in_gradient && here) put_into_gradient(run, fault);
  for (const auto& layer : run.trained.model->linears())
    if (!in_weight && !in_gradient && layer->name == fault.name && here)
      layer->observer = &injector;
  const auto before = copies_of(run);  // with the fault: it is no update itself
  run.guards.incidents.clear();
  const auto record = train_step(run);
  for (const auto& layer : run.trained.model->linears()) layer->observer = nullptr;
  const bool unchanged = same_as(run, before);
  if (in_weight) parameter(run, fault.name)->compute.copy_(kept);
  Json result = {{"tensor", fault.tensor},
                 {"name", fault.name},
                 {"rank", fault.rank},
                 {"lasts", static_cast<int>(fault.lasts)},
                 {"value", std::isnan(fault.value) ? "nan" : "inf"},
                 {"injected", in_weight || in_gradient || !here || injector.done() > 0},
                 {"skipped", record.skipped},
                 {"unchanged", unchanged}};
  if (!run.guards.incidents.empty()) result["incident"] = run.guards.incidents.front().json();
  result["resumes"] = !train_step(run).skipped;
  return result;
}

// 21 places: both operands of eight layers, four weights, and a weight's gradient; ranks in turn.
std::vector<Fault> places_of(const Run& run) {
  std::vector<Fault> places;
  for (const auto& layer : run.trained.model->linears())
    for (const char* tensor : {"input", "gradient"})
      if (places.size() < 16) places.push_back({tensor, layer->name});
  const auto& params = run.trained.model->params();
  for (size_t i = 0; i < 4; ++i)
    places.push_back({"weight", params[i * (params.size() - 1) / 3]->name});
  places.push_back({"weight gradient", run.trained.model->linears()[3]->weight->name});
  for (size_t i = 0; i < places.size(); ++i)
    places[i].rank = static_cast<int>(i) % run.world.size();
  return places;
}

// How long a fault there can last: a weight stays as it is, a gradient is of one step, and in BF16
// nothing is in FP8.
bool can_last(const Run& run, const Fault& fault, FaultDuration lasts) {
  if (fault.tensor == "weight") return lasts == FaultDuration::kAlways;
  if (fault.tensor == "weight gradient") return lasts == FaultDuration::kOnce;
  return lasts != FaultDuration::kInFp8 || run.trained.fp8 != nullptr;
}

void inject(const std::vector<std::string>& arguments) {
  const auto run = assemble(config::parse(arguments, config::kTrainArguments).settings);
  for (int i = 0; i < 3; ++i) train_step(*run);
  Json faults = Json::array();
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (Fault fault : places_of(*run))
    for (const float value : {kNan, kInfinity})
      for (const FaultDuration lasts :
           {FaultDuration::kOnce, FaultDuration::kInFp8, FaultDuration::kAlways}) {
        if (!can_last(*run, fault, lasts)) continue;
        fault.value = value;
        fault.lasts = lasts;
        faults.push_back(one_fault(*run, fault));
      }
  std::puts(Json{{"rank", run->world.rank()}, {"faults", faults}}.dump().c_str());
}

}  // namespace
}  // namespace octavo::train

int main(int count, char** words) {
  octavo::set_log_level(octavo::LogLevel::kError);
  return octavo::tool_main([&] { octavo::train::inject({words + 1, words + count}); });
}
