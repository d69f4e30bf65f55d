#include <cmath>

#include "nn/kv_cache.h"
#include "nn/layers.h"
#include "nn/oracle.h"
#include "nn/recompute.h"

namespace octavo::nn {
namespace {

class LlamaLayers : public NnTest {};

at::Tensor rms(const at::Tensor& x, const at::Tensor& gamma) {
  return x * (x.pow(2).mean(1, true) + 1e-5).rsqrt() * gamma;
}

TEST_F(LlamaLayers, AddRmsNorm) {
  for (const bool with_delta : {true, false}) {
    const auto gamma = param({17});
    const at::Tensor x = leaf({33, 17}), delta = with_delta ? leaf({33, 17}) : at::Tensor();
    const at::Tensor d_sum = at::randn({33, 17}), d_normed = at::randn({33, 17});
    const at::Tensor wx = twin(x), wg = twin(gamma), wd = with_delta ? twin(delta) : at::Tensor();
    const auto [sum, normed] = add_norm(engine, x, delta, {gamma, {}, 1e-5});
    const at::Tensor wanted_sum = with_delta ? wx + wd : wx * 1, wanted = rms(wanted_sum, wg);
    EXPECT_TRUE(close(sum, wanted_sum));
    EXPECT_TRUE(close(normed, wanted));
    torch::autograd::backward({sum, normed}, {d_sum.clone(), d_normed.clone()});
    torch::autograd::backward({wanted_sum, wanted},
                              {d_sum.to(at::kDouble), d_normed.to(at::kDouble)});
    EXPECT_TRUE(close(x.grad(), wx.grad()));
    if (with_delta) EXPECT_TRUE(close(delta.grad(), wd.grad()));
    EXPECT_TRUE(close(gamma->grad, wg.grad()));
  }
}

TEST_F(LlamaLayers, SwiGlu) {
  const at::Tensor x = leaf({33, 34}), dy = at::randn({33, 17}), wx = twin(x);
  const at::Tensor y = swiglu(engine, x),
                   wanted = at::silu(wx.narrow(1, 0, 17)) * wx.narrow(1, 17, 17);
  EXPECT_TRUE(close(y, wanted));
  backward(y, dy);
  backward(wanted, dy);
  EXPECT_TRUE(close(x.grad(), wx.grad()));
}

// A frozen weight gets no gradient, its input does.
TEST_F(LlamaLayers, FrozenWeightsPassTheGradientOn) {
  const auto weight = make_param("w", {16, 8}, at::kFloat, true, at::kCPU, {.trainable = false}),
             gamma = make_param("g", {8}, at::kFloat, false, at::kCPU, {.trainable = false});
  weight->master.normal_();
  gamma->master.normal_();
  const at::Tensor x = leaf({5, 8}), dy = at::randn({5, 16}), wx = twin(x);
  const auto layer = make_linear("l", 0, weight, {});
  backward(linear(engine, add_norm(engine, x, {}, {gamma, {}, 1e-5}).second, layer), dy);
  backward(at::linear(rms(wx, gamma->master.to(at::kDouble)), weight->master.to(at::kDouble)), dy);
  EXPECT_TRUE(close(x.grad(), wx.grad()));
  EXPECT_FALSE(weight->grad.defined() || gamma->grad.defined());
  EXPECT_EQ(layer->gemm_counts[static_cast<size_t>(Gemm::kWeightGradient)].other, 0);
  EXPECT_EQ(layer->saved_bytes, 0);
}

// A small block of the residual stream, with and without being run twice.
struct TinyBlock {
  const Engine& engine;
  ParamPtr gamma;
  LinearPtr qkv, out;
  Tokens tokens;
  RopeTable* rope;
  std::pair<at::Tensor, at::Tensor> operator()(const at::Tensor& x, const at::Tensor& delta) const {
    const auto [sum, normed] = add_norm(engine, x, delta, {gamma, {}, 1e-5});
    const at::Tensor mixed =
        attention(engine, linear(engine, normed, qkv), tokens, {4, 2, 4, rope});
    return {sum, linear(engine, mixed, out)};
  }
};

TEST_F(LlamaLayers, RecomputedBlocksGiveTheSameGradients) {
  RopeTable rope(4, {});
  const Tokens tokens{at::zeros({9}, at::kInt), Sequences::from_starts({0, 4}, 9, at::kCPU)};
  const TinyBlock block{engine,
                        param({16}),
                        make_linear("qkv", 0, param({32, 16}), param({32})),
                        make_linear("out", 0, param({16, 16}), {}),
                        tokens,
                        &rope};
  const ParamList all = {block.gamma, block.qkv->weight, block.qkv->bias, block.out->weight};
  const at::Tensor start = at::randn({9, 16}), dy = at::randn({9, 16});
  std::vector<at::Tensor> wanted;
  for (const bool again : {false, true}) {
    for (const auto& p : all) p->grad_fresh = true;
    at::Tensor x = start.clone().set_requires_grad(true), delta;
    const at::Tensor input = x;
    for (int i = 0; i < 2; ++i)
      std::tie(x, delta) = again ? recomputed(block, x, delta) : block(x, delta);
    backward(x + delta, dy);
    std::vector<at::Tensor> found = {input.grad()};
    for (const auto& p : all) found.push_back(p->grad.clone());
    if (!again) wanted = found;
    for (size_t i = 0; i < wanted.size(); ++i) EXPECT_TRUE(found[i].equal(wanted[i])) << i;
  }
}

// The angle between two tokens depends on their distance alone.
TEST_F(LlamaLayers, RopeTurnsByDistance) {
  RopeTable rope(8, {});
  const at::Tensor& table = rope.for_length(40, at::kCPU);
  const at::Tensor q = at::randn({1, 8}), k = at::randn({1, 8});
  const auto dot = [&](int32_t a, int32_t b) {
    at::Tensor qa = q.clone(), kb = k.clone();
    engine.rope->rotate(qa, at::tensor({a}, at::kInt), table, 1, false);
    engine.rope->rotate(kb, at::tensor({b}, at::kInt), table, 1, false);
    return (qa * kb).sum().item<double>();
  };
  EXPECT_NEAR(dot(3, 1), dot(37, 35), 1e-5);
  EXPECT_GT(std::abs(dot(3, 1) - dot(3, 2)), 1e-4);
}

// Token by token with a cache is what the whole sequence gives at once.
TEST_F(LlamaLayers, CachedAttentionIsAttention) {
  const at::NoGradGuard no_grad;
  RopeTable rope(4, {});
  const at::Tensor qkv = at::randn({10, 32});
  const AttentionHeads heads{4, 2, 4, &rope};
  const at::Tensor whole =
      attention(engine, qkv.clone(), rows_of(at::zeros({10}, at::kInt), 10), heads);
  KvCache cache(1, 10, 8, at::kFloat);
  for (const auto& [first, count] :
       {std::pair(0, 4), std::pair(4, 3), std::pair(7, 1), std::pair(8, 1), std::pair(9, 1)}) {
    const Tokens tokens = continuation(at::zeros({count}, at::kInt), cache);
    const at::Tensor part = attention(engine, qkv.narrow(0, first, count).clone(), tokens, heads);
    EXPECT_TRUE(close(part, whole.narrow(0, first, count))) << first;
    cache.length += count;
  }
}

}  // namespace
}  // namespace octavo::nn
