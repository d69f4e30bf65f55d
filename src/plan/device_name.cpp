#include <algorithm>
#include <string>
#include <vector>

#include "base/text.h"
#include "plan/gpu.h"

namespace octavo::plan {
namespace {

struct DeviceWords {
  std::string_view words;  // all of them stand in the device's name
  std::string_view gpu;    // of plan/gpu.cpp
};

// The first that fits.
constexpr DeviceWords kDeviceWords[] = {{"gh200", "gh200"},         {"gb200", "gb200"},
                                        {"gb300", "gb300"},         {"b200", "b200"},
                                        {"b300", "b300"},           {"h200 nvl", "h200_nvl"},
                                        {"h200", "h200"},           {"h100 pcie", "h100_pcie"},
                                        {"h100 nvl", "h100_nvl"},   {"h100", "h100"},
                                        {"a100 40gb", "a100_40gb"}, {"a100", "a100"},
                                        {"l40s", "l40s"},           {"l4", "l4"},
                                        {"rtx 4090", "rtx4090"},    {"4060 ti", "rtx4060ti"},
                                        {"rtx 5090", "rtx5090"},    {"5060 ti", "rtx5060ti"},
                                        {"pro 6000", "rtxpro6000"}};
// Smaller chips under the same name.
constexpr std::string_view kOther[] = {"laptop", "d", "max"};

std::vector<std::string> words_of(std::string_view name) {
  std::string text(name);
  for (char& c : text) {
    if (c == '-') c = ' ';
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return split(text, ' ');
}

}  // namespace

const Gpu* gpu_of_device(std::string_view device_name) {
  const std::vector<std::string> words = words_of(device_name);
  const auto has = [&](std::string_view word) {
    return std::ranges::find(words, word) != words.end();
  };
  if (std::ranges::any_of(kOther, has)) return nullptr;
  for (const DeviceWords& entry : kDeviceWords)
    if (std::ranges::all_of(split(entry.words, ' '), has)) return find_gpu(entry.gpu);
  return nullptr;
}

}  // namespace octavo::plan
