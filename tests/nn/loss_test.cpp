#include "nn/loss.h"

#include "nn/oracle.h"

namespace octavo::nn {
namespace {

class HeadLoss : public NnTest {
 protected:
  static constexpr int64_t kRows = 33, kWidth = 17, kClasses = 29, kPadded = 40;
  void SetUp() override {
    NnTest::SetUp();
    weight = param({kPadded, kWidth});
    targets = at::randint(kClasses, {kRows}, at::kInt);
    targets[4] = -1;
    targets[32] = -100;
  }
  ParamPtr weight;
  at::Tensor targets;
};

// Chunks that divide the rows, that do not, that are larger, and single rows.
TEST_F(HeadLoss, MatchesAutogradWhateverTheChunks) {
  for (const int64_t chunk : {int64_t{11}, int64_t{10}, int64_t{1024}, int64_t{1}, int64_t{32}})
    for (const double z_weight : {0.0, 0.1}) {
      SCOPED_TRACE("chunk " + std::to_string(chunk));
      const at::Tensor x = leaf({kRows, kWidth}), wx = twin(x), ww = twin(weight);
      weight->grad_fresh = true;
      weight->grad.fill_(NAN);
      const Loss loss = head_loss(
          engine, x, weight, targets,
          {.classes = kClasses, .gradient_scale = 0.25, .z_weight = z_weight, .chunk_rows = chunk});
      torch::autograd::backward({loss.root}, {});
      const at::Tensor counted = (targets >= 0).to(at::kDouble);
      const at::Tensor logits = at::linear(wx, ww).narrow(1, 0, kClasses);
      const at::Tensor nll = at::nll_loss(logits.log_softmax(1), targets.clamp_min(0).to(at::kLong),
                                          {}, at::Reduction::None) *
                             counted;
      const at::Tensor z = logits.logsumexp(1).square() * counted;
      const at::Tensor total = 0.25 * (nll.sum() + z_weight * z.sum());
      torch::autograd::backward({total}, {});
      EXPECT_TRUE(close(loss.sums, at::stack({nll.sum(), z.sum()}).detach(), 1e-6));
      EXPECT_TRUE(close(x.grad(), wx.grad()));
      EXPECT_TRUE(close(weight->grad, ww.grad()));
      EXPECT_EQ(
          weight->grad.narrow(0, kClasses, kPadded - kClasses).count_nonzero().item<int64_t>(), 0);
    }
}

TEST_F(HeadLoss, OfEachTokenWhateverTheChunks) {
  const at::Tensor x = at::randn({kRows, kWidth});
  const at::Tensor logits = at::linear(x, weight->master).narrow(1, 0, kClasses);
  const at::Tensor nll = at::nll_loss(logits.to(at::kDouble).log_softmax(1),
                                      targets.clamp_min(0).to(at::kLong), {}, at::Reduction::None)
                             .masked_fill_(targets < 0, 0);
  for (const int64_t chunk : {int64_t{11}, int64_t{10}, int64_t{1024}, int64_t{1}}) {
    const Loss loss = head_loss(
        engine, x, weight, targets,
        {.classes = kClasses, .chunk_rows = chunk, .want_gradient = false, .want_each = true});
    ASSERT_EQ(loss.each.sizes(), at::IntArrayRef({kRows, 2}));
    EXPECT_TRUE(close(loss.each.select(1, 0), nll, 1e-6)) << chunk;
    EXPECT_TRUE(at::allclose(loss.each.sum(0), loss.sums, 1e-12, 0)) << chunk;
  }
  EXPECT_FALSE(head_loss(engine, x, weight, targets, {.classes = kClasses, .want_gradient = false})
                   .each.defined());
}

TEST_F(HeadLoss, MicroBatchesAddUp) {
  const at::Tensor x = at::randn({kRows, kWidth});
  const auto run = [&](int64_t first, int64_t rows) {
    const at::Tensor part = x.narrow(0, first, rows).clone().set_requires_grad(true);
    const Loss loss = head_loss(engine, part, weight, targets.narrow(0, first, rows),
                                {.classes = kClasses, .chunk_rows = 4});
    return loss.sums;
  };
  const at::Tensor whole = run(0, kRows), wanted = weight->grad.clone();
  weight->grad_fresh = true;
  weight->grad.fill_(NAN);
  const at::Tensor parts = run(0, 20) + run(20, 13);
  EXPECT_TRUE(close(parts, whole));
  EXPECT_TRUE(close(weight->grad, wanted));
}

// Evaluation must not touch what training has gathered.
TEST_F(HeadLoss, WithoutGradientNothingIsWritten) {
  weight->grad.fill_(5);
  const at::Tensor x = leaf({kRows, kWidth});
  const Loss with =
      head_loss(engine, x, weight, targets, {.classes = kClasses, .want_gradient = false});
  EXPECT_FALSE(with.root.defined());
  EXPECT_TRUE(weight->grad_fresh);
  EXPECT_EQ(weight->grad.ne(5).sum().item<int64_t>(), 0);
  const Loss without = head_loss(engine, x, weight, targets, {.classes = kClasses});
  EXPECT_TRUE(with.sums.equal(without.sums));
}

TEST_F(HeadLoss, LogitsAreThoseOfTheLoss) {
  const at::Tensor x = at::randn({kRows, kWidth});
  const at::Tensor logits = head_logits(engine, x, weight, kClasses);
  EXPECT_EQ(logits.sizes(), at::IntArrayRef({kRows, kClasses}));
  EXPECT_EQ(logits.scalar_type(), at::kFloat);
  EXPECT_TRUE(close(logits, at::mm(x, weight->master.t()).narrow(1, 0, kClasses)));
}

}  // namespace
}  // namespace octavo::nn
