#include "nn/fp8_scaling.h"

#include <cmath>
#include <map>

#include "base/error.h"
#include "nn/fp8_fixture.h"

namespace octavo::nn {
namespace {

class Fp8ScalingTest : public Fp8Test {
 protected:
  static fp8::Options options(int64_t history, int64_t interval = 1) {
    return {.recipe = fp8::recipe_with(fp8::ScaleRule::kHistory),
            .interval = interval,
            .history = history};
  }
  Fp8Scaling make(const fp8::Options& o) const {
    Fp8Scaling scaling(engine, o);
    scaling.add("a.input", fp8::Format::kE4M3);
    scaling.add("a.gradient", fp8::Format::kE5M2);
    return scaling;
  }
  // A step in which the two tensors had these largest magnitudes.
  static void step(Fp8Scaling& scaling, int64_t number, float input, float gradient) {
    scaling.amax(0).fill_(input);
    scaling.amax(1).fill_(gradient);
    scaling.finish_step(number);
  }
  static std::map<std::string, at::Tensor> kept(const Fp8Scaling& scaling) {
    std::map<std::string, at::Tensor> tensors;
    for (const auto& [name, tensor] : scaling.state()) tensors[name] = tensor;
    return tensors;
  }
  static Fp8Scaling::Filled filled(Fp8Scaling& scaling) {
    return scaling.filled(scaling.step_magnitudes());
  }
  static auto finder(const std::map<std::string, at::Tensor>& tensors) {
    return [&](const std::string& name) {
      const auto found = tensors.find(name);
      return found == tensors.end() ? at::Tensor() : found->second;
    };
  }
  static void expect_same(const Fp8Scaling& a, const Fp8Scaling& b) {
    const auto x = kept(a), y = kept(b);
    ASSERT_EQ(x.size(), y.size());
    for (const auto& [name, tensor] : x) EXPECT_TRUE(tensor.equal(y.at(name))) << name;
  }
};

TEST_F(Fp8ScalingTest, FactorsFollowTheLargestOfTheHistory) {
  Fp8Scaling scaling = make(options(3));
  EXPECT_EQ(scaling.factor(0).item<float>(), 1);
  step(scaling, 1, 4, 8);
  EXPECT_EQ(scaling.factor(0).item<float>(), 448.0f / 4);
  EXPECT_EQ(scaling.factor(1).item<float>(), 57344.0f / 8);
  EXPECT_EQ(scaling.amaxes().count_nonzero().item<int64_t>(), 0);
  step(scaling, 2, 2, 16);
  EXPECT_EQ(scaling.factor(0).item<float>(), 448.0f / 4);
  EXPECT_EQ(scaling.factor(1).item<float>(), 57344.0f / 16);
  step(scaling, 3, 1, 1);
  step(scaling, 4, 1, 1);  // 4 has left the history
  EXPECT_EQ(scaling.factor(0).item<float>(), 448.0f / 2);
}

TEST_F(Fp8ScalingTest, FactorsChangeAfterTheFirstStepAndAtMultiplesOfTheInterval) {
  Fp8Scaling scaling = make(options(8, 3));
  step(scaling, 1, 4, 8);
  EXPECT_EQ(scaling.factor(0).item<float>(), 448.0f / 4);
  step(scaling, 2, 7, 8);
  EXPECT_EQ(scaling.factor(0).item<float>(), 448.0f / 4);
  step(scaling, 3, 1, 8);
  EXPECT_EQ(scaling.factor(0).item<float>(), 448.0f / 7);
}

TEST_F(Fp8ScalingTest, ADroppedStepIsForgotten) {
  Fp8Scaling dropping = make(options(3)), other = make(options(3));
  step(dropping, 1, 4, 8);
  step(other, 1, 4, 8);
  dropping.amax(0).fill_(INFINITY);
  dropping.amax(1).fill_(1e30f);
  dropping.drop_step();
  step(dropping, 2, 2, 2);
  step(other, 2, 2, 2);
  expect_same(dropping, other);
}

// fp8_update pass: a micro-batch's magnitudes give the factors of the next one. A weight, which is
// quantized once a step, waits for the step.
TEST_F(Fp8ScalingTest, PassesUpdateAllButWeights) {
  Fp8Scaling scaling = make(options(4));
  scaling.add("a.weight", fp8::Format::kE4M3, /*of_step=*/true);
  scaling.amax(0).fill_(4);
  scaling.amax(1).fill_(8);
  scaling.amax(2).fill_(2);
  scaling.finish_pass(1);
  EXPECT_EQ(scaling.factor(0).item<float>(), 448.0f / 4);
  EXPECT_EQ(scaling.factor(1).item<float>(), 57344.0f / 8);
  EXPECT_EQ(scaling.factor(2).item<float>(), 1);
  EXPECT_EQ(scaling.amax(0).item<float>(), 0);
  scaling.amax(0).fill_(7);
  EXPECT_EQ(filled(scaling).magnitudes, 7 + 2 + 4 + 8 + 2) << "of this pass and the one before";
  scaling.finish_step(2);
  EXPECT_EQ(scaling.factor(0).item<float>(), 448.0f / 7);
  EXPECT_EQ(scaling.factor(1).item<float>(), 57344.0f / 8) << "it saw nothing, and keeps its own";
  EXPECT_EQ(scaling.factor(2).item<float>(), 448.0f / 2);
  EXPECT_TRUE(kept(scaling).at("amax_history.a.input").equal(at::tensor({0.0f, 0.0f, 4.0f, 7.0f})));
  EXPECT_TRUE(
      kept(scaling).at("amax_history.a.weight").equal(at::tensor({0.0f, 0.0f, 0.0f, 2.0f})));
}

TEST_F(Fp8ScalingTest, ASumOfMagnitudesIsFiniteWhenAllAre) {
  for (const float bad : {INFINITY, NAN})
    for (const bool in_first_pass : {false, true}) {
      Fp8Scaling scaling = make(options(4));
      scaling.amax(1).fill_(in_first_pass ? bad : 1);
      scaling.finish_pass(1);
      scaling.amax(1).fill_(in_first_pass ? 1 : bad);
      EXPECT_FALSE(std::isfinite(filled(scaling).magnitudes));
    }
}

// Of the fullest pass, by the factor that it had.
TEST_F(Fp8ScalingTest, HowFullTheFormatsWere) {
  Fp8Scaling scaling = make(options(4));
  scaling.amax(0).fill_(448);
  scaling.amax(1).fill_(28672);
  EXPECT_EQ(filled(scaling).fill, (std::vector<double>{1, 0.5}));
  scaling.finish_pass(1);  // factors of 1 and 2
  scaling.amax(0).fill_(224);
  scaling.amax(1).fill_(57344);
  EXPECT_EQ(filled(scaling).fill, (std::vector<double>{1, 2}));
  scaling.finish_step(2);
  scaling.amax(0).fill_(1);
  EXPECT_EQ(filled(scaling).fill.at(1), 0) << "a new step";
  EXPECT_EQ(scaling.name(0), "a.input");
}

TEST_F(Fp8ScalingTest, ADroppedStepTakesItsPassesBack) {
  Fp8Scaling dropping = make(options(3)), other = make(options(3));
  const auto passes = [](Fp8Scaling& scaling, float first, float second) {
    scaling.amaxes().fill_(first);
    scaling.finish_pass(1);
    scaling.amaxes().fill_(second);
  };
  passes(dropping, 3, INFINITY);
  dropping.drop_step();  // the very first step: the next one is still the first
  for (Fp8Scaling* scaling : {&dropping, &other}) {
    passes(*scaling, 4, 8);
    scaling->finish_step(2);
  }
  expect_same(dropping, other);
  passes(dropping, INFINITY, 1);
  EXPECT_EQ(dropping.infinite_slot(), "a.input") << "of the pass before";
  dropping.drop_step();
  EXPECT_EQ(dropping.infinite_slot(), "");
  expect_same(dropping, other);
}

TEST_F(Fp8ScalingTest, StartsAnewInTheSameMemory) {
  Fp8Scaling again = make(options(3)), fresh = make(options(3));
  const at::Tensor factor = again.factor(0);
  step(again, 1, 4, 8);
  again.amax(1).fill_(INFINITY);
  again.start_anew();
  EXPECT_EQ(factor.item<float>(), 1);
  for (Fp8Scaling* scaling : {&again, &fresh}) step(*scaling, 1, 2, 3);
  expect_same(again, fresh);
}

TEST_F(Fp8ScalingTest, StateRoundTrip) {
  Fp8Scaling first = make(options(4));
  EXPECT_TRUE(first.state().empty());
  for (int64_t i = 1; i <= 6; ++i)
    step(first, i, static_cast<float>(i), 10.0f / static_cast<float>(i));
  const auto tensors = kept(first);
  EXPECT_EQ(tensors.size(), 4u);
  EXPECT_EQ(tensors.at("factor.a.input").numel(), 1);
  EXPECT_EQ(tensors.at("amax_history.a.gradient").sizes(), at::IntArrayRef({4}));
  Fp8Scaling second = make(options(4));
  EXPECT_TRUE(second.load(finder(tensors)).empty());
  expect_same(first, second);
  for (int64_t i = 7; i <= 12; ++i) {
    step(first, i, 1, 1);
    step(second, i, 1, 1);
    expect_same(first, second);
  }
}

// What was read is a copy: the run that resumes must not change what was saved.
TEST_F(Fp8ScalingTest, StateIsASnapshot) {
  Fp8Scaling scaling = make(options(4));
  step(scaling, 1, 4, 8);
  const auto tensors = kept(scaling);
  step(scaling, 2, 64, 8);
  EXPECT_EQ(tensors.at("factor.a.input").item<float>(), 448.0f / 4);
}

// The newest entries count, as if the run had had this length from the start.
TEST_F(Fp8ScalingTest, AnotherLengthKeepsTheNewest) {
  constexpr float kSeen[] = {9, 8, 2, 7, 3};
  for (const int64_t before : {1, 3, 6, 9})
    for (const int64_t after : {1, 2, 4, 12}) {
      SCOPED_TRACE(str(before, " to ", after));
      Fp8Scaling first = make(options(before)), second = make(options(after)),
                 wanted = make(options(after));
      const int64_t known = std::min<int64_t>({before - 1, after - 1, 5});
      for (int64_t i = 0; i < 5; ++i) {
        step(first, i + 1, kSeen[i], 1);
        if (i >= 5 - known) step(wanted, i + 1, kSeen[i], 1);
      }
      const auto tensors = kept(first);
      EXPECT_TRUE(second.load(finder(tensors)).empty());
      EXPECT_EQ(second.factor(0).item<float>(), first.factor(0).item<float>());
      const auto found = kept(second).at("amax_history.a.input");
      EXPECT_EQ(found.numel(), after);
      EXPECT_EQ(found[0].item<float>(), 0);
      wanted.amaxes();  // allocates when no step was made
      EXPECT_TRUE(found.equal(kept(wanted).at("amax_history.a.input"))) << found;
    }
}

TEST_F(Fp8ScalingTest, MissingSlotsAreNamedAndStartAnew) {
  Fp8Scaling first = make(options(4));
  step(first, 1, 4, 8);
  auto tensors = kept(first);
  tensors.erase("factor.a.gradient");
  Fp8Scaling second = make(options(4));
  EXPECT_EQ(second.load(finder(tensors)), std::vector<std::string>{"a.gradient"});
  EXPECT_EQ(second.factor(0).item<float>(), 112);
  EXPECT_EQ(second.factor(1).item<float>(), 1);
  EXPECT_EQ(kept(second).at("amax_history.a.gradient").count_nonzero().item<int64_t>(), 0);
  Fp8Scaling third = make(options(4));
  EXPECT_EQ(third.load(finder({})).size(), 2u);
}

TEST_F(Fp8ScalingTest, RefusesShapesThatDoNotFit) {
  Fp8Scaling first = make(options(4));
  step(first, 1, 4, 8);
  const std::pair<const char*, at::Tensor> damages[] = {{"factor.a.input", at::ones({2})},
                                                        {"amax_history.a.input", at::ones({2, 2})},
                                                        {"amax_history.a.input", at::ones({0})}};
  for (const auto& [name, tensor] : damages) {
    auto tensors = kept(first);
    tensors[name] = tensor;
    Fp8Scaling second = make(options(4));
    try {
      second.load(finder(tensors));
      ADD_FAILURE() << "accepted " << name << tensor.sizes();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::kDamaged);
      EXPECT_NE(std::string(error.what()).find("a.input"), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace octavo::nn
