// length_schedule in files and flags: what it becomes, and what is refused.

#include "config/length_keys.h"

#include "config/expect_refused.h"
#include "config/print.h"

namespace octavo::config {
namespace {

TEST(LengthKeys, StagesAreReadAndWrittenBack) {
  const Settings s =
      parse_text("length_schedule: [0 512, 0.25 1024]\nmax_seq_length: 2048\nmax_steps: 10\n",
                 "a.yaml")
          .settings;
  const auto stages = scheduled_lengths(s.length_schedule).value();
  ASSERT_EQ(stages.size(), 2u);
  EXPECT_EQ(stages[0].length, 512);
  EXPECT_EQ(stages[1].at, 0.25);
  EXPECT_EQ(parse_text(to_yaml(s), "b.yaml").settings, s);
  EXPECT_EQ(parse(Words{"--length_schedule", "0 512,0.25 1024", "--max_seq_length", "2048",
                        "--max_steps", "10"})
                .settings,
            s);
}

TEST(LengthKeys, WhatCannotBeMeantIsRefusedWithWhatToType) {
  const auto refused = [](const std::string& text, std::initializer_list<std::string> parts) {
    expect_refused([&] { parse_text(text + "\nmax_seq_length: 1024\n", "a.yaml"); }, parts);
  };
  for (const char* stage : {"512", "1 512", "-0.1 512", "nan 512", "0 0", "0 -4", "0 1.5", "0 x",
                            "0 512 1", "0.5 256, 0.5 512", "0.5 256, 0.1 512"})
    refused(str("max_steps: 5\nlength_schedule: [", stage, "]"), {"a.yaml:2", "0 512"});
  refused("max_steps: 5\nlength_schedule: [0 300]", {"divide max_seq_length 1024", "300"});
  refused("max_steps: 5\nlength_schedule: [0 2048]", {"divide max_seq_length 1024", "2048"});
  refused("num_epochs: 1\nlength_schedule: [0 512]", {"shares of max_steps", "give max_steps"});
}

}  // namespace
}  // namespace octavo::config
