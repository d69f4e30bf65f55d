#include "nn/adapter.h"

#include <ATen/ATen.h>

#include "base/random.h"
#include "engine/parallel.h"
#include "nn/linear.h"

namespace octavo::nn {
namespace {

using at::Tensor;

// 0 where an input is dropped, else 1 / (1 - dropout): input i of a token depends on (seed, layer,
// number of the token, i).
Tensor drop_mask(const AdapterShared& shared, const std::string& layer, const Tensor& like) {
  Tensor mask = at::empty(like.sizes(), at::kFloat);
  auto* out = mask.mutable_data_ptr<float>();
  const auto keep = static_cast<float>(1 / (1 - shared.dropout)),
             drop = static_cast<float>(shared.dropout);
  const uint64_t stream = stream_of("dropout." + layer);
  const int64_t inputs = like.size(1), draws = (inputs + 3) / 4;
  engine::parallel_for(0, like.size(0) * draws, 4096, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const auto counter =
          shared.first_token * static_cast<uint64_t>(draws) + static_cast<uint64_t>(i);
      const auto bits = philox(shared.seed, stream, counter);
      const int64_t row = i / draws, first = i % draws * 4;
      for (int64_t k = 0; k < 4 && first + k < inputs; ++k)
        out[row * inputs + first + k] =
            uniform_from_bits(bits[static_cast<size_t>(k)]) < drop ? 0 : keep;
    }
  });
  return mask.to(like.device(), like.scalar_type());
}

Tensor matmul(const engine::Engine& engine, const Tensor& x, const Tensor& w) {
  Tensor y = at::empty({x.size(0), w.size(0)}, x.options());
  engine.matmul->forward(x, w, Tensor(), y);
  return y;
}

}  // namespace

void adapters_forward(const engine::Engine& engine, const Linear& layer, const Tensor& x, Tensor& y,
                      std::vector<Tensor>* kept) {
  const AdapterShared& shared = *layer.adapter_shared;
  const bool drops = shared.training && shared.dropout > 0;
  const Tensor mask = drops ? drop_mask(shared, layer.name, x) : Tensor();
  const Tensor input = drops ? x * mask : x;
  if (kept != nullptr) *kept = {input, mask};
  for (const Adapter& adapter : layer.adapters) {
    const Tensor low = matmul(engine, input, adapter.a->compute).mul_(shared.scale);
    y.narrow(1, adapter.first_row, adapter.rows).add_(matmul(engine, low, adapter.b->compute));
    if (kept != nullptr) kept->push_back(low);
  }
}

void adapters_backward(const engine::Engine& engine, const Linear& layer, const Tensor& dy,
                       const std::vector<Tensor>& kept, Tensor& dx) {
  const AdapterShared& shared = *layer.adapter_shared;
  const Tensor &input = kept[0], &mask = kept[1];
  for (size_t i = 0; i < layer.adapters.size(); ++i) {
    const Adapter& adapter = layer.adapters[i];
    const Tensor part = dy.narrow(1, adapter.first_row, adapter.rows).contiguous();
    Tensor d_low = at::empty_like(kept[2 + i]);
    engine.matmul->input_gradient(part, adapter.b->compute, d_low);
    d_low.mul_(shared.scale);
    engine.matmul->weight_gradient(part, kept[2 + i], adapter.b->grad, adapter.b->next_write());
    engine.matmul->weight_gradient(d_low, input, adapter.a->grad, adapter.a->next_write());
    if (!dx.defined()) continue;
    Tensor through = at::empty_like(dx);
    engine.matmul->input_gradient(d_low, adapter.a->compute, through);
    dx.add_(mask.defined() ? through.mul_(mask) : through);
  }
}

}  // namespace octavo::nn
