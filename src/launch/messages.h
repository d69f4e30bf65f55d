#pragma once
// What launchers write into the store for each other, and read back with care.

#include <string>

#include "launch/coordinator.h"

namespace octavo::launch {

inline constexpr const char* kPlanKey = "launch/start";
inline constexpr const char* kTermsKey = "launch/terms";
inline constexpr const char* kStoreKey = "launch/store";  // a name that no other store has
// Set by a node that waited without ranks and has read that the run ended.
std::string left_key(int node);
// Of one generation: the node takes part, how its ranks ended, it has read what node 0 decided.
std::string node_key(int generation, int node);
std::string node_prefix(int generation);  // of these keys
std::string end_key(int generation, int node);
std::string read_key(int generation, int node);
std::string verdict_key(int generation);

std::string written(const Verdict& verdict);
Verdict read_verdict(const std::string& text);
std::string written(const StartPlan& plan);
StartPlan read_plan(const std::string& text);
std::string written(const RunTerms& terms);
RunTerms read_terms(const std::string& text);

}  // namespace octavo::launch
