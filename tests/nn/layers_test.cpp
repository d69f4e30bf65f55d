#include "nn/layers.h"

#include "nn/oracle.h"

namespace octavo::nn {
namespace {

class Layers : public NnTest {};

TEST_F(Layers, Linear) {
  const auto w = param({7, 17}), b = param({7});
  const at::Tensor x = leaf({33, 17}), dy = at::randn({33, 7});
  const at::Tensor wx = twin(x), ww = twin(w), wb = twin(b);
  const at::Tensor y = linear(engine, x, make_linear("l", 0, w, b));
  const at::Tensor wanted = at::linear(wx, ww, wb);
  EXPECT_TRUE(close(y, wanted));
  backward(y, dy);
  backward(wanted, dy);
  EXPECT_TRUE(close(x.grad(), wx.grad()));
  EXPECT_TRUE(close(w->grad, ww.grad()));
  EXPECT_TRUE(close(b->grad, wb.grad()));
  EXPECT_FALSE(w->compute.grad().defined());  // the layer's own gradient is the only one
}

// The input of the first layer may ask for no gradient; the weights get theirs all the same.
TEST_F(Layers, LinearOfAConstant) {
  const auto w = param({7, 17}), b = param({7});
  const at::Tensor x = at::randn({33, 17}), dy = at::randn({33, 7});
  const at::Tensor y = linear(engine, x, make_linear("l", 0, w, b)), ww = twin(w);
  ASSERT_TRUE(y.requires_grad());
  backward(y, dy);
  backward(at::linear(x.to(at::kDouble), ww), dy);
  EXPECT_TRUE(close(w->grad, ww.grad()));
}

TEST_F(Layers, LinearGelu) {
  const auto w = param({17, 7}), b = param({17});
  const at::Tensor x = leaf({33, 7}), dy = at::randn({33, 17});
  const at::Tensor wx = twin(x), ww = twin(w), wb = twin(b);
  const at::Tensor y = linear_gelu(engine, x, make_linear("l", 0, w, b));
  const at::Tensor wanted = at::gelu(at::linear(wx, ww, wb), "tanh");
  EXPECT_TRUE(close(y, wanted));
  backward(y, dy);
  backward(wanted, dy);
  EXPECT_TRUE(close(x.grad(), wx.grad()));
  EXPECT_TRUE(close(w->grad, ww.grad()));
  EXPECT_TRUE(close(b->grad, wb.grad()));
}

TEST_F(Layers, AddNorm) {
  for (const bool with_delta : {true, false}) {
    SCOPED_TRACE(with_delta ? "with delta" : "without delta");
    const auto gamma = param({17}), beta = param({17});
    const at::Tensor x = leaf({33, 17}), delta = with_delta ? leaf({33, 17}) : at::Tensor();
    const at::Tensor d_sum = at::randn({33, 17}), d_normed = at::randn({33, 17});
    const at::Tensor wx = twin(x), wg = twin(gamma), wb = twin(beta);
    const at::Tensor wd = with_delta ? twin(delta) : at::Tensor();
    const auto [sum, normed] = add_norm(engine, x, delta, {gamma, beta, 1e-5});
    const at::Tensor wanted_sum = with_delta ? wx + wd : wx * 1;
    const at::Tensor wanted = at::layer_norm(wanted_sum, {17}, wg, wb, 1e-5);
    EXPECT_TRUE(close(sum, wanted_sum));
    EXPECT_TRUE(close(normed, wanted));
    torch::autograd::backward({sum, normed}, {d_sum.clone(), d_normed.clone()});
    torch::autograd::backward({wanted_sum, wanted},
                              {d_sum.to(at::kDouble), d_normed.to(at::kDouble)});
    EXPECT_TRUE(close(x.grad(), wx.grad()));
    if (with_delta) EXPECT_TRUE(close(delta.grad(), wd.grad()));
    EXPECT_TRUE(close(gamma->grad, wg.grad()));
    EXPECT_TRUE(close(beta->grad, wb.grad()));
  }
}

// After the last block nobody reads the sum.
TEST_F(Layers, AddNormWhoseSumIsUnused) {
  const auto gamma = param({17}), beta = param({17});
  const at::Tensor x = leaf({5, 17}), dy = at::randn({5, 17}), wx = twin(x);
  backward(add_norm(engine, x, at::Tensor(), {gamma, beta, 1e-5}).second, dy);
  backward(at::layer_norm(wx, {17}, twin(gamma), twin(beta), 1e-5), dy);
  EXPECT_TRUE(close(x.grad(), wx.grad()));
}

TEST_F(Layers, Attention) {
  constexpr int64_t kBatch = 3, kLength = 11, kHeads = 2, kDim = 8, kRows = kBatch * kLength;
  const at::Tensor qkv = leaf({kRows, 3 * kHeads * kDim}), dy = at::randn({kRows, kHeads * kDim});
  const at::Tensor wanted_qkv = twin(qkv);
  const Tokens tokens = rows_of(at::zeros({kRows}, at::kInt), kLength);
  const at::Tensor y = attention(engine, qkv, tokens, {kHeads, kHeads, kDim});
  const auto heads =
      wanted_qkv.view({kBatch, kLength, 3, kHeads, kDim}).permute({2, 0, 3, 1, 4}).unbind(0);
  const at::Tensor mask = at::ones({kLength, kLength}).triu(1).to(at::kBool);
  const at::Tensor scores = at::matmul(heads[0], heads[1].transpose(2, 3)) / std::sqrt(8.0);
  const at::Tensor wanted = at::matmul(scores.masked_fill(mask, -INFINITY).softmax(-1), heads[2])
                                .transpose(1, 2)
                                .reshape({kRows, kHeads * kDim});
  EXPECT_TRUE(close(y, wanted));
  backward(y, dy);
  backward(wanted, dy);
  EXPECT_TRUE(close(qkv.grad(), wanted_qkv.grad()));
}

TEST_F(Layers, Embed) {
  const auto tokens = param({10, 17}), positions = param({6, 17});
  const at::Tensor ids = at::randint(7, {12}, at::kInt), dx = at::randn({12, 17});
  const at::Tensor wt = twin(tokens), wp = twin(positions);
  const at::Tensor x = embed(engine, rows_of(ids, 4), tokens, positions);
  const at::Tensor wanted =
      at::embedding(wt, ids.to(at::kLong)) + wp.narrow(0, 0, 4).repeat({3, 1});
  EXPECT_TRUE(close(x, wanted));
  backward(x, dx);
  backward(wanted, dx);
  EXPECT_TRUE(close(tokens->grad, wt.grad()));
  EXPECT_TRUE(close(positions->grad, wp.grad()));
}

// Packed documents count their positions from 0 each.
TEST_F(Layers, EmbedOfPackedDocuments) {
  const auto tokens = param({10, 17}), positions = param({6, 17});
  const at::Tensor ids = at::randint(7, {9}, at::kInt), dx = at::randn({9, 17});
  const at::Tensor wt = twin(tokens), wp = twin(positions);
  const at::Tensor x =
      embed(engine, {ids, Sequences::from_starts({0, 2, 3}, 9, at::kCPU)}, tokens, positions);
  const at::Tensor wanted = at::embedding(wt, ids.to(at::kLong)) +
                            at::embedding(wp, at::tensor({0, 1, 0, 0, 1, 2, 3, 4, 5}, at::kLong));
  EXPECT_TRUE(close(x, wanted));
  backward(x, dx);
  backward(wanted, dx);
  EXPECT_TRUE(close(tokens->grad, wt.grad()));
  EXPECT_TRUE(close(positions->grad, wp.grad()));
}

// Two micro-batches add up to the gradient of one batch of all their rows.
TEST_F(Layers, GradientsAccumulate) {
  const auto tokens = param({10, 8}), positions = param({4, 8}), gamma = param({8}),
             beta = param({8}), up = param({16, 8}), up_b = param({16}), down = param({8, 16}),
             down_b = param({8});
  const ParamList all = {tokens, positions, gamma, beta, up, up_b, down, down_b};
  const auto up_layer = make_linear("up", 0, up, up_b);
  const auto down_layer = make_linear("down", 0, down, down_b);
  const at::Tensor ids = at::randint(10, {12}, at::kInt), dy = at::randn({12, 8});
  const auto run = [&](int64_t first, int64_t rows) {
    at::Tensor x = embed(engine, rows_of(ids.narrow(0, first, rows), 4), tokens, positions);
    const auto [sum, normed] = add_norm(engine, x, at::Tensor(), {gamma, beta, 1e-5});
    const at::Tensor delta = linear(engine, linear_gelu(engine, normed, up_layer), down_layer);
    backward(add_norm(engine, sum, delta, {gamma, beta, 1e-5}).second, dy.narrow(0, first, rows));
  };
  run(0, 12);
  std::vector<at::Tensor> wanted;
  for (const auto& p : all) {
    EXPECT_FALSE(p->grad_fresh);
    wanted.push_back(p->grad.clone());
    p->grad_fresh = true;
    p->grad.fill_(NAN);
  }
  run(0, 8);
  run(8, 4);
  for (size_t i = 0; i < all.size(); ++i) EXPECT_TRUE(close(all[i]->grad, wanted[i])) << i;
}

// BF16 in, BF16 out, FP32 gradients of parameters, and the numbers of FP32 up to BF16's digits.
TEST_F(Layers, Bf16IsNearFp32) {
  engine::Engine low({at::kCPU, at::kBFloat16, false});
  const auto w = make_param("w", {64, 32}, at::kBFloat16, true, at::kCPU);
  const auto b = make_param("b", {64}, at::kBFloat16, false, at::kCPU);
  {
    const at::NoGradGuard no_grad;
    w->master.normal_();
    b->master.normal_();
  }
  refresh_compute({w, b});
  const at::Tensor x = at::randn({33, 32}).to(at::kBFloat16).set_requires_grad(true);
  const at::Tensor dy = at::randn({33, 64}).to(at::kBFloat16);
  const at::Tensor wx = twin(x), ww = twin(w->compute), wb = twin(b);
  const at::Tensor y = linear_gelu(low, x, make_linear("l", 0, w, b));
  EXPECT_EQ(y.scalar_type(), at::kBFloat16);
  backward(y, dy);
  const at::Tensor wanted = at::gelu(at::linear(wx, ww, wb), "tanh");
  backward(wanted, dy);
  EXPECT_TRUE(close(y, wanted, 0x1p-7));
  EXPECT_TRUE(close(x.grad(), wx.grad(), 0x1p-7));
  EXPECT_EQ(w->grad.scalar_type(), at::kFloat);
  EXPECT_TRUE(close(w->grad, ww.grad(), 0x1p-7));
  EXPECT_TRUE(close(b->grad, wb.grad(), 0x1p-7));
}

}  // namespace
}  // namespace octavo::nn
