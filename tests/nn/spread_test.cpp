// Parameters whose rows are spread over ranks, and their FP8 parts: what all ranks have together is
// what one rank has alone.

#include <algorithm>

#include "nn/fp8_fixture.h"
#include "nn/param.h"

namespace octavo::nn {
namespace {

struct SpreadCase {
  int64_t rows, columns;
  int ranks;
};

std::vector<ParamPtr> spread(const SpreadCase& c, bool weights, at::ScalarType compute,
                             at::ScalarType master = at::kFloat) {
  std::vector<ParamPtr> all;
  for (int r = 0; r < c.ranks; ++r) {
    Storage storage{.master = master};
    storage.shards = {c.ranks, r, /*masters=*/true, /*gradients=*/weights, weights};
    all.push_back(make_param("w", {c.rows, c.columns}, compute, true, at::kCPU, storage));
  }
  return all;
}

constexpr SpreadCase kCases[] = {{256, 128, 2}, {257, 128, 2}, {130, 64, 3},
                                 {96, 32, 4},   {7, 128, 7},   {9, 1, 4}};

TEST(Spread, RowsOfAllRanksAreTheWhole) {
  const at::NoGradGuard no_grad;
  for (const auto& c : kCases) {
    const at::Tensor whole = at::randn({c.rows, c.columns});
    for (const bool weights : {false, true})
      for (const auto compute : {at::kFloat, at::kBFloat16}) {
        std::vector<at::Tensor> masters, parts;
        for (const auto& p : spread(c, weights, compute)) {
          EXPECT_EQ(p->sizes(), whole.sizes());
          EXPECT_EQ(p->first_row * c.columns % 128, 0);
          EXPECT_EQ(p->own.size(0), p->chunk);
          EXPECT_EQ(p->compute.defined(), !weights);
          p->copy_rows(whole, 0);
          refresh_compute({p});
          masters.push_back(p->master);
          parts.push_back(p->own);
        }
        EXPECT_TRUE(at::cat(masters).equal(whole)) << c.rows << "x" << c.columns;
        EXPECT_TRUE(at::cat(parts).narrow(0, 0, c.rows).equal(whole.to(compute)));
      }
  }
}

TEST(Spread, RowsOfAFileGoWhereTheyBelong) {
  const at::NoGradGuard no_grad;
  const SpreadCase c{130, 64, 3};
  const at::Tensor whole = at::randn({c.rows, c.columns});
  std::vector<at::Tensor> masters;
  for (const auto& p : spread(c, true, at::kBFloat16)) {
    p->copy_rows(whole.narrow(0, 0, 51), 0);  // as q, k and v are of one of our matrices
    p->copy_rows(whole.narrow(0, 51, 79), 51);
    masters.push_back(p->master);
  }
  EXPECT_TRUE(at::cat(masters).equal(whole));
}

TEST(Spread, GradientsCountOnceOverRanks) {
  const at::NoGradGuard no_grad;
  for (const auto& c : kCases) {
    const at::Tensor gradient = at::randn({c.rows, c.columns});
    double sum = 0;
    for (const auto& p : spread(c, false, at::kBFloat16)) {
      p->next_write();
      p->grad.copy_(gradient);
      EXPECT_TRUE(p->has_gradient());
      EXPECT_EQ(p->master_grad().sizes(), p->master.sizes());
      sum += p->counted_grad().to(at::kDouble).square().sum().item<double>();
    }
    EXPECT_NEAR(sum / gradient.to(at::kDouble).square().sum().item<double>(), 1, 1e-12);
  }
}

TEST(Spread, FewRowsAndVectorsStayWhole) {
  Storage storage;
  storage.shards = {4, 1, true, true, true};
  const auto vector = make_param("v", {64}, at::kBFloat16, false, at::kCPU, storage),
             thin = make_param("t", {3, 64}, at::kBFloat16, true, at::kCPU, storage);
  for (const auto& p : {vector, thin}) {
    EXPECT_EQ(p->chunk, 0);
    EXPECT_TRUE(p->compute.defined());
    p->next_write();
    EXPECT_EQ(p->counted_grad().numel(), p->count());
    p->counts_here = false;
    EXPECT_EQ(p->counted_grad().numel(), 0);
  }
}

// A layer's weight over several ranks, and alone.
class Fp8Parts : public ::testing::TestWithParam<Recipe> {
 protected:
  void make(const SpreadCase& c) {
    const at::Tensor whole = at::randn({c.rows, c.columns}).mul_(0.05);
    alone_ = bf16_param("w", {c.rows, c.columns}, 1);
    alone_->copy_rows(whole, 0);
    parts_ = spread(c, true, at::kBFloat16);
    for (const auto& p : parts_) p->copy_rows(whole, 0);
    refresh_compute({alone_});
    refresh_compute(parts_);
    shared_.scaling = Fp8Scaling(engine_, shared_.options);
    layer_ = std::make_unique<Fp8Layer>(shared_, "w");
  }

