#pragma once
// What other trainers and the guides call our keys. A flag that means the same with the same value
// is taken; what means something else, or nothing here, is refused with what to write instead.

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config/parse.h"

namespace octavo::config {

// The key that another program's flag stands for, "" when none does: "lr" is learning_rate.
std::string_view our_name(std::string_view theirs);

// The words of a command line in our spelling: --lr 1e-4 is --learning_rate 1e-4, --bf16 is
// --mixed_precision bf16, --no_wandb is --no_use_wandb, --config F.yaml is F.yaml.
std::vector<std::string> in_our_words(std::span<const std::string> words,
                                      const Arguments& arguments);

// What to write instead of a key that does not exist, "" when nothing is known about it.
std::string spelling_hint(std::string_view name);

// What may have been meant by a value that a key does not take: "; did you mean bf16?", or "".
std::string value_hint(const Key& key, std::span<const std::string> values);

// Both tables, for tests: their names, all of them.
std::vector<std::string_view> foreign_names();

}  // namespace octavo::config
