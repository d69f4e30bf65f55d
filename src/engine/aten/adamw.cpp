// AdamW. State in FP32 goes through libtorch's fused kernel, many parameters in a launch. State in
// fewer bits is a composition of small kernels over chunks, rounded stochastically as
// adamw_storage.h says but with other random numbers.

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "engine/aten/adamw_low.h"
#include "engine/aten/aten.h"
#include "engine/torch_version.h"
#include "kernels/adamw_storage.h"

namespace octavo::engine::aten {
namespace {

using at::Tensor;

bool all_fp32(const AdamW::Update& u) {
  return u.master.scalar_type() == at::kFloat && u.grad.scalar_type() == at::kFloat &&
         u.m.values.scalar_type() == at::kFloat && u.v.values.scalar_type() == at::kFloat;
}
// Everything that is one value for a launch.
bool one_launch(const AdamW::Hyper& a, const AdamW::Hyper& b) {
  return a.lr == b.lr && a.beta1 == b.beta1 && a.beta2 == b.beta2 && a.eps == b.eps &&
         a.weight_decay == b.weight_decay && a.step == b.step && a.grad_scale == b.grad_scale;
}

// Gradients of norms come as their kernel gave them (see norms.cpp): one launch widens all.
void widen_vectors(std::vector<AdamW::Update>& updates) {
  std::vector<AdamW::Update*> low;
  int64_t total = 0;
  for (AdamW::Update& u : updates) {
    if (u.grad.dim() != 1 || u.grad.scalar_type() == at::kFloat || u.grad.numel() == 0) continue;
    low.push_back(&u);
    total += u.grad.numel();
  }
  if (low.empty()) return;
  const Tensor wide = at::empty({total}, low[0]->grad.options().dtype(at::kFloat));
  std::vector<Tensor> into, from;
  int64_t first = 0;
  for (AdamW::Update* u : low) {
    into.push_back(wide.narrow(0, first, u->grad.numel()));
    from.push_back(u->grad);
    first += u->grad.numel();
    u->grad = into.back();
  }
  libtorch::foreach_copy(into, from);
}

struct Group {
  AdamW::Hyper hyper;
  std::vector<Tensor> master, grad, m, v;
};

void run_fused(Group& g) {
  const auto scalar = g.master[0].options().dtype(at::kFloat);
  const std::vector<Tensor> steps(g.master.size(),
                                  at::full({}, static_cast<double>(g.hyper.step), scalar));
  std::optional<Tensor> divisor;
  if (g.hyper.grad_scale != 1) divisor = at::full({}, 1.0 / g.hyper.grad_scale, scalar);
  libtorch::fused_adamw(
      g.master, g.grad, g.m, g.v, steps,
      {g.hyper.lr, g.hyper.beta1, g.hyper.beta2, g.hyper.weight_decay, g.hyper.eps}, divisor);
}

class AtenAdamW final : public AdamW {
 public:
  void step(Tensor& master, Moment& m, Moment& v, const Tensor& grad, Tensor& compute,
            const Hyper& hyper) override {
    std::vector<Update> one = {{master, m, v, grad, compute, hyper}};
    step_all(one);
  }

  void step_all(std::vector<Update>& updates) override {
    const at::NoGradGuard no_grad;
    widen_vectors(updates);
    std::vector<Group> groups;
    std::vector<Tensor> computes, masters;
    std::vector<Update*> low;
    for (Update& u : updates) {
      if (u.master.numel() == 0) continue;
      if (all_fp32(u))
        add_to_groups(u, groups);
      else
        low.push_back(&u);
      if (!u.compute.defined()) continue;
      computes.push_back(u.compute);
      masters.push_back(u.master);
    }
    low_.step_all(low);
    for (Group& group : groups) run_fused(group);
    if (!computes.empty()) libtorch::foreach_copy(computes, masters);
  }

  double sum_of_squares(const Tensor& grad) override {
    return sums_of_squares({grad}).item<double>();
  }

  // Lists of one dtype are one launch for all.
  Tensor sums_of_squares(const std::vector<Tensor>& grads) override {
    const at::NoGradGuard no_grad;
    std::vector<Tensor> sums(grads.size());
    for (const auto type : {at::kFloat, at::kBFloat16}) {
      std::vector<Tensor> same;
      for (const Tensor& grad : grads)
        if (grad.scalar_type() == type) same.push_back(grad);
      if (same.empty()) continue;
      const auto made = libtorch::foreach_sum_of_squares(same);
      auto next = made.begin();
      for (size_t i = 0; i < grads.size(); ++i)
        if (grads[i].scalar_type() == type) sums[i] = *next++;
    }
    return at::stack(sums);
  }

 private:
  static void add_to_groups(const Update& u, std::vector<Group>& groups) {
    auto found = std::find_if(groups.begin(), groups.end(),
                              [&](const Group& g) { return one_launch(g.hyper, u.hyper); });
    if (found == groups.end()) {
      groups.push_back({.hyper = u.hyper, .master = {}, .grad = {}, .m = {}, .v = {}});
      found = groups.end() - 1;
    }
    found->master.push_back(u.master);
    found->grad.push_back(u.grad);
    found->m.push_back(u.m.values);
    found->v.push_back(u.v.values);
  }

  LowAdamW low_;
};

}  // namespace

std::unique_ptr<AdamW> make_adamw() {
  return std::make_unique<AtenAdamW>();
}

}  // namespace octavo::engine::aten
