// Masters, moments and gradients in fewer than 32 bits, in every combination.

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "base/error.h"
#include "base/log.h"
#include "optim/adamw.h"

namespace octavo::optim {
namespace {

using TensorsByName = std::map<std::string, at::Tensor>;

struct Combination {
  at::ScalarType master, gradient;
  MomentType moments;
  std::string name() const {
    return str(master == at::kFloat ? "fp32" : "bf16", "_", name_of(moments), "_",
               gradient == at::kFloat ? "fp32" : "bf16");
  }
};
std::vector<Combination> combinations() {
  std::vector<Combination> result;
  for (const auto master : {at::kFloat, at::kBFloat16})
    for (const auto moments : {MomentType::kFp32, MomentType::kBf16, MomentType::kFp8})
      for (const auto gradient : {at::kFloat, at::kBFloat16})
        result.push_back({master, gradient, moments});
  return result;
}

nn::ParamList make_params(const Combination& c) {
  const nn::Storage storage{.master = c.master, .gradient = c.gradient};
  nn::ParamList params = {
      nn::make_param("matrix", {129, 515}, at::kBFloat16, true, at::kCPU, storage),
      nn::make_param("vector", {515}, at::kBFloat16, false, at::kCPU, storage)};
  const at::NoGradGuard no_grad;
  at::manual_seed(5);
  for (const auto& p : params) p->master.copy_(at::randn(p->master.sizes()));
  nn::refresh_compute(params);
  return params;
}

void draw_gradients(const nn::ParamList& params, uint64_t seed) {
  at::manual_seed(seed);
  for (const auto& p : params) {
    EXPECT_EQ(p->next_write(), engine::Accumulate::kOverwrite);
    p->grad.copy_(at::randn(p->grad.sizes()) * 0.1);
  }
}

TensorsByName everything(const AdamW& adamw, const nn::ParamList& params) {
  TensorsByName kept;
  for (const auto& [name, tensor] : adamw.state()) kept[name] = tensor.clone();
  for (const auto& p : params) {
    kept["master." + p->name] = p->master.detach().clone();
    kept["compute." + p->name] = p->compute.detach().clone();
  }
  return kept;
}

class LowMemory : public testing::TestWithParam<Combination> {
 protected:
  engine::Engine engine{{at::kCPU, at::kBFloat16, false}};
  Options options() const { return {.moments = GetParam().moments, .seed = 11}; }
};
INSTANTIATE_TEST_SUITE_P(, LowMemory, testing::ValuesIn(combinations()),
                         [](const auto& info) { return info.param.name(); });

TEST_P(LowMemory, GoesOnBitForBit) {
  const nn::ParamList params = make_params(GetParam());
  AdamW whole(engine, params, options());
  const auto step = [](AdamW& adamw, const nn::ParamList& all, int64_t number) {
    draw_gradients(all, static_cast<uint64_t>(number));
    adamw.step(1e-2, adamw.gradient_norm());
  };
  for (int64_t i = 1; i <= 3; ++i) step(whole, params, i);
  const TensorsByName middle = everything(whole, params);
  for (int64_t i = 4; i <= 6; ++i) step(whole, params, i);
  const TensorsByName wanted = everything(whole, params);

  const nn::ParamList again = make_params(GetParam());
  AdamW second(engine, again, options());
  second.load(3, [&](const std::string& name) { return middle.at(name); });
  {
    const at::NoGradGuard no_grad;
    for (const auto& p : again) p->master.copy_(middle.at("master." + p->name));
    nn::refresh_compute(again);
  }
  for (int64_t i = 4; i <= 6; ++i) step(second, again, i);
  const TensorsByName found = everything(second, again);
  ASSERT_EQ(found.size(), wanted.size());
  for (const auto& [name, tensor] : wanted) EXPECT_TRUE(at::equal(found.at(name), tensor)) << name;
  EXPECT_FALSE(at::equal(found.at("master.matrix"), middle.at("master.matrix")));
}

// A round trip of the state of each type into each: close, warned of when it changes, and what is
// not zero stays so in the second moment.
TEST_P(LowMemory, StateOfAnotherTypeIsConverted) {
  const nn::ParamList params = make_params(GetParam());
  AdamW from(engine, params, options());
  for (uint64_t i = 1; i <= 3; ++i) {
    draw_gradients(params, i);
    from.step(1e-2, from.gradient_norm());
  }
  const TensorsByName kept = everything(from, params);
  const auto values = [](const TensorsByName& state, const char* moment) {
    Moment stored{state.at(str(moment, ".matrix")), {}}, plain{at::empty({129, 515}), {}};
    if (stored.values.scalar_type() == at::kByte)
      stored.scales = state.at(str(moment, "_scale.matrix"));
    copy_moment(stored, plain, *moment == 'm' ? MomentOrder::kFirst : MomentOrder::kSecond);
    return plain.values;
  };
  for (const MomentType type : {MomentType::kFp32, MomentType::kBf16, MomentType::kFp8}) {
    SCOPED_TRACE(name_of(type));
    AdamW to(engine, params, {.moments = type});
    const auto warnings = warning_count();
    to.load(3, [&](const std::string& name) {
      const auto found = kept.find(name);
      return found == kept.end() ? at::Tensor() : found->second;
    });
    EXPECT_EQ(warning_count() - warnings, type == GetParam().moments ? 0 : 1);
    EXPECT_EQ(to.steps(), 3);
    const TensorsByName now = everything(to, params);
    EXPECT_TRUE(at::equal(now.at("m.vector"), kept.at("m.vector")));
    const double slack = type == MomentType::kFp8 ? 0.07 : 0x1p-8;
    EXPECT_TRUE(at::allclose(values(now, "m"), values(kept, "m"), slack, 1e-6));
    EXPECT_TRUE(at::allclose(values(now, "v"), values(kept, "v"), slack, 1e-9));
    EXPECT_TRUE(at::equal(values(now, "v").ne(0), values(kept, "v").ne(0)));
  }
}

TEST_P(LowMemory, GradientsAreGivenBackWhenUsed) {
  const nn::ParamList params = make_params(GetParam());
  const bool given_back = GetParam().gradient == at::kBFloat16;
  AdamW adamw(engine, params, options());
  EXPECT_EQ(params[0]->grad.defined(), !given_back);
  for (uint64_t i = 1; i <= 3; ++i) {
    draw_gradients(params, i);
    EXPECT_EQ(params[0]->grad.scalar_type(), GetParam().gradient);
    EXPECT_EQ(params[1]->grad.scalar_type(), at::kFloat);
    if (i < 3)
      adamw.step(1e-2, adamw.gradient_norm());
    else
      adamw.drop_gradients();
    EXPECT_EQ(params[0]->grad.defined(), !given_back);
    EXPECT_TRUE(params[1]->grad.defined());
  }
  params[0]->zero_if_fresh();
  EXPECT_EQ(params[0]->grad.count_nonzero().item<int64_t>(), 0);
}

TEST_P(LowMemory, FollowsFp32) {
  const nn::ParamList params = make_params(GetParam()),
                      plain = make_params({at::kFloat, at::kFloat, MomentType::kFp32});
  const at::Tensor start = plain[0]->master.clone();
  AdamW adamw(engine, params, options()), oracle(engine, plain, {});
  for (uint64_t i = 1; i <= 100; ++i) {
    draw_gradients(params, i);
    draw_gradients(plain, i);
    adamw.step(1e-3, adamw.gradient_norm());
    oracle.step(1e-3, oracle.gradient_norm());
  }
  const at::Tensor moved = plain[0]->master - start,
                   off = params[0]->master.detach().to(at::kFloat) - plain[0]->master;
  // Both walks are random. BF16 weights of size 1 are 2^-7 apart: 100 steps of at most 1e-3 give
  // less than 13 roundings that go the other way, each by 2^-7.
  const double size = std::sqrt(moved.square().mean().item<double>()),
               error = std::sqrt(off.square().mean().item<double>());
  EXPECT_LT(error, 0.1 * size + (GetParam().master == at::kFloat ? 0 : 0x1p-7 * std::sqrt(13.0)));
  // The mean of many has no such noise: along the way that the weights went, nothing is lost.
  const double along = (off * moved).sum().item<double>() / moved.square().sum().item<double>();
  EXPECT_NEAR(along, 0, 0.05);
}

TEST(LowMemoryBytes, AreCounted) {
  const engine::Engine engine{{at::kCPU, at::kBFloat16, false}};
  const auto bytes = [&](at::ScalarType master, MomentType moments, at::ScalarType gradient) {
    const nn::Storage storage{.master = master, .gradient = gradient};
    const AdamW adamw(engine,
                      {nn::make_param("w", {256, 384}, at::kBFloat16, true, at::kCPU, storage)},
                      {.moments = moments});
    return adamw.bytes_per_parameter();
  };
  EXPECT_DOUBLE_EQ(bytes(at::kFloat, MomentType::kFp32, at::kFloat), 18);
  EXPECT_DOUBLE_EQ(bytes(at::kFloat, MomentType::kFp32, at::kBFloat16), 16);
  EXPECT_DOUBLE_EQ(bytes(at::kBFloat16, MomentType::kBf16, at::kBFloat16), 8);
  EXPECT_DOUBLE_EQ(bytes(at::kBFloat16, MomentType::kFp8, at::kBFloat16), 6.0625);
}

TEST(LowMemoryFrozen, IsLeftOut) {
  const engine::Engine engine{{at::kCPU, at::kBFloat16, false}};
  const nn::ParamList params = {
      nn::make_param("frozen", {8, 8}, at::kBFloat16, true, at::kCPU, {.trainable = false}),
      nn::make_param("learns", {8, 8}, at::kBFloat16, true, at::kCPU)};
  AdamW adamw(engine, params, {});
  EXPECT_EQ(adamw.state().size(), 2u);
  EXPECT_DOUBLE_EQ(adamw.bytes_per_parameter(), 18);
  params[1]->zero_if_fresh();
  adamw.step(1e-3, adamw.gradient_norm());
  EXPECT_EQ(params[0]->version, 0u);
}

TEST(LowMemoryNoise, IsWarnedOf) {
  const engine::Engine engine{{at::kCPU, at::kBFloat16, false}};
  for (const double beta2 : {0.95, 0.99, 0.999}) {
    const auto before = warning_count();
    const AdamW adamw(engine, {}, {.beta2 = beta2, .moments = MomentType::kFp8});
    EXPECT_EQ(warning_count() - before, beta2 > 0.995 ? 1 : 0) << beta2;
  }
}

TEST(LowMemoryDamage, IsRefused) {
  const engine::Engine engine{{at::kCPU, at::kBFloat16, false}};
  AdamW adamw(engine, {nn::make_param("w", {8, 32}, at::kBFloat16, true, at::kCPU)},
              {.moments = MomentType::kFp8});
  const auto refusal = [&](const at::Tensor& scales, at::ScalarType type) {
    try {
      adamw.load(1, [&](const std::string& name) {
        return name == "m_scale.w" ? scales : at::zeros({8, 32}, type);
      });
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::kDamaged);
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  EXPECT_NE(refusal({}, at::kByte).find("scales"), std::string::npos);
  EXPECT_NE(refusal(at::ones({3}), at::kByte).find("scales"), std::string::npos);
  EXPECT_NE(refusal(at::ones({2}).to(at::kHalf), at::kByte).find("scales"), std::string::npos);
  EXPECT_NE(refusal(at::ones({2}), at::kInt).find("FP32, BF16 or FP8"), std::string::npos);
  EXPECT_EQ(adamw.steps(), 0);
}

}  // namespace
}  // namespace octavo::optim
