#include "config/key.h"

#include <gtest/gtest.h>

#include <array>
#include <set>

#include "config/key_makers.h"

namespace octavo::config {
namespace {

TEST(Keys, EveryKeyIsDescribed) {
  std::set<Section> known;
  for (const SectionInfo& section : sections()) known.insert(section.section);
  for (const Key& key : keys()) {
    EXPECT_GE(key.help.size(), 10u) << key.name;
    EXPECT_TRUE(key.help.ends_with('.')) << key.name;
    EXPECT_TRUE(known.contains(key.section)) << key.name;
    EXPECT_FALSE(reader_names(key.readers).empty()) << key.name << " is read by nobody";
    EXPECT_FALSE(key.wanted.empty()) << key.name;
    EXPECT_EQ(key.type == Type::kEnum, !key.choices.empty()) << key.name;
    EXPECT_EQ(key.type == Type::kInt || key.type == Type::kReal, !key.minimum.empty()) << key.name;
  }
}

// A verb that draws no token would take them and do nothing.
TEST(Keys, WhatDrawsTokensIsReadWhereTheyAreDrawn) {
  for (const char* name : {"temperature", "top_k", "top_p"})
    EXPECT_EQ(find_key(name)->readers, reader::kTrain | reader::kGenerate) << name;
}

TEST(Keys, NamesAreUniqueSnakeCase) {
  std::set<std::string> seen;
  for (const Key& key : keys()) {
    std::vector<std::string> names = key.aliases;
    names.push_back(key.name);
    for (const std::string& name : names) {
      EXPECT_TRUE(seen.insert(name).second) << name << " twice";
      EXPECT_EQ(name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_"), name.npos) << name;
      EXPECT_FALSE(name.starts_with("no_")) << name << " would collide with --no_";
      EXPECT_EQ(find_key(name), &key);
    }
  }
}

// Catches two keys tied to one member, and a default outside its own range.
TEST(Keys, EveryKeyStoresItsOwnMember) {
  for (const Key& key : keys()) {
    Settings settings;
    const std::vector<std::string> usual = key.load(settings);
    ASSERT_TRUE(key.store(settings, usual)) << key.name << ": its default is not accepted";
    ASSERT_EQ(settings, Settings{}) << key.name;

    std::string other = "x";
    if (key.type == Type::kBool) other = usual.front() == "true" ? "false" : "true";
    if (key.type == Type::kEnum)
      other = usual.front() == key.choices.back() ? key.choices.front() : key.choices.back();
    if (key.type == Type::kInt || key.type == Type::kReal)
      other = usual.front() == key.maximum ? key.minimum : key.maximum;
    if (key.numbers) other = "3";
    if (key.name == "mixture_schedule") other = "0.5 7 3";
    if (key.name == "length_schedule") other = "0.5 64";
    if (key.name == "nnodes") other = "2:4";
    ASSERT_TRUE(key.store(settings, std::vector{other})) << key.name;
    for (const Key& each : keys()) {
      const bool changed = each.load(settings) != each.load(Settings{});
      EXPECT_EQ(changed, &each == &key) << key.name << " changed " << each.name;
    }
  }
}

// Every key of the section, its choices and its default, as the guides have them.
TEST(Keys, EightBitTraining) {
  const std::vector<std::array<std::string, 3>> wanted = {
      {"use_fp8", "true/false", "false"},
      {"fp8_recipe", "delayed|current|rowwise|blockwise|mxfp8|nvfp4", "delayed"},
      {"fp8_scenario", "none|mxfp8", "none"},
      {"fp8_format", "auto|hybrid|e4m3|e5m2", "auto"},
      {"fp8_margin", "integer", "0"},
      {"fp8_interval", "integer", "1"},
      {"fp8_amax_history", "integer", "1024"},
      {"fp8_amax_algo", "max|most_recent", "max"},
      {"fp8_update", "pass|step", "pass"},
      {"fp4_hadamard", "true/false", "true"},
      {"fp4_stochastic_rounding", "true/false", "true"},
      {"fp4_weight_blocks", "true/false", "true"},
      {"fp8_skip", "list", "[]"},
      {"fp8_execution", "auto|native|rehearse", "auto"},
      {"fp8_backend", "auto|te|aten|rehearse", "auto"},
      {"use_te", "true/false", "false"},
      {"fp8_accumulate", "fp32|hopper", "fp32"},
      {"fp8_stats_freq", "integer", "100"},
      {"fp8_guard", "off|log|fallback", "log"}};
  std::vector<std::array<std::string, 3>> found;
  for (const Key& key : keys()) {
    if (key.section != Section::kFp8) continue;
    found.push_back({key.name, key.type_name(), key.text(Settings{})});
    EXPECT_EQ(key.readers & ~(reader::kVerify | reader::kPlan), reader::kTrain) << key.name;
  }
  EXPECT_EQ(found, wanted);
  EXPECT_EQ(find_key("mixed_precision")->type_name(), "fp8|bf16|fp32");
  EXPECT_EQ(find_key("fp8_margin")->wanted, "an integer from 0 to 16");
  EXPECT_EQ(find_key("fp8_interval")->minimum, "1");
  EXPECT_EQ(find_key("fp8_amax_history")->wanted, "an integer from 1 to 65536");
  EXPECT_EQ(find_key("fp8_stats_freq")->minimum, "0");
}

// A value and its name belong together: a name in the wrong place would train something else.
TEST(Keys, NamesOfValues) {
  EXPECT_EQ(name_of(Precision::kFp8), "fp8");
  EXPECT_EQ(name_of(Precision::kFp32), "fp32");
  EXPECT_EQ(name_of(PenaltyType::kActivationL2), "activation_l2");
  EXPECT_EQ(name_of(Fp8Format::kE4m3), "e4m3");
  EXPECT_EQ(name_of(Fp8Format::kE5m2), "e5m2");
  EXPECT_EQ(name_of(Fp8AmaxAlgo::kMostRecent), "most_recent");
  EXPECT_EQ(name_of(Fp8Execution::kNative), "native");
  EXPECT_EQ(name_of(Fp8Execution::kRehearse), "rehearse");
  EXPECT_EQ(name_of(Fp8Backend::kTe), "te");
  EXPECT_EQ(name_of(Fp8Backend::kAten), "aten");
  EXPECT_EQ(name_of(Fp8Scenario::kMxfp8), "mxfp8");
  EXPECT_EQ(name_of(Fp8Guard::kOff), "off");
  EXPECT_EQ(name_of(Fp8Guard::kFallback), "fallback");
}

TEST(Keys, NumbersAreWholeAndInRange) {
  const Key* key = find_key("batch_size");
  Settings settings;
  const auto stores = [&](const std::string& text) {
    return key->store(settings, std::vector{text});
  };
  EXPECT_TRUE(stores("1"));
  EXPECT_TRUE(stores("65536"));
  EXPECT_TRUE(stores("+7"));
  EXPECT_EQ(settings.batch_size, 7);
  for (const char* bad : {"", "0", "65537", "-1", "8.0", "8 ", " 8", "8x", "1e3", "0x10", "+-8",
                          "+", "99999999999999999999"})
    EXPECT_FALSE(stores(bad)) << bad;
  EXPECT_EQ(settings.batch_size, 7);

  key = find_key("min_lr_ratio");
  for (const char* good : {"0", "1", "0.25", "1e-3", ".5"}) EXPECT_TRUE(stores(good)) << good;
  for (const char* bad : {"1.5", "-0.1", "nan", "inf", "0,5", "half", "1e999"})
    EXPECT_FALSE(stores(bad)) << bad;
}

TEST(Keys, TextIsUtf8) {
  EXPECT_TRUE(is_text("plain, ünïcödé, 字, 😀\n"));
  for (std::string_view bad :
       {std::string_view("\0", 1), std::string_view("\xff"), std::string_view("\xc0\x80"),
        std::string_view("\xed\xa0\x80"), std::string_view("\xf4\x90\x80\x80"),
        std::string_view("a\xe2\x82"), std::string_view("\x80")})
    EXPECT_FALSE(is_text(bad));
}

TEST(Keys, NearestKnowsAliases) {
  EXPECT_EQ(nearest_key("max_step"), "max_steps");
  EXPECT_EQ(nearest_key("learning_rat"), "learning_rate");
  EXPECT_EQ(nearest_key("max_lrr"), "max_lr");
}

}  // namespace
}  // namespace octavo::config
