#pragma once
// A mixture of data sets: `dataset` with weights. In a file an entry of `dataset` may be a mapping,
// {path: web, weight: 0.7, max_epochs: 4}, which is the same as an item in each of the keys
// dataset, dataset_weights and dataset_max_epochs.

#include <optional>
#include <string>
#include <vector>

#include "config/key.h"
#include "config/yaml.h"

namespace octavo::config {

std::vector<Key> mixture_keys();

inline bool is_mixture(const Settings& s) {
  return !s.dataset_weights.empty() || !s.dataset_max_epochs.empty();
}

// From `at`, a share of the run, on: these weights.
struct ScheduledWeights {
  double at = 0;
  std::vector<double> weights;
};
// Of mixture_schedule's texts, "0.9 0.2 0.8". Nothing: one of them is no such text.
std::optional<std::vector<ScheduledWeights>> scheduled_weights(
    const std::vector<std::string>& texts);

// `dataset` of a file whose items are mappings, in the words of flat keys.
struct MixtureEntries {
  std::vector<std::string> paths, weights, max_epochs;  // the last two may be empty
};
MixtureEntries mixture_entries(const YamlEntry& entry, const std::string& where);

// What is wrong with the keys of a mixture together, and what to type; "": nothing.
std::string mixture_problem(const Settings& settings);
// The same of how long it is trained on.
std::string mixture_length_problem(const Settings& settings);

}  // namespace octavo::config
