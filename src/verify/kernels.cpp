#include "verify/kernels.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "base/error.h"
#include "base/first_line.h"
#include "base/text.h"
#include "engine/engine.h"
#include "fp8/execution.h"
#include "verify/kernel_checks.h"

namespace octavo::verify {
namespace {

using engine::Fp8Kernels;
using engine::Fp8Linear;
using engine::Implementation;
using engine::Target;
using fp8::Recipe;

constexpr const char* kWrong =
    "do not train with it: run octavo verify --output verify.json on this machine and report the "
    "file with an issue; device cpu, fp8_backend aten or fp8_execution rehearse avoid GPU kernels";

class KernelCheck {
 public:
  KernelCheck(const Target& target, bool fake_device,
              const std::function<void(const std::string&)>& said)
      : target_(target), fake_device_(fake_device), said_(said) {}

  template <class Op>
  void all_of() {
    const auto table = engine::implementations<Op>();
    for (const auto compute : {at::kBFloat16, at::kFloat})
      for (const auto& candidate : table) {
        Target target = target_;
        target.compute = compute;
        if (is_the_oracle(table, candidate, target) || is_refused(Op::kName, candidate, target))
          continue;
        run(str(Op::kName, " ", candidate.name, compute == at::kFloat ? " fp32" : " bf16"),
            tolerance_of(candidate.name, target.device, compute), compute,
            [&](Bench& bench) { check(*candidate.make(), *table.back().make(), bench); });
      }
  }

  // Recipe by recipe, and whoever's kernels.
  void all_of_fp8() {
    const auto table = engine::implementations<Fp8Linear>();
    std::set<std::string_view> done;
    for (const auto kernels :
         {Fp8Kernels::kRehearsal, Fp8Kernels::kAten, Fp8Kernels::kTransformerEngine})
      for (const auto& candidate : table) {
        Target target = target_;
        target.fp8 = kernels;
        if (is_the_oracle(table, candidate, target) || done.contains(candidate.name)) continue;
        if (is_refused(Fp8Linear::kName, candidate, target)) continue;
        done.insert(candidate.name);
        for (const Recipe recipe : fp8::kAllRecipes) {
          if (!has(kernels, recipe)) continue;
          const bool native = kernels != Fp8Kernels::kRehearsal;
          run(str(Fp8Linear::kName, " ", candidate.name, " ", config::name_of(recipe)),
              native ? native_fp8_tolerance()
                     : tolerance_of(candidate.name, target.device, at::kBFloat16),
              at::kBFloat16, [&](Bench& bench) {
                const auto oracle = fp8::is_fp4(recipe) ? rehearsal() : table.back().make();
                check(*candidate.make(), *oracle, recipe, bench);
              });
        }
      }
    for (const std::string_view name : done) refused_.erase(str(Fp8Linear::kName, " ", name));
  }

  std::vector<Finding> findings() && {
    if (!refused_.empty())
      findings_.push_back(
          {Section::kKernels, "others", Status::kNotChecked, "",
           str(refused_.size(), " implementations do not serve this device: ",
               join(std::vector<std::string>(refused_.begin(), refused_.end()), ", ")),
           ""});
    return std::move(findings_);
  }

 private:
  // The last of a table is what the others are compared with, and what runs where no other does.
  template <class Op>
  bool is_the_oracle(std::span<const Implementation<Op>> table, const Implementation<Op>& candidate,
                     const Target& target) const {
    if (&candidate != &table.back()) return false;
    return target.device.is_cpu() ||
           std::ranges::any_of(table.first(table.size() - 1),
                               [&](const auto& other) { return other.refusal(target).empty(); });
  }

  template <class Op>
  bool is_refused(std::string_view op, const Implementation<Op>& candidate, const Target& target) {
    const std::string name = str(op, " ", candidate.name);
    if (candidate.refusal(target).empty()) {
      served_.insert(name);
      refused_.erase(name);
      return false;
    }
    if (!served_.contains(name)) refused_.insert(name);
    return true;
  }

  // Of nvfp4 the CPU's rehearsal is the reference: tests/conformance/nvfp4.py compares it with
  // Transformer Engine's.
  static std::unique_ptr<Fp8Linear> rehearsal() {
    return std::move(engine::Engine(Target{}).fp8_linear);
  }

  bool has(Fp8Kernels kernels, Recipe recipe) const {
    if (kernels == Fp8Kernels::kRehearsal) return !fp8::is_fp4(recipe);
    if (kernels == Fp8Kernels::kTransformerEngine && !fp8::traits_of(recipe).in_transformer_engine)
      return false;
    return fp8::has_native({.is_gpu = target_.device.is_cuda(),
                            .major = target_.capability / 10,
                            .minor = target_.capability % 10,
                            .has_te = kernels == Fp8Kernels::kTransformerEngine,
                            .name = {}},
                           recipe);
  }

  template <class Body>
  void run(const std::string& id, const Tolerance& tolerance, at::ScalarType compute,
           const Body& body) {
    said_(id);
    at::manual_seed(20);
    Bench bench(target_.device, compute, tolerance);
    Finding f{Section::kKernels, id, Status::kOk, tolerance.text(), "", ""};
    try {
      body(bench);
      f.found = fake_device_ ? "" : bench.trouble();
    } catch (const std::exception& error) {  // of libtorch, Transformer Engine or ours
      f.found = str("it threw: ", first_line(error.what()));
    }
    if (f.found.empty() && fake_device_) {
      f.status = Status::kNotChecked;
      f.found = "fake CUDA device: kernels do not run; its calls were accepted";
    } else if (f.found.empty()) {
      f.found = str(bench.compared(), " values, the worst at ",
                    std::round(100 * bench.worst()) / 100, " of the tolerance");
    } else {
      f.status = Status::kFail;
      f.fix = kWrong;
    }
    findings_.push_back(std::move(f));
  }

  Target target_;
  bool fake_device_;
  const std::function<void(const std::string&)>& said_;
  std::vector<Finding> findings_;
  std::set<std::string> refused_, served_;
};

}  // namespace

std::vector<Finding> check_kernels(const engine::Target& target, bool fake_device,
                                   const std::function<void(const std::string&)>& said) {
  KernelCheck all(target, fake_device, said);
  all.all_of<engine::Matmul>();
  all.all_of_fp8();
  all.all_of<engine::LayerNorm>();
  all.all_of<engine::RmsNorm>();
  all.all_of<engine::Gelu>();
  all.all_of<engine::SwiGlu>();
  all.all_of<engine::GeGlu>();
  all.all_of<engine::Rope>();
  all.all_of<engine::ColumnSum>();
  all.all_of<engine::CrossEntropy>();
  all.all_of<engine::Attention>();
  all.all_of<engine::Embedding>();
  all.all_of<engine::AdamW>();
  return std::move(all).findings();
}

}  // namespace octavo::verify
