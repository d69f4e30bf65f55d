// BF16 products by oneDNN: FP32 accumulation, one rounding to BF16; weight gradients accumulate
// into FP32 in place.

#include <oneapi/dnnl/dnnl.hpp>

#include <ATen/ATen.h>

#include <map>
#include <mutex>
#include <tuple>

#include "engine/cpu/cpu.h"

namespace octavo::engine::cpu {
namespace {

using Type = dnnl::memory::data_type;
using Tag = dnnl::memory::format_tag;

// c[M,N] (+)= a[M,K] b[K,N]; "transposed" operands are stored as [K,M] and [N,K].
struct Shape {
  int64_t m, n, k;
  bool a_transposed, b_transposed, fp32_result, add, bias;
  auto operator<=>(const Shape&) const = default;
};

struct Product {
  dnnl::memory::desc a, b, c, bias;
  dnnl::matmul primitive;
};

class OnednnMatmul final : public Matmul {
 public:
  void forward(const at::Tensor& x, const at::Tensor& w, const at::Tensor& bias,
               at::Tensor& y) override {
    run({x.size(0), w.size(0), x.size(1), false, true, false, false, bias.defined()}, x, w, bias,
        y);
  }
  void input_gradient(const at::Tensor& dy, const at::Tensor& w, at::Tensor& dx) override {
    run({dy.size(0), w.size(1), dy.size(1), false, false, false, false, false}, dy, w, {}, dx);
  }
  void weight_gradient(const at::Tensor& dy, const at::Tensor& x, at::Tensor& dw,
                       Accumulate mode) override {
    run({dy.size(1), x.size(1), dy.size(0), true, false, true, mode == Accumulate::kAdd, false}, dy,
        x, {}, dw);
  }

 private:
  void run(const Shape& shape, const at::Tensor& a, const at::Tensor& b, const at::Tensor& bias,
           at::Tensor& c) {
    const Product& p = product(shape);
    const auto memory = [&](const dnnl::memory::desc& desc, const at::Tensor& t) {
      return dnnl::memory(desc, engine_, t.data_ptr());
    };
    std::unordered_map<int, dnnl::memory> arguments = {{DNNL_ARG_SRC, memory(p.a, a)},
                                                       {DNNL_ARG_WEIGHTS, memory(p.b, b)},
                                                       {DNNL_ARG_DST, memory(p.c, c)}};
    if (shape.bias) arguments.emplace(DNNL_ARG_BIAS, memory(p.bias, bias));
    p.primitive.execute(stream_, arguments);
    stream_.wait();
  }

  const Product& product(const Shape& s) {
    const std::lock_guard lock(mutex_);
    const auto found = products_.find(s);
    if (found != products_.end()) return found->second;
    Product p;
    p.a = {{s.m, s.k}, Type::bf16, s.a_transposed ? Tag::ba : Tag::ab};
    p.b = {{s.k, s.n}, Type::bf16, s.b_transposed ? Tag::ba : Tag::ab};
    p.c = {{s.m, s.n}, s.fp32_result ? Type::f32 : Type::bf16, Tag::ab};
    dnnl::primitive_attr attributes;
    if (s.add) {
      dnnl::post_ops add;
      add.append_sum(1.0f);
      attributes.set_post_ops(add);
    }
    if (s.bias) {
      p.bias = {{1, s.n}, Type::f32, Tag::ab};
      p.primitive = dnnl::matmul({engine_, p.a, p.b, p.bias, p.c, attributes});
    } else {
      p.primitive = dnnl::matmul({engine_, p.a, p.b, p.c, attributes});
    }
    return products_.emplace(s, std::move(p)).first->second;
  }

  dnnl::engine engine_{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream_{engine_};
  std::mutex mutex_;
  std::map<Shape, Product> products_;
};

}  // namespace

std::unique_ptr<Matmul> make_onednn_matmul() {
  return std::make_unique<OnednnMatmul>();
}

}  // namespace octavo::engine::cpu