  // What all ranks send, one after the other.
  Fp8Layer::Part gathered(fp8::Direction direction) {
    at::Tensor agreed;
    for (const auto& p : parts_)
      if (const auto m = layer_->magnitudes(*p))
        agreed = agreed.defined() ? at::maximum(agreed, *m) : *m;
    if (agreed.defined()) layer_->agree(agreed);
    std::vector<at::Tensor> codes, scales;
    Fp8Layer::Part joined;
    for (const auto& p : parts_) {
      layer_->forget_parts();
      joined = layer_->part(*p, direction);
      codes.push_back(joined.codes);
      scales.push_back(joined.scales);
    }
    joined.codes = at::cat(codes);
    if (!joined.shared_scales) joined.scales = at::cat(scales);
    return joined;
  }

  at::Tensor gemm(const at::Tensor& x, const engine::Fp8Matrix& w, fp8::Direction direction) {
    const bool forward = direction == fp8::Direction::kRow;
    const engine::QuantizeSpec order{
        .side = layer_->side(forward ? Role::kInput : Role::kGradient, fp8::Direction::kRow),
        .wanted = true,
        .keep = false,
        .factor = at::ones({1}),
        .amax = {}};
    const auto q = engine_.fp8_linear->quantize(x, GetParam(), order, {});
    at::Tensor y = at::empty({x.size(0), forward ? w.rows : w.columns}, x.options());
    if (forward)
      engine_.fp8_linear->forward(q, w, {}, y);
    else
      engine_.fp8_linear->input_gradient(q, w, y);
    return y;
  }

  const at::NoGradGuard no_grad_;
  const engine::Engine engine_{{at::kCPU, at::kBFloat16}};
  Fp8Shared shared_{.engine = &engine_, .options = {.recipe = GetParam()}};
  ParamPtr alone_;
  ParamList parts_;
  std::unique_ptr<Fp8Layer> layer_;
};

TEST_P(Fp8Parts, GatheredCodesAreTheWholesOwn) {
  at::manual_seed(3);
  for (const SpreadCase& c : {SpreadCase{512, 256, 2}, SpreadCase{384, 128, 3}}) {
    make(c);
    EXPECT_EQ(layer_->no_parts_reason(*parts_[0]), "");
    for (const auto direction : {fp8::Direction::kRow, fp8::Direction::kColumn}) {
      const bool forward = direction == fp8::Direction::kRow;
      const at::Tensor x = at::randn({64, forward ? c.columns : c.rows}).to(at::kBFloat16);
      layer_->adopt(*parts_[0], direction, gathered(direction));
      const at::Tensor found = gemm(x, layer_->kept_weight(), direction);
      layer_->forget_weight();
      EXPECT_TRUE(found.equal(gemm(x, layer_->weight(*alone_, !forward), direction)))
          << c.rows << " rows over " << c.ranks;
      layer_->forget_weight();
    }
  }
}

TEST_P(Fp8Parts, RowsThatCutABlockAreRefused) {
  make({160, 128, 2});  // 80 rows a rank: neither 128 nor 32 divides them
  const fp8::Granularity weights = fp8::traits_of(GetParam()).weights;
  const bool in_blocks =
      weights != fp8::Granularity::kTensor && weights != fp8::Granularity::kVector;
  EXPECT_EQ(layer_->no_parts_reason(*parts_[0]).empty(), !in_blocks);
}

INSTANTIATE_TEST_SUITE_P(Recipes, Fp8Parts, ::testing::ValuesIn(kRecipes),
                         [](const auto& info) { return std::string(config::name_of(info.param)); });

}  // namespace
}  // namespace octavo::nn
