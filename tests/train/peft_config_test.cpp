// An untrusted adapter_config.json.
#include "train/state/peft_config.h"

#include "expect_failure.h"

namespace octavo::train {
namespace {

Json sound_config() {
  return {{"peft_type", "LORA"}, {"r", 4}, {"lora_alpha", 8}, {"target_modules", {"q_proj"}}};
}

TEST(PeftConfig, PlainLoraIsTaken) {
  Json config = sound_config();
  EXPECT_EQ(parse_peft_config(config, "test").rank, 4);
  EXPECT_EQ(parse_peft_config(config, "test").alpha, 8);
  config["use_rslora"] = true;
  EXPECT_EQ(parse_peft_config(config, "test").alpha, 16);
  config["use_rslora"] = nullptr;
  config["target_modules"] = "all-linear";
  EXPECT_EQ(parse_peft_config(config, "test").targets, std::vector<std::string>{"all-linear"});
}

TEST(PeftConfig, WhatIsNoLoraOrNoNumberIsRefused) {
  const auto expect_refused = [](const char* field, const Json& value, ExitCode code) {
    Json config = sound_config();
    config[field] = value;
    expect_failure(code, field, [&] { parse_peft_config(config, "test"); });
  };
  const ExitCode damaged = ExitCode::kDamaged, usage = ExitCode::kUsage;
  expect_refused("r", 0, damaged);
  expect_refused("r", int64_t{1} << 40, damaged);
  expect_refused("r", 4.5, damaged);
  expect_refused("lora_alpha", "8", damaged);
  expect_refused("use_rslora", "yes", damaged);
  expect_refused("target_modules", Json::array(), damaged);
  expect_refused("peft_type", "IA3", usage);
  expect_refused("rank_pattern", {{"q_proj", 8}}, usage);
  expect_failure(damaged, "'r'", [] { parse_peft_config(Json::array(), "test"); });
}

TEST(PeftConfig, MessagesStayShort) {
  Json config = sound_config();
  config["modules_to_save"] = std::string(100'000, 'x');
  try {
    parse_peft_config(config, "test");
    FAIL();
  } catch (const Error& error) {
    EXPECT_LT(std::string(error.what()).size(), 300u);
  }
}

}  // namespace
}  // namespace octavo::train
