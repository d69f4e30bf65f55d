#pragma once
// length_schedule: sequences that are shorter in a part of the run. A sample keeps its
// max_seq_length tokens and holds several sequences, so a step has the same tokens throughout.

#include <optional>
#include <string>
#include <vector>

#include "config/key.h"

namespace octavo::config {

Key length_key();

// From `at`, a share of the run, on: sequences of so many tokens.
struct ScheduledLength {
  double at = 0;
  int64_t length = 0;
};
// Of length_schedule's texts, "0.1 2048". Nothing: one of them is no such text.
std::optional<std::vector<ScheduledLength>> scheduled_lengths(
    const std::vector<std::string>& texts);

// What is wrong with the schedule beside the other keys, and what to type; "": nothing.
std::string length_problem(const Settings& settings);

}  // namespace octavo::config
