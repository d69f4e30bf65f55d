#include "nn/mixture.h"

#include <numeric>

#include "engine/groups.h"
#include "nn/fp8_fixture.h"
#include "nn/recompute.h"

namespace octavo::nn {
namespace {

using at::Tensor;

std::vector<int64_t> numbers(const Tensor& t) {
  const Tensor flat = t.to(at::kLong).contiguous();
  return {flat.const_data_ptr<int64_t>(), flat.const_data_ptr<int64_t>() + flat.numel()};
}

TEST(Dispatch, SortsByExpertAndKeepsTheOrderOfTokens) {
  const Tensor chosen = at::tensor({3, 0, 0, 1, 3, 1}, at::kLong).view({3, 2});
  const Dispatch d = dispatch(chosen, 5);
  EXPECT_EQ(numbers(d.order), (std::vector<int64_t>{1, 2, 3, 5, 0, 4}));
  EXPECT_EQ(numbers(d.tokens), (std::vector<int64_t>{0, 1, 1, 2, 0, 2}));
  EXPECT_EQ(numbers(d.places), (std::vector<int64_t>{4, 0, 1, 2, 5, 3}));
  EXPECT_EQ(numbers(d.counts), (std::vector<int64_t>{2, 2, 0, 2, 0}));
  EXPECT_EQ(d.bounds, (std::vector<int64_t>{0, 2, 4, 4, 6, 6}));
}

constexpr int64_t kMixTokens = 37, kMixWidth = 32, kInner = 48, kExperts = 6, kActive = 2;
constexpr double kBalance = 0.7, kZ = 0.3;

class MixtureTest : public NnTest {
 protected:
  Mixture make(bool renormalized, int64_t layer) {
    Mixture made{.router = param({kExperts, kMixWidth}),
                 .experts = {},
                 .active = kActive,
                 .renormalized = renormalized,
                 .layer = layer};
    for (int64_t e = 0; e < kExperts; ++e) {
      Mlp mlp{.up = make_linear("up", 0, param({2 * kInner, kMixWidth}), {}),
              .activation = engine::Activation::kSwiGlu,
              .down = make_linear("down", 0, param({kMixWidth, kInner}), {})};
      for (const LinearPtr& l : {mlp.up, mlp.down}) l->weight->master.mul_(0.1);
      made.experts.push_back(mlp);
    }
    return made;
  }
  Routing routing{{.layers = 2, .experts = kExperts, .active = kActive}};
};

// The same in FP64, as transformers writes it, with plain autograd: every expert sees every token.
struct Oracle {
  explicit Oracle(const Mixture& m) : of(m), router(twin(m.router)) {
    for (const Mlp& mlp : m.experts) {
      up.push_back(twin(mlp.up->weight));
      down.push_back(twin(mlp.down->weight));
    }
  }
  Tensor forward(const Tensor& x) {
    const Tensor logits = at::linear(x, router), p = at::softmax(logits, 1);
    auto [weights, chosen] = at::topk(p, kActive, 1);
    if (of.renormalized) weights = weights / weights.sum(1, true);
    Tensor y = at::zeros_like(x);
    for (size_t e = 0; e < up.size(); ++e) {
      const Tensor h = at::linear(x, up[e]);
      const Tensor made =
          at::linear(at::silu(h.narrow(1, 0, kInner)) * h.narrow(1, kInner, kInner), down[e]);
      y = y + made * (weights * chosen.eq(static_cast<int64_t>(e))).sum(1, true);
    }
    counts = at::bincount(chosen.flatten(), {}, kExperts);
    probabilities = p.sum(0);
    z = at::logsumexp(logits, {1}).square().sum();
    return y;
  }
  const Mixture& of;
  Tensor router, counts, probabilities, z;
  std::vector<Tensor> up, down;
};

// Two layers: the balance loss is of both together, in both passes and when blocks run again.
TEST_F(MixtureTest, GradientsAreThoseOfTheFormulas) {
  for (const bool renormalized : {false, true})
    for (const bool again : {false, true}) {
      const Mixture first = make(renormalized, 0), second = make(renormalized, 1);
      Oracle one(first), two(second);
      const Tensor x = leaf({kMixTokens, kMixWidth}), wx = twin(x),
                   dy = at::randn({kMixTokens, kMixWidth});
      const BlockFunction block = [&](const Tensor& in, const Tensor&) {
        const Tensor middle = in + mixture(engine, in, first, routing);
        return std::pair(middle, mixture(engine, middle, second, routing));
      };
      routing.begin_pass(kBalance, kZ);
      const auto [middle, y] = again ? recomputed(block, x, {}) : block(x, {});
      backward(y, dy);
      const Tensor told = routing.end_pass();

      const Tensor wanted = two.forward(wx + one.forward(wx));
      const double rows = 2 * kMixTokens;
      const Tensor balance =
          ((one.counts + two.counts) / rows * ((one.probabilities + two.probabilities) / rows))
              .sum() *
          kExperts;
      const Tensor z = (one.z + two.z) / rows;
      ((wanted * dy.to(at::kDouble)).sum() + kBalance * balance + kZ * z).backward();
      EXPECT_TRUE(close(y, wanted));
      EXPECT_TRUE(close(x.grad(), wx.grad()));
      for (const Oracle* o : {&one, &two}) {
        EXPECT_TRUE(close(o->of.router->grad, o->router.grad()));
        for (size_t e = 0; e < o->up.size(); ++e) {
          EXPECT_TRUE(close(o->of.experts[e].up->weight->grad, o->up[e].grad()));
          EXPECT_TRUE(close(o->of.experts[e].down->weight->grad, o->down[e].grad()));
        }
      }
      EXPECT_TRUE(close(told.narrow(0, 0, 2), at::stack({balance, z})));
      EXPECT_TRUE(at::equal(told.slice(0, 2).to(at::kLong), at::cat({one.counts, two.counts})));
      EXPECT_EQ(told.slice(0, 2).sum().item<double>(), rows * kActive);
    }
}

TEST_F(MixtureTest, WithoutGradientsItIsTheSame) {
  const Mixture m = make(true, 0);
  const Tensor x = leaf({kMixTokens, kMixWidth});
  const Tensor trained = mixture(engine, x, m, routing);
  const at::NoGradGuard no_grad;
  EXPECT_TRUE(at::equal(mixture(engine, x, m, routing), trained));
  // One token goes through two experts alone.
  const auto runs = [&] {
    int64_t count = 0;
    for (const Mlp& e : m.experts) count += e.up->gemm_counts[0].other;
    return count;
  };
  const int64_t before = runs();
  mixture(engine, x.narrow(0, 0, 1), m, routing);
  EXPECT_EQ(runs(), before + kActive);
}

// One layer in FP8, twice: by the mixture, and expert after expert as any other MLP runs.
class MixtureBits : public testing::TestWithParam<std::optional<Recipe>> {
 protected:
  static constexpr int64_t kRows = 45, kChannels = 128, kHidden = 128;

