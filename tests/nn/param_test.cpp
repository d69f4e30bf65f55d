#include "nn/param.h"

#include "nn/layers.h"
#include "nn/loss.h"
#include "nn/oracle.h"

namespace octavo::nn {
namespace {

class Params : public NnTest {};

TEST_F(Params, OnlyMatricesGetABf16Copy) {
  const auto matrix = make_param("m", {4, 3}, at::kBFloat16, true, at::kCPU),
             vector = make_param("v", {4}, at::kBFloat16, false, at::kCPU),
             full = make_param("f", {4, 3}, at::kFloat, true, at::kCPU);
  EXPECT_EQ(matrix->compute.scalar_type(), at::kBFloat16);
  EXPECT_TRUE(vector->compute.is_same(vector->master));
  EXPECT_TRUE(full->compute.is_same(full->master));
  EXPECT_TRUE(matrix->leaf.requires_grad() && !matrix->master.requires_grad());
  {
    const at::NoGradGuard no_grad;
    matrix->master.normal_();
  }
  refresh_compute({matrix, vector, full});
  EXPECT_TRUE(matrix->compute.detach().equal(matrix->master.to(at::kBFloat16)));
}

TEST_F(Params, TheFirstWriteOverwritesTheNextAdds) {
  const auto p = param({3});
  EXPECT_TRUE(p->grad_fresh);
  EXPECT_EQ(p->next_write(), engine::Accumulate::kOverwrite);
  EXPECT_EQ(p->next_write(), engine::Accumulate::kAdd);
  EXPECT_EQ(p->next_write(), engine::Accumulate::kAdd);
  p->grad_fresh = true;
  EXPECT_EQ(p->next_write(), engine::Accumulate::kOverwrite);
}

TEST_F(Params, ZeroIfFreshZeroesOnce) {
  const auto p = param({3});
  p->zero_if_fresh();
  EXPECT_FALSE(p->grad_fresh);
  EXPECT_EQ(p->grad.count_nonzero().item<int64_t>(), 0);
  p->grad.fill_(2);
  p->zero_if_fresh();
  EXPECT_EQ(p->grad.sum().item<float>(), 6);
  EXPECT_EQ(p->next_write(), engine::Accumulate::kAdd);
}

// GPT-2's head is its token embedding: two layers write one gradient, in either order.
TEST_F(Params, ATiedWeightGetsBothGradients) {
  const auto tokens = param({10, 8}), positions = param({4, 8});
  const at::Tensor ids = at::randint(10, {12}, at::kInt), targets = at::randint(9, {12}, at::kInt);
  const at::Tensor wt = twin(tokens), wp = twin(positions);
  for (int step = 0; step < 2; ++step) {  // the second step starts from a used gradient
    tokens->grad_fresh = positions->grad_fresh = true;
    const at::Tensor x = embed(engine, rows_of(ids, 4), tokens, positions);
    const Loss loss = head_loss(engine, x, tokens, targets, {.classes = 9, .chunk_rows = 5});
    torch::autograd::backward({loss.root}, {});
  }
  const at::Tensor x = at::embedding(wt, ids.to(at::kLong)) + wp.repeat({3, 1});
  const at::Tensor logits = at::linear(x, wt).narrow(1, 0, 9);
  const at::Tensor total =
      at::nll_loss(logits.log_softmax(1), targets.to(at::kLong), {}, at::Reduction::Sum);
  torch::autograd::backward({total}, {});
  EXPECT_TRUE(close(tokens->grad, wt.grad()));
  EXPECT_TRUE(close(positions->grad, wp.grad()));
}

}  // namespace
}  // namespace octavo::nn
