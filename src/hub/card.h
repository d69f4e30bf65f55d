#pragma once
// The part of a data set's card (README.md) that says which files are which subset and split.

#include <string>
#include <utility>
#include <vector>

namespace octavo::hub {

struct CardSubset {
  std::string name;
  bool is_default = false;
  std::string folder;  // data_dir, when there are no patterns: the names in it decide
  // split -> patterns of file names, in the card's order
  std::vector<std::pair<std::string, std::vector<std::string>>> patterns;
};

// Empty when the card does not say, or says it in a way that is not understood (which is logged).
std::vector<CardSubset> read_card(const std::string& card, const std::string& id);

}  // namespace octavo::hub
