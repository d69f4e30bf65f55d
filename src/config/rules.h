#pragma once
// Contradictions between keys. Each rule is small, named and gives its reason.

#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config/key.h"

namespace octavo::config {

struct Rule {
  std::string_view name;
  Readers readers;          // checked for these verbs only
  std::string_view reason;  // shown to the user and in docs/reference/configuration.md
  bool (*holds)(const Settings&);
  std::string_view keys;  // space-separated, to show their values
};

std::span<const Rule> rules();

// One line for every broken rule that concerns `readers`. Rules about a key of `open_keys`, whose
// value could not be read, are left out.
std::vector<std::string> contradictions(const Settings& settings, Readers readers,
                                        const std::set<std::string>& open_keys = {});

}  // namespace octavo::config
