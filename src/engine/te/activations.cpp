#include <ATen/ATen.h>

#include "base/error.h"
#include "engine/te/te.h"
#include "engine/te/vectors.h"

namespace octavo::engine::te {
namespace {

using at::Tensor;

struct TeGelu final : Gelu {
  Tensor forward(const Tensor& x) override {
    const Tensor y = at::empty_like(x);
    if (x.numel() == 0) return y;
    const OnDevice on(x);
    check_matrix("x", x);
    library().nvte_gelu(Handle(x), Handle(y), on.stream);
    return y;
  }

  void backward(Tensor& dy, const Tensor& x, Tensor& dbias, Accumulate mode) override {
    if (x.numel() > 0) {
      const OnDevice on(x);
      check_matrix("x", x);
      check_matrix("the gradient", dy);
      OCTAVO_ASSERT(dy.sizes() == x.sizes());
      // In place: each thread of the kernel reads what it then writes.
      library().nvte_dgelu(Handle(dy), Handle(x), Handle(dy), on.stream);
    }
    // The library sums a bias gradient only while it quantizes, and in BF16.
    if (dbias.defined()) column_sum(dy.device()).add(dy, dbias, mode);
  }

 private:
  ColumnSum& column_sum(at::Device device) {
    if (sums_ == nullptr) {
      std::vector<Choice> choices;
      Target target;
      target.device = device;
      sums_ = pick<ColumnSum>(target, choices);
    }
    return *sums_;
  }

  std::unique_ptr<ColumnSum> sums_;
};

struct TeSwiGlu final : SwiGlu {
  Tensor forward(const Tensor& x) override {
    check_matrix("x", x);
    OCTAVO_ASSERT(x.size(1) % 2 == 0);
    const Tensor y = at::empty({x.size(0), x.size(1) / 2}, x.options());
    if (x.numel() == 0) return y;
    const OnDevice on(x);
    library().nvte_swiglu(Handle(x), Handle(y), on.stream);
    return y;
  }

  Tensor backward(const Tensor& dy, const Tensor& x) override {
    check_matrix("x", x);
    check_matrix("the gradient", dy);
    OCTAVO_ASSERT(dy.size(0) == x.size(0) && 2 * dy.size(1) == x.size(1));
    const Tensor dx = at::empty_like(x);
    if (x.numel() == 0) return dx;
    const OnDevice on(x);
    library().nvte_dswiglu(Handle(dy), Handle(x), Handle(dx), on.stream);
    return dx;
  }
};

}  // namespace

std::unique_ptr<Gelu> make_gelu() {
  return std::make_unique<TeGelu>();
}
std::unique_ptr<SwiGlu> make_swiglu() {
  return std::make_unique<TeSwiGlu>();
}

}  // namespace octavo::engine::te
