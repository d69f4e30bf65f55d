#pragma once
// The keys of FP8 and of each verb beside training: parts of key_table.cpp's table.

#include <vector>

#include "config/key.h"

namespace octavo::config {

std::vector<Key> fp8_keys();
std::vector<Key> generate_keys();
std::vector<Key> board_keys();
std::vector<Key> verify_keys();
std::vector<Key> plan_keys();
std::vector<Key> diagnose_keys();
std::vector<Key> bench_keys();
std::vector<Key> launch_keys();
std::vector<Key> compare_keys();
std::vector<Key> sweep_keys();

}  // namespace octavo::config
