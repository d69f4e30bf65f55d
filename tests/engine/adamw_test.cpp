#include "engine/adamw_state.h"
#include "engine/instruction_sets.h"

namespace octavo::engine {
namespace {

OCTAVO_OP_TESTS(AdamW);

constexpr int64_t kSizes[] = {1, 7, 16, 17, 127, 128, 129, 3072, 65536 + 17};

constexpr AdamW::Hyper kHypers[] = {
    {.lr = 1e-2f, .weight_decay = 0.1f, .step = 1, .grad_scale = 0.25f, .seed = 1, .stream = 2},
    {.lr = 6e-4f, .beta1 = 0.8f, .beta2 = 0.999f, .eps = 1e-6f, .step = 7},
    {.lr = 1e-3f, .weight_decay = 0.01f, .step = 100'000, .seed = 1ull << 40, .stream = ~0ull}};

// Gradients whose size goes from 1e-8 to 1 inside each block.
at::Tensor wide_gradient(int64_t n, at::ScalarType type) {
  return (at::randn({n}) * at::pow(10.0, at::rand({n}) * 8 - 8)).to(type);
}

TEST_P(AdamWTest, StepInFp32) {
  for (const int64_t n : kSizes)
    for (const auto& hyper : kHypers)
      for (const bool with_copy : {true, false}) {
        SCOPED_TRACE(std::to_string(n) + " values, step " + std::to_string(hyper.step));
        const State before = random_state(n, with_copy);
        const at::Tensor grad = at::randn({n}) * 0.3;
        State found = before.clone();
        Exact wanted{exact(before.master), exact(before.m.values), exact(before.v.values)};
        op->step(found.master, found.m, found.v, grad.clone(), found.compute, hyper);
        wanted.step(grad, hyper);
        const auto fp32 = [](const at::Tensor& t) { return t.to(at::kFloat); };
        const at::Tensor g = magnitude(grad) * hyper.grad_scale;
        EXPECT_TRUE(
            near(found.m.values, fp32(wanted.m), 0x1p-23 * (magnitude(before.m.values) + g)));
        EXPECT_TRUE(
            near(found.v.values, fp32(wanted.v), 0x1p-22 * (magnitude(before.v.values) + g * g)));
        // The step itself to six digits; m may have cancelled, so its own slack counts too.
        const double c2 = 1 - std::pow(static_cast<double>(hyper.beta2), hyper.step),
                     c1 = 1 - std::pow(static_cast<double>(hyper.beta1), hyper.step);
        const at::Tensor size =
            hyper.lr / c1 * (magnitude(before.m.values) + g) / ((wanted.v / c2).sqrt() + hyper.eps);
        EXPECT_TRUE(
            near(found.master, fp32(wanted.w), 1e-6 * size + 0x1p-23 * magnitude(before.master)));
        if (with_copy) EXPECT_TRUE(same_bits(found.compute, found.master.to(at::kBFloat16)));
      }
}

// Three steps in a row, so that what was stored is read again.
TEST_P(AdamWValues, EveryBitIsTheOracles) {
  if (by_library) GTEST_SKIP() << "its random numbers are its own";
  for (const Kinds& kinds : all_kinds()) {
    SCOPED_TRACE(kinds.text());
    for (const int64_t n : kSizes) {
      SCOPED_TRACE(n);
      State wanted = zero_state(n, kinds);
      wanted.master.copy_(at::randn({n}));
      if (kinds.master == at::kFloat && n % 2 == 1) wanted.compute = at::zeros({n}, at::kBFloat16);
      const State start = wanted.clone();
      std::vector<at::Tensor> grads;
      for (size_t i = 0; i < std::size(kHypers); ++i) {
        grads.push_back(wide_gradient(n, kinds.grad));
        oracle->step(wanted.master, wanted.m, wanted.v, grads[i], wanted.compute, kHypers[i]);
      }
      const auto check = [&] {
        State found = start.clone();
        for (size_t i = 0; i < std::size(kHypers); ++i)
          op->step(found.master, found.m, found.v, grads[i], found.compute, kHypers[i]);
        const auto a = found.tensors(), b = wanted.tensors();
        for (size_t i = 0; i < b.size(); ++i) EXPECT_TRUE(same_bits(a[i], b[i])) << "tensor " << i;
      };
      if (n < 60'000)
        for_each_instruction_set(check);
      else
        check();
    }
  }
}

// Another draw takes the other neighbour: each number is at most one step of its storage from the
// oracle's.
TEST_P(AdamWValues, IsAStepOfTheStorageFromTheOracle) {
  for (const Kinds& kinds : all_kinds()) {
    SCOPED_TRACE(kinds.text());
    for (const int64_t n : kSizes) {
      SCOPED_TRACE(n);
      State wanted = zero_state(n, kinds);
      wanted.master.copy_(at::randn({n}));
      State found = wanted.clone();
      const at::Tensor grad = at::randn({n}).to(kinds.grad);
      const AdamW::Hyper& hyper = kHypers[0];
      oracle->step(wanted.master, wanted.m, wanted.v, grad, wanted.compute, hyper);
      // As a matrix: implementations may treat vectors' gradients in another way.
      at::Tensor matrix = found.master.view({1, n});
      op->step(matrix, found.m, found.v, grad.clone().view({1, n}), found.compute, hyper);
      const auto step_of =
          [](at::ScalarType type) {  // of an eight-bit second moment: of its root's square
            return type == at::kFloat ? 0x1p-22 : type == at::kBFloat16 ? 0x1p-7 : 0.13;
          };
      const auto close = [&](const at::Tensor& a, const at::Tensor& b, double step, double least) {
        return ((a - b).abs() <= step * 1.01 * b.abs() + least).all().item<bool>();
      };
      // Below the normal codes steps are 2^-9 and 2^-10 of 1/448 of the block's largest.
      const double coded = kinds.moments == at::kByte ? 1 : 0,
                   most = magnitude(grad).max().item<double>() * hyper.grad_scale;
      EXPECT_TRUE(
          close(exact(found.master), exact(wanted.master), step_of(kinds.master), 1e-6 * hyper.lr));
      EXPECT_TRUE(close(first_of(found.m), first_of(wanted.m), step_of(kinds.moments),
                        coded * most * 0.1 * 0x1p-9 / 448));
      EXPECT_TRUE(close(second_of(found.v), second_of(wanted.v), step_of(kinds.moments),
                        coded * most * most * 0.05 * 0x1p-14 / 448 / 448));
    }
  }
}

TEST_P(AdamWValues, SumOfSquares) {
  for (const int64_t n : kSizes)
    for (const auto type : {at::kFloat, at::kBFloat16})
      for (const double scale : {1e-8, 1.0, 1e8}) {
        const at::Tensor grad = (at::randn({n}) * scale).to(type);
        const double wanted = oracle->sum_of_squares(grad);
        EXPECT_NEAR(op->sum_of_squares(grad) / wanted, 1, 2e-6) << n << " x " << scale;
      }
}

TEST_P(AdamWTest, ZeroGradientOnlyDecays) {
  for (const Kinds& kinds : all_kinds()) {
    State s = zero_state(330, kinds);
    s.master.copy_(at::randn({330}));
    const at::Tensor before = s.master.to(at::kFloat, false, true);
    op->step(s.master, s.m, s.v, at::zeros({330}, kinds.grad), s.compute,
             {.lr = 0.1f, .weight_decay = 0.5f});
    const double step_of_bf16 = kinds.master == at::kBFloat16 ? 0x1p-7 : 0;
    EXPECT_TRUE(near(s.master.to(at::kFloat), before * 0.95f, 1e-7 + step_of_bf16 * before.abs()));
    EXPECT_EQ(first_of(s.m).count_nonzero().item<int64_t>(), 0) << kinds.text();
    EXPECT_EQ(second_of(s.v).count_nonzero().item<int64_t>(), 0) << kinds.text();
  }
}

TEST_P(AdamWTest, NotFiniteShows) {
  for (const float bad : {NAN, INFINITY})
    for (const int64_t place : {0, 16, 69'999}) {
      at::Tensor grad = at::randn({70'000});
      grad[place] = bad;
      EXPECT_FALSE(std::isfinite(op->sum_of_squares(grad))) << bad << " at " << place;
      EXPECT_FALSE(std::isfinite(op->sum_of_squares(grad.to(at::kBFloat16))));
      State s = random_state(70'000, true);
      op->step(s.master, s.m, s.v, grad, s.compute, {.lr = 0.1f});
      EXPECT_TRUE(any_not_finite(s.master[place]) && any_not_finite(s.compute[place])) << bad;
      EXPECT_EQ(at::isfinite(s.master).sum().item<int64_t>(), 69'999);
      State low = zero_state(70'000, {at::kBFloat16, at::kByte, at::kFloat});
      op->step(low.master, low.m, low.v, grad, low.compute, {.lr = 0.1f});
      EXPECT_TRUE(any_not_finite(low.master[place])) << bad;
      EXPECT_EQ(at::isfinite(low.master).sum().item<int64_t>(), 69'999);
      EXPECT_TRUE(any_not_finite(second_of(low.v)));  // its block has no scale
    }
}

TEST_P(AdamWTest, IndependentOfThreads) {
  constexpr int64_t kCount = 200'003;
  const at::Tensor grad = at::randn({kCount});
  for (const Kinds& kinds : all_kinds()) {
    State before = zero_state(kCount, kinds);
    before.master.copy_(at::randn({kCount}));
    expect_independent_of_threads([&] {
      State s = before.clone();
      for (int64_t step = 1; step < 3; ++step)
        op->step(s.master, s.m, s.v, grad.to(kinds.grad), s.compute,
                 {.lr = 0.1f, .weight_decay = 0.1f, .step = step});
      auto all = s.tensors();
      all.push_back(at::scalar_tensor(op->sum_of_squares(grad), at::kDouble));
      return all;
    });
  }
}

// A parameter in parts that begin where `first` says: each element is rounded as in the whole.
TEST_P(AdamWTest, PartsGiveTheBitsOfTheWhole) {
  constexpr int64_t kCount = 5 * 128 + 17;
  const at::Tensor grad = at::randn({kCount});
  for (const Kinds& kinds : all_kinds()) {
    SCOPED_TRACE(kinds.text());
    State whole = zero_state(kCount, kinds);
    whole.master.copy_(at::randn({kCount}));
    const State before = whole.clone();
    const AdamW::Hyper hyper{.lr = 0.1f, .weight_decay = 0.1f, .seed = 3, .stream = 4};
    op->step(whole.master, whole.m, whole.v, grad.to(kinds.grad), whole.compute, hyper);
    for (const auto& [first, end] : {std::pair{0, 128}, {128, 512}, {512, 657}}) {
      const auto part = [&, from = first, count = end - first](const at::Tensor& t) {
        return t.narrow(0, from, count).clone();
      };
      const auto moment = [&, from = first, count = end - first](const Moment& m) {
        return Moment{part(m.values),
                      m.scales.defined()
                          ? m.scales.narrow(0, from / 128, (count + 127) / 128).clone()
                          : m.scales};
      };
      State shard{part(before.master), moment(before.m), moment(before.v), {}};
      AdamW::Hyper shifted = hyper;
      shifted.first = first;
      op->step(shard.master, shard.m, shard.v, part(grad).to(kinds.grad), shard.compute, shifted);
      const State wanted{part(whole.master), moment(whole.m), moment(whole.v), {}};
      const auto a = shard.tensors(), b = wanted.tensors();
      for (size_t i = 0; i < b.size(); ++i)
        EXPECT_TRUE(same_bits(a[i], b[i])) << "from " << first << ", tensor " << i;
    }
  }
}

// A weight in BF16 moves by its steps' sum though each is a fiftieth of the distance to the next
// value, and a moment goes where its mean says. The mean over n elements has a deviation of one
// rounding / sqrt(n); five of them are allowed.
TEST_P(AdamWTest, RoundingHasTheRightMean) {
  constexpr int64_t kCount = 1 << 14, kSteps = 40;
  for (const auto moments : {at::kBFloat16, at::kByte}) {
    SCOPED_TRACE(at::toString(moments));
    State s = zero_state(kCount, {at::kBFloat16, moments, at::kFloat});
    s.master.fill_(1);
    Exact wanted{at::ones({kCount}, at::kDouble), at::zeros({kCount}, at::kDouble),
                 at::zeros({kCount}, at::kDouble)};
    // Two sizes in each block, so that neither is the block's scale alone.
    const at::Tensor grad = at::where(at::arange(kCount) % 3 == 0, 1.0, 0.037).to(at::kFloat);
    for (int64_t step = 1; step <= kSteps; ++step) {
      const AdamW::Hyper hyper{.lr = 1.5e-4f, .step = step, .stream = static_cast<uint64_t>(step)};
      op->step(s.master, s.m, s.v, grad, s.compute, hyper);
      wanted.step(grad, hyper);
    }
    const double noise = 5 / std::sqrt(kCount / 3.0);
    // Each of 40 roundings of a weight is by at most 2^-8 (below 1), deviations add as squares.
    EXPECT_NEAR(exact(s.master).mean().item<double>() / wanted.w.mean().item<double>(), 1,
                noise * 0x1p-9 * std::sqrt(40.0));
    EXPECT_LT(wanted.w.mean().item<double>(), 0.995);  // it did move
    for (const bool small : {true, false}) {
      const at::Tensor part = (at::arange(kCount) % 3 == 0).logical_xor(at::scalar_tensor(small));
      const auto ratio = [&](const at::Tensor& found, const at::Tensor& exact_value) {
        return found.masked_select(part).mean().item<double>() /
               exact_value.masked_select(part).mean().item<double>();
      };
      EXPECT_NEAR(ratio(first_of(s.m), wanted.m), 1, noise * 0.1) << small;
      EXPECT_NEAR(ratio(second_of(s.v), wanted.v), 1, noise * 0.15) << small;
    }
  }
}

// Elements 1e-12 of the block's largest: far below the smallest code.
TEST_P(AdamWTest, SecondMomentIsZeroOnlyWhereItIs) {
  State s = zero_state(256, {at::kFloat, at::kByte, at::kFloat});
  at::Tensor grad = at::full({256}, 1e-12);
  grad[3] = 1;
  grad[200] = 1e5;
  grad.narrow(0, 50, 10).zero_();
  grad.narrow(0, 150, 10).zero_();
  for (int64_t step = 1; step <= 60; ++step) {
    op->step(s.master, s.m, s.v, grad, s.compute,
             {.lr = 1, .step = step, .stream = static_cast<uint64_t>(step)});
    EXPECT_TRUE(at::equal(second_of(s.v).ne(0), grad.ne(0))) << step;
  }
  // The true step is at most 1, and so is one made from rounded moments, nearly.
  EXPECT_LE(s.master.abs().max().item<double>(), 66);
}

// Against FP64, with gradients from 1e-8 to 1 in the same blocks, for 200 steps. The moments keep
// three and four bits of mantissa: 4% of sqrt(v) in m and 12% of its size in v were found (see
// adamw_storage.h), and 4% in the weights, which add up 200 steps whose errors mostly cancel.
// Gradients more than 1e5 times below the block's largest are below the codes: their steps shrink,
// and must not grow.
TEST_P(AdamWTest, Fp8MomentsFollowFp64) {
  constexpr int64_t kCount = 128 * 64, kSteps = 200;
  const at::Tensor size = at::pow(10.0, at::rand({kCount}) * 8 - 8);
  const at::Tensor bias = at::randn({kCount}) * 0.5;  // so that weights go somewhere
  State s = zero_state(kCount, {at::kFloat, at::kByte, at::kFloat});
  Exact wanted{at::zeros({kCount}, at::kDouble), at::zeros({kCount}, at::kDouble),
               at::zeros({kCount}, at::kDouble)};
  double largest_step = 0;
  for (int64_t step = 1; step <= kSteps; ++step) {
    const at::Tensor grad = ((at::randn({kCount}) + bias) * size).to(at::kFloat);
    const AdamW::Hyper hyper{
        .lr = 1e-3f, .eps = 1e-12f, .step = step, .stream = static_cast<uint64_t>(step)};
    const at::Tensor before = s.master.clone();
    op->step(s.master, s.m, s.v, grad, s.compute, hyper);
    wanted.step(grad, hyper);
    largest_step = std::max(largest_step, (s.master - before).abs().max().item<double>());
  }
  EXPECT_LT(largest_step, 3e-3);
  // Block by block, those within 1e4 of the largest.
  const at::Tensor in_blocks = size.view({-1, 128});
  const at::Tensor large = (in_blocks > in_blocks.amax(1, true) * 1e-4).flatten();
  EXPECT_GT(large.sum().item<int64_t>(), kCount / 4);
  const auto deviation = [&](const at::Tensor& found, const at::Tensor& value,
                             const at::Tensor& unit) {
    return ((found - value) / unit).masked_select(large).square().mean().sqrt().item<double>();
  };
  const at::Tensor root = wanted.v.sqrt();
  EXPECT_LT(deviation(first_of(s.m), wanted.m, root), 0.06);
  EXPECT_LT(deviation(second_of(s.v), wanted.v, wanted.v), 0.15);
  EXPECT_LT(deviation(exact(s.master), wanted.w, wanted.w.square().mean().sqrt()), 0.06);
}

}  // namespace
}  // namespace octavo::engine