  MixtureBits() {
    at::manual_seed(5);
    m.router = bf16_param("router", {kExperts, kChannels}, 0.3);
    m.active = kActive;
    m.renormalized = true;
    for (int64_t e = 0; e < kExperts; ++e)
      m.experts.push_back({.up = fp8_test_layer("up", 0, 2 * kHidden, kChannels, false),
                           .activation = engine::Activation::kSwiGlu,
                           .down = fp8_test_layer("down", 0, kChannels, kHidden, false)});
    if (!GetParam()) return;
    shared.engine = &engine;
    shared.options = {.recipe = *GetParam(), .format = fp8::default_format(*GetParam())};
    shared.options.history = 4;
    shared.scaling = Fp8Scaling(engine, shared.options);
    for (const LinearPtr& layer : layers())
      layer->fp8 = std::make_unique<Fp8Layer>(shared, layer->name);
  }
  ~MixtureBits() override {
    for (const LinearPtr& layer : layers()) layer->fp8.reset();
  }
  LinearList layers() const {
    LinearList all;
    for (const Mlp& mlp : m.experts) all.insert(all.end(), {mlp.up, mlp.down});
    return all;
  }
  std::vector<Tensor> take_gradients() const {
    std::vector<Tensor> taken;
    for (const LinearPtr& layer : layers()) {
      taken.push_back(layer->weight->grad.clone());
      layer->weight->grad.fill_(NAN);
      layer->weight->consume_gradient();
    }
    return taken;
  }
  // As many rows as the mixture gives an expert: a sum over more of them has another order.
  Tensor filled(const Tensor& own) const {
    if (GetParam()) return own;
    return at::constant_pad_nd(
        own, {0, 0, 0, engine::filled_rows(engine.target, own.size(0)) - own.size(0)});
  }
  // Rounded once, in the order of a token's choices.
  static Tensor added(const Tensor& by_choice) {
    Tensor sum = by_choice.select(1, 0);
    for (int64_t j = 1; j < kActive; ++j) sum = sum + by_choice.select(1, j);
    return sum.to(at::kBFloat16);
  }

