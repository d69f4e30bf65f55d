// GPUs in the words of drivers ("NVIDIA H100 80GB HBM3"), vendors ("H100 SXM 80GB") and people
// ("H100", "h100-sxm", "4090").

#include <charconv>
#include <string>

#include "plan/gpu.h"

namespace octavo::plan {
namespace {

struct DeviceName {
  std::string_view chip;     // what the name begins with
  std::string_view variant;  // must stand behind it, somewhere
  std::string_view gpu;      // of plan/gpu.cpp
};
// The first that fits.
constexpr DeviceName kDeviceNames[] = {{"gh200", "", "gh200"},
                                       {"gb200", "", "gb200"},
                                       {"gb300", "", "gb300"},
                                       {"b200", "", "b200"},
                                       {"b300", "", "b300"},
                                       {"h200", "nvl", "h200_nvl"},
                                       {"h200", "", "h200"},
                                       {"h100", "pcie", "h100_pcie"},
                                       {"h100", "nvl", "h100_nvl"},
                                       {"h100", "500w", "h100_500w"},
                                       {"h100", "", "h100"},
                                       {"a100", "", "a100"},
                                       {"a100", "pcie", "a100"},
                                       {"a100", "", "a100_40gb"},
                                       {"a100", "pcie", "a100_40gb"},
                                       {"l40s", "", "l40s"},
                                       {"l4", "", "l4"},
                                       {"4090", "", "rtx4090"},
                                       {"4060ti", "", "rtx4060ti"},
                                       {"5090", "", "rtx5090"},
                                       {"5060ti", "", "rtx5060ti"},
                                       {"pro6000", "", "rtxpro6000"},
                                       {"6000pro", "", "rtxpro6000"}};
// Before the chip, in this order, and behind it in any. What is not here (laptop, d, max-q) is
// another chip under the same name, and no peak is better than another chip's.
constexpr std::string_view kBefore[] = {"nvidia", "tesla", "geforce", "rtx"};
constexpr std::string_view kBehind[] = {"sxm4",   "sxm5",   "sxm6",    "sxm",         "hbm2e",
                                        "hbm2",   "hbm3e",  "hbm3",    "blackwell",   "hopper",
                                        "ampere", "server", "edition", "workstation", "tensorcore",
                                        "gpu",    "ac",     "nvl72"};

// Small letters and digits alone.
std::string squeezed(std::string_view name) {
  std::string text;
  for (const char c : name) {
    if (c >= 'A' && c <= 'Z') text += static_cast<char>(c - 'A' + 'a');
    if ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9')) text += c;
  }
  return text;
}

// What is printed on the box is a little more than what CUDA reports.
bool has_memory(const Gpu& gpu, int gigabytes) {
  if (gpu.name == "gh200" && gigabytes == 480) return true;  // the CPU's, by which it is called
  return gigabytes > gpu.memory_gib - 1 && gigabytes < 1.12 * gpu.memory_gib;
}

// Whether nothing behind the chip speaks against this GPU.
bool may_follow(std::string_view rest, const DeviceName& name, const Gpu& gpu, bool has_variant) {
  if (rest.empty()) return has_variant || name.variant.empty();
  const auto without = [&](std::string_view word) { return rest.substr(word.size()); };
  if (!name.variant.empty() && rest.starts_with(name.variant) &&
      may_follow(without(name.variant), name, gpu, true))
    return true;
  for (const std::string_view word : kBehind)
    if (rest.starts_with(word) && may_follow(without(word), name, gpu, has_variant)) return true;
  int gigabytes = 0;
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), gigabytes);
  if (error != std::errc{}) return false;
  rest.remove_prefix(static_cast<size_t>(end - rest.data()));
  return rest.starts_with("gb") && has_memory(gpu, gigabytes) &&
         may_follow(rest.substr(2), name, gpu, has_variant);
}

}  // namespace

const Gpu* gpu_of_device(std::string_view device_name) {
  constexpr size_t kLongest = 100;
  if (device_name.size() > kLongest) return nullptr;
  const std::string text = squeezed(device_name);
  std::string_view rest = text;
  for (const std::string_view word : kBefore)
    if (rest.starts_with(word)) rest.remove_prefix(word.size());
  for (const DeviceName& name : kDeviceNames) {
    if (!rest.starts_with(name.chip)) continue;
    for (const Gpu& gpu : gpus())
      if (gpu.name == name.gpu && may_follow(rest.substr(name.chip.size()), name, gpu, false))
        return &gpu;
  }
  return nullptr;
}

}  // namespace octavo::plan
