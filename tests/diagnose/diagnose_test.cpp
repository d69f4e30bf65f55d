#include "diagnose/diagnose.h"

#include <gtest/gtest.h>

#include "checkpoint/safetensors.h"
#include "diagnose/observer.h"
#include "diagnose/report.h"
#include "scratch.h"
#include "tiny_settings.h"
#include "train/random_run.h"
#include "train/step.h"

namespace octavo::diagnose {
namespace {

config::Settings tiny() {
  config::Settings s = tiny_settings();
  s.mixed_precision = config::Precision::kFp8;
  return s;
}

std::string row_name(const TensorStats& t) {
  return std::string(fp8::name_of(t.role)) +
         (t.direction == fp8::Direction::kColumn ? " (columns)" : "");
}

// The statistics of the layers themselves, and those of the what-if of the recipe in use.
void expect_the_same(const Diagnosis& found) {
  int compared = 0;
  for (const auto& report : found.health)
    for (const LayerStats& layer : found.layers) {
      if (layer.layer != report.layer) continue;
      for (const TensorStats& t : layer.variants.front().tensors)
        if (row_name(t) == report.tensor) {
          EXPECT_DOUBLE_EQ(t.health.sqnr_db(), report.health.sqnr_db()) << report.layer;
          EXPECT_EQ(t.health.incidents.underflowed, report.health.incidents.underflowed);
          EXPECT_EQ(t.health.factor, report.health.factor);
          ++compared;
        }
    }
  EXPECT_EQ(compared, static_cast<int>(found.health.size()));
  EXPECT_GE(compared, 8 * 3);
}

TEST(Diagnose, WhatIfOfTheRecipeInUseIsWhatRan) {
  for (const fp8::Recipe recipe : fp8::kRecipes) {
    config::Settings s = tiny();
    if (s.n_embd % fp8::traits_of(recipe).side_multiple != 0) continue;
    s.fp8_recipe = recipe;
    const Diagnosis found = diagnose(s, "");
    expect_the_same(found);
    EXPECT_TRUE(found.sick_layers().empty()) << text_of(found);
    EXPECT_EQ(found.data, "random tokens");
  }
}

TEST(Diagnose, AMarginTooHighMakesItSick) {
  config::Settings s = tiny();
  s.fp8_margin = 16;
  const Diagnosis found = diagnose(s, "");
  EXPECT_FALSE(found.sick_layers().empty());
  EXPECT_EQ(found.advice.front().what, "fp8_margin 0");
  expect_the_same(found);
}

TEST(Diagnose, LoraAndRecomputationAndBf16Runs) {
  config::Settings s = tiny();
  s.lora_rank = 4;
  s.lora_base = config::LoraBase::kFp8;
  s.gradient_checkpointing = true;
  s.mixed_precision = config::Precision::kBf16;
  const Diagnosis found = diagnose(s, "");
  EXPECT_FALSE(found.was_asked_for);
  const auto& errors = found.layers.back().variants.front().errors;
  EXPECT_TRUE(errors[0].has_value());
  EXPECT_TRUE(errors[1].has_value());
  EXPECT_FALSE(errors[2].has_value());  // a frozen weight has no gradient
}

TEST(Diagnose, CaptureHasTheOperandsOfEveryLayer) {
  const Scratch scratch;
  config::Settings s = tiny();
  s.capture = (scratch.path() / "capture.safetensors").string();
  const Diagnosis found = diagnose(s, "");
  const checkpoint::SafetensorsReader reader(s.capture);
  EXPECT_EQ(reader.tensors().size(), 3 * found.layers.size());
  const auto& x = reader.tensors().at(found.layers.front().layer + ".input");
  EXPECT_EQ(x.shape, (std::vector<int64_t>{128, 64}));
}

TEST(Observer, LetsTheLayersGo) {
  train::Run run;
  config::Settings s = tiny();
  s.fp8_stats_freq = 1;
  train::start_on_random_tokens(run, s);
  {
    const Observer observer(*run.trained.engine, run.trained.model->linears(),
                            {.in_use = run.trained.fp8->options(), .on_layer = {}});
    EXPECT_NE(run.trained.model->linears().front()->observer, nullptr);
  }
  for (const auto& layer : run.trained.model->linears()) EXPECT_EQ(layer->observer, nullptr);
}

}  // namespace
}  // namespace octavo::diagnose