  engine::Engine engine{{at::kCPU, at::kBFloat16, false}};
  Fp8Shared shared;
  Mixture m;
  Routing routing{{.layers = 1, .experts = kExperts, .active = kActive}};
};

TEST_P(MixtureBits, AreThoseOfALoopOverExperts) {
  const Tensor x = bf16_normal({kRows, kChannels}).set_requires_grad(true);
  const Tensor dy = bf16_normal({kRows, kChannels});
  const Tensor y = mixture(engine, x, m, routing);
  backward(y, dy);
  const std::vector<Tensor> gradients = take_gradients();

  const Tensor values = x.detach();
  const Tensor p =
      at::softmax(at::mm(values.to(at::kFloat), m.router->compute.to(at::kFloat).t()), 1);
  auto [weights, chosen] = at::topk(p, kActive, 1);
  weights = weights / weights.sum(1, true);
  Tensor made = at::zeros({kRows, kActive, kChannels}), d_read = at::zeros_like(made);
  for (int64_t e = 0; e < kExperts; ++e) {
    const Tensor at_choice = chosen.eq(e).nonzero();  // pairs of token and choice, by token
    ASSERT_GT(at_choice.size(0), 0) << "every expert was to have rows";
    const Tensor token = at_choice.select(1, 0).contiguous(),
                 choice = at_choice.select(1, 1).contiguous();
    const int64_t rows = token.size(0);
    const Tensor read = filled(values.index_select(0, token)).set_requires_grad(true);
    const Tensor out = norm_mlp(engine, read, {}, {}, m.experts[static_cast<size_t>(e)]).second;
    const Tensor weight = weights.index({token, choice}).unsqueeze(1);
    backward(out, filled((dy.index_select(0, token) * weight).to(at::kBFloat16)));
    made.index_put_({token, choice}, out.detach().narrow(0, 0, rows).to(at::kFloat) * weight);
    d_read.index_put_({token, choice}, read.grad().narrow(0, 0, rows).to(at::kFloat));
  }
  EXPECT_TRUE(at::equal(y, added(made)));
  const std::vector<Tensor> wanted = take_gradients();
  for (size_t i = 0; i < wanted.size(); ++i) {
    EXPECT_TRUE(at::equal(gradients[i], wanted[i])) << i;
    EXPECT_GT(wanted[i].abs().max().item<float>(), 0) << i;
  }
  // What goes through the router is added to this.
  const Tensor through_router = x.grad().to(at::kFloat) - added(d_read).to(at::kFloat);
  EXPECT_LT(through_router.norm().item<float>(), x.grad().to(at::kFloat).norm().item<float>());
  for (const LinearPtr& layer : layers())
    for (const auto& count : layer->gemm_counts) EXPECT_EQ(GetParam() ? count.other : count.fp8, 0);
}

TEST_P(MixtureBits, AreTheSameOnAnyNumberOfThreads) {
  const int before = at::get_num_threads();
  const Tensor values = bf16_normal({200, kChannels}), dy = bf16_normal({200, kChannels});
  std::vector<Tensor> wanted;
  for (const int threads : {1, 2, 5}) {
    at::set_num_threads(threads);
    for (const LinearPtr& layer : layers())
      if (layer->fp8 != nullptr) layer->fp8->forget_weight();
    const Tensor x = values.clone().set_requires_grad(true);
    const Tensor y = mixture(engine, x, m, routing);
    backward(y, dy);
    std::vector<Tensor> found = take_gradients();
    found.insert(found.end(), {y.detach(), x.grad()});
    if (wanted.empty()) wanted = found;
    for (size_t i = 0; i < wanted.size(); ++i)
      EXPECT_TRUE(at::equal(found[i], wanted[i])) << threads << " threads, " << i;
  }
  at::set_num_threads(before);
}

// Ranks add up gradients and statistics: an expert that nobody chose has zeros and none.
TEST_P(MixtureBits, AnExpertWithoutRowsHasAGradientOfZero) {
  shared.measuring = true;
  const Tensor x = bf16_normal({1, kChannels}).set_requires_grad(true);
  backward(mixture(engine, x, m, routing), bf16_normal({1, kChannels}));
  const std::vector<Tensor> gradients = take_gradients();
  int64_t idle = 0;
  size_t measured = 0;
  for (size_t i = 0; i < gradients.size(); ++i) {
    EXPECT_TRUE(gradients[i].isfinite().all().item<bool>());
    const bool is_idle = gradients[i].eq(0).all().item<bool>();
    idle += is_idle ? 1 : 0;
    if (!GetParam()) continue;
    const auto found = layers()[i]->fp8->take_measured();
    if (i == 0) measured = found.size();
    EXPECT_EQ(found.size(), measured) << "ranks would have other tensors than each other";
    for (const auto& one : found) {
      if (one.role != Role::kWeight) EXPECT_EQ(one.stats[0].item<double>() == 0, is_idle);
    }
  }
  EXPECT_EQ(idle, 2 * (kExperts - kActive));
}

std::vector<std::optional<Recipe>> all_precisions() {
  std::vector<std::optional<Recipe>> all = {std::nullopt};
  all.insert(all.end(), std::begin(kRecipes), std::end(kRecipes));
  return all;
}
INSTANTIATE_TEST_SUITE_P(AllPrecisions, MixtureBits, testing::ValuesIn(all_precisions()),
                         [](const auto& test) {
                           return test.param ? std::string(config::name_of(*test.param)) : "bf16";
                         });

}  // namespace
}  // namespace octavo::nn
