#include "nn/probes.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <limits>

namespace octavo::nn {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

LinearList two_layers() {
  LinearList layers;
  for (const char* name : {"h.0.up", "h.0.down"})
    layers.push_back(make_linear(
        name, 0, make_param(std::string(name) + ".weight", {5, 5}, at::kFloat, true, at::kCPU),
        {}));
  return layers;
}

TEST(Probes, ARowThatIsNotFiniteIsSeenWhereverItIs) {
  const LinearList layers = two_layers();
  Probes probes(layers);
  for (const int64_t columns : {1, 2, 5, 64})
    for (int64_t row = 0; row < 9; ++row) {
      probes.begin_step();
      at::Tensor result = at::ones({9, columns}, at::kBFloat16);
      note_result(*layers[0], Pass::kForward, result);
      EXPECT_FALSE(probes.first_bad().has_value());
      EXPECT_TRUE(at::isfinite(probes.total()).item<bool>());
      result[row].fill_(kNan);
      note_result(*layers[0], Pass::kForward, result);
      EXPECT_EQ(probes.first_bad(), 0) << row << " of 9, " << columns << " columns";
      EXPECT_FALSE(at::isfinite(probes.total()).item<bool>());
    }
}

TEST(Probes, ForwardComesBeforeTheLossAndBackwardAfterIt) {
  const LinearList layers = two_layers();
  Probes probes(layers);
  const at::Tensor bad = at::full({2, 3}, kNan);
  note_result(*layers[0], Pass::kBackward, bad);
  EXPECT_EQ(probes.name_of_place(probes.first_bad().value()), "the backward pass at h.0.up");
  note_result(*layers[1], Pass::kBackward, bad);
  EXPECT_EQ(probes.name_of_place(probes.first_bad().value()), "the backward pass at h.0.down");
  note_infinity(*layers[1], Pass::kForward);
  EXPECT_EQ(probes.name_of_place(probes.first_bad().value()), "the forward pass at h.0.down");
  EXPECT_EQ(probes.name_of_place(probes.places() / 2), "the head or the loss");
}

TEST(Probes, OfRepeatedStepsLookInThoseAlone) {
  const LinearList layers = two_layers();
  Probes probes(layers, ProbeUse::kRepeatedSteps);
  const at::Tensor bad = at::full({2, 3}, kNan);
  for (int i = 0; i < 2; ++i) {
    probes.begin_step();
    note_result(*layers[0], Pass::kForward, bad);
    EXPECT_FALSE(probes.looking());
    EXPECT_EQ(probes.total().item<double>(), 0);
    probes.begin_step(/*repeated=*/true);
    EXPECT_TRUE(probes.looking());
    EXPECT_FALSE(probes.first_bad().has_value());
    note_result(*layers[0], Pass::kForward, bad);
    EXPECT_EQ(probes.first_bad(), 0);
    EXPECT_FALSE(at::isfinite(probes.total()).item<bool>());
  }
}

TEST(Probes, LayersWithoutThemAreLeftAlone) {
  const LinearList layers = two_layers();
  { const Probes gone(layers); }
  note_result(*layers[0], Pass::kForward, at::full({2, 3}, kNan));
  EXPECT_FALSE(layers[0]->probe.defined());
}

}  // namespace
}  // namespace octavo::nn
