#include <ATen/ATen.h>

#include <tuple>

#include "engine/aten/aten.h"

namespace octavo::engine::aten {
namespace {

using at::Tensor;

struct AtenEmbedding final : Embedding {
  Tensor forward(const Tensor& ids, const Tensor& tokens, const Tensor& positions,
                 int64_t length) override {
    Tensor x = at::embedding(tokens, ids);
    if (positions.defined()) x.view({-1, length, x.size(1)}).add_(positions.narrow(0, 0, length));
    return x;
  }

  void backward(const Tensor& ids, const Tensor& dx, Tensor& d_tokens, Tensor& d_positions,
                int64_t length) override {
    add_to_tokens(ids, dx, d_tokens);
    if (!d_positions.defined()) return;
    d_positions.narrow(0, 0, length)
        .add_(at::sum(dx.view({-1, length, dx.size(1)}), 0, /*keepdim=*/false, at::kFloat));
  }

 private:
  // All rows of one token are summed in FP32 in a place of their own, the first of the sorted ids
  // that is this token's: so no temporary is as large as the vocabulary. Then every row writes its
  // token's new gradient, the same from all of them: a fixed order, and one rounding.
  static void add_to_tokens(const Tensor& ids, const Tensor& dx, Tensor& d_tokens) {
    const Tensor sorted = std::get<0>(ids.sort());
    const Tensor places = at::searchsorted(sorted, ids, /*out_int32=*/true);
    const Tensor sums = at::embedding_dense_backward(dx.to(at::kFloat), places, ids.size(0),
                                                     /*padding_idx=*/-1,
                                                     /*scale_grad_by_freq=*/false);
    const Tensor made = sums.index_select(0, places).add_(d_tokens.index_select(0, ids));
    d_tokens.index_copy_(0, ids.to(at::kLong), made.to(d_tokens.scalar_type()));
  }
};

}  // namespace

std::unique_ptr<Embedding> make_embedding() {
  return std::make_unique<AtenEmbedding>();
}

}  // namespace octavo::engine::aten
