// Devices, driver, links.

#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "base/progress.h"
#include "base/text.h"
#include "verify/judge.h"

namespace octavo::verify {
namespace {

constexpr const char* kInstallDriver =
    "install the NVIDIA driver of the data centre branch (580 or newer), or start the container "
    "with its GPUs (docker run --gpus all); nvidia-smi must list them";

// The oldest driver whose kernel module serves a CUDA runtime.
int least_driver(int cuda_major) {
  return cuda_major >= 13 ? 580 : 525;
}

Finding gpu_finding(std::string id, Status status, std::string wanted, std::string found,
                    std::string fix = {}) {
  return {Section::kGpu,     std::move(id),    status,
          std::move(wanted), std::move(found), std::move(fix)};
}

// The number at the end of "cuInit returned 803".
int code_in(const std::string& reason) {
  const size_t at = reason.find_last_not_of("0123456789");
  int code = 0;
  if (at != reason.npos && at + 1 < reason.size())
    std::from_chars(reason.data() + at + 1, reason.data() + reason.size(), code);
  return code;
}

std::string fix_of_start(int code) {
  switch (code) {
    case 100:
      return "no device is visible to this process: look at CUDA_VISIBLE_DEVICES, and at the "
             "container's --gpus";
    case 802:
      return "the NVSwitch fabric is not up: start nvidia-fabricmanager of the driver's own "
             "version (systemctl start nvidia-fabricmanager)";
    case 803:
    case 804:
      return "libcuda.so.1 and the kernel module are of different versions: reboot after a driver "
             "update, or take the container's own libcuda off LD_LIBRARY_PATH";
    default:
      return "see what nvidia-smi and dmesg | grep -i nvrm say; " + std::string(kInstallDriver);
  }
}

Finding without_gpu(const Facts& facts, const Requirements& wanted) {
  Finding f = gpu_finding("devices", Status::kNote, "a GPU of compute capability 8.9 or above",
                          "no GPU: " + facts.gpus.reason,
                          "nothing, if this machine is to rehearse on its CPU; otherwise " +
                              std::string(kInstallDriver));
  const int code = code_in(facts.gpus.reason);
  if (!facts.driver.file.empty() && code != 0) {
    f.status = Status::kFail;
    f.fix = fix_of_start(code);
  } else if (!facts.nvml.gpus.empty()) {
    f.status = Status::kFail;
    f.found += str("; the driver lists ", facts.nvml.gpus.size());
    f.fix = "unset CUDA_VISIBLE_DEVICES, or name devices that exist in it";
  } else if (facts.driver.nvidia_cards > 0) {
    f.status = Status::kFail;
    f.found += str("; ", facts.driver.nvidia_cards, " NVIDIA card(s) on the PCI bus");
    f.fix = kInstallDriver;
  } else if (wanted.require_gpu) {
    f.status = Status::kFail;
    f.fix = kInstallDriver;
  }
  return f;
}

std::string recipes_of(const fp8::Device& device) {
  std::vector<std::string> names;
  for (const fp8::Recipe recipe : fp8::kAllRecipes)
    if (fp8::has_native(device, recipe)) names.emplace_back(config::name_of(recipe));
  return names.empty() ? "no FP8 matrix units" : "FP8 recipes " + join(names, ", ");
}

Finding judge_gpu(const Facts& facts, const Requirements& wanted, size_t index) {
  const engine::GpuInfo& gpu = facts.gpus.gpus[index];
  const fp8::Device device = device_of(facts, index);
  const int capability = 10 * gpu.major + gpu.minor;
  Finding f = gpu_finding(str("gpu ", index), Status::kOk, "compute capability 8.9 or above",
                          str(gpu.name, ", compute capability ", gpu.major, ".", gpu.minor, ", ",
                              format_bytes(static_cast<double>(gpu.memory_bytes)), ", ",
                              gpu.multiprocessors, " multiprocessors; ", recipes_of(device)));
  if (capability < 80) {
    f.status = Status::kFail;
    f.wanted = "compute capability 8.0 or above for BF16, 8.9 or above for FP8";
    f.fix = "take a GPU of the generations Ampere (BF16), Ada, Hopper or Blackwell (FP8)";
  } else if (capability < 89) {
    f.status = wanted.fp8 ? Status::kFail : Status::kNote;
    f.fix =
        "train here in BF16 (mixed_precision: bf16), or rehearse FP8's numerics without its speed "
        "(fp8_execution: rehearse); for FP8 speed take an L40S, H100, H200, B200 or RTX 40/50";
  } else if (wanted.fp8 && !fp8::has_native(device, wanted.recipe)) {
    f.status = Status::kFail;
    f.wanted = str("fp8_recipe ", config::name_of(wanted.recipe));
    f.fix = str("take one of this device's own: ", recipes_of(device));
  }
  return f;
}

void judge_together(const Facts& facts, std::vector<Finding>& out) {
  const auto& gpus = facts.gpus.gpus;
  const auto differs = [&](const engine::GpuInfo& g) {
    return g.major != gpus[0].major || g.minor != gpus[0].minor ||
           g.memory_bytes / (uint64_t{1} << 30) != gpus[0].memory_bytes / (uint64_t{1} << 30);
  };
  if (std::ranges::any_of(gpus, differs))
    out.push_back(gpu_finding("same kind", Status::kWarn, "GPUs of one kind and memory size",
                              "different ones: the slowest and smallest sets the pace of all",
                              "name those of one kind in CUDA_VISIBLE_DEVICES"));
  if (facts.nvml.gpus.size() > gpus.size())
    out.push_back(gpu_finding("visible", Status::kNote, "",
                              str(gpus.size(), " of the machine's ", facts.nvml.gpus.size(),
                                  " GPUs are visible (CUDA_VISIBLE_DEVICES)")));
}

Finding judge_driver(const Facts& facts) {
  const Driver& driver = facts.driver;
  const Version runtime = facts.libraries.cudart.version;
  Finding f = gpu_finding("driver", Status::kOk, "",
                          str(driver.version.empty() ? "version unknown" : driver.version,
                              ", knows CUDA up to ", driver.cuda.text(), " (", driver.file, ")"));
  if (!runtime.known()) return f;
  f.wanted =
      str("a driver for CUDA ", runtime.major, ".x: ", least_driver(runtime.major), " or newer");
  if (!driver.cuda.known()) {
    f.status = Status::kNotChecked;
    f.found += "; it does not say which CUDA it knows";
  } else if (driver.cuda.major < runtime.major) {
    f.status = Status::kFail;
    f.fix = str("update the driver to ", least_driver(runtime.major),
                " or newer, or install the package cuda-compat-", runtime.major, "-", runtime.minor,
                " and put its folder first on LD_LIBRARY_PATH");
  } else if (driver.cuda < runtime) {
    f.status = Status::kNote;
    f.found += str("; older than the runtime's ", runtime.text(),
                   ", which CUDA's minor version compatibility allows");
  }
  return f;
}

void judge_state(const Facts& facts, std::vector<Finding>& out) {
  for (size_t i = 0; i < facts.nvml.gpus.size(); ++i) {
    const GpuState& gpu = facts.nvml.gpus[i];
    if (gpu.memory_total > 0 && gpu.memory_used > gpu.memory_total / 20)
      out.push_back(gpu_finding(
          str("memory in use, gpu ", i), Status::kWarn, "an empty GPU",
          str(format_bytes(static_cast<double>(gpu.memory_used)), " of ",
              format_bytes(static_cast<double>(gpu.memory_total)), " are taken already"),
          "end the processes that nvidia-smi lists; out of memory comes earlier with them"));
    if (gpu.pcie_width_most > 0 && gpu.pcie_width < gpu.pcie_width_most)
      out.push_back(gpu_finding(str("PCIe, gpu ", i), Status::kWarn,
                                str(gpu.pcie_width_most, " lanes"), str(gpu.pcie_width, " lanes"),
                                "seat the card again, or use a slot with all lanes"));
  }
}

Finding judge_links(const Facts& facts) {
  const Nvml& nvml = facts.nvml;
  Finding f = gpu_finding("links", Status::kOk, "NVLink between GPUs that train together", "");
  if (facts.gpus.gpus.size() < 2) {
    f.status = Status::kNotChecked;
    f.found = "one GPU has nobody to talk to";
  } else if (!nvml.problem.empty() || nvml.links.empty()) {
    f.status = Status::kNotChecked;
    f.found = nvml.problem.empty() ? "NVML lists no pairs" : nvml.problem;
  } else {
    const auto slow = std::ranges::find_if(nvml.links, [](const Link& l) { return !l.nvlink; });
    const auto with = std::ranges::count_if(nvml.links, [](const Link& l) { return l.nvlink; });
    f.found = str(with, " of ", nvml.links.size(), " pairs by NVLink");
    if (slow != nvml.links.end()) {
      f.status = Status::kWarn;
      f.found += str("; GPUs ", slow->first, " and ", slow->second, " ", slow->path);
      f.fix =
          "gradients go over PCIe: take more gradient_accumulation_steps, so that they are "
          "summed less often, or put GPUs with NVLink into one run (CUDA_VISIBLE_DEVICES)";
    }
  }
  return f;
}

}  // namespace

fp8::Device device_of(const Facts& facts, size_t index) {
  const engine::GpuInfo& gpu = facts.gpus.gpus.at(index);
  return {.is_gpu = true,
          .major = gpu.major,
          .minor = gpu.minor,
          .has_te = !facts.libraries.te.file.empty() && facts.libraries.te.problem.empty(),
          .name = gpu.name};
}

std::vector<Finding> judge_gpus(const Facts& facts, const Requirements& wanted) {
  std::vector<Finding> out;
  if (!facts.driver.file.empty()) out.push_back(judge_driver(facts));
  if (facts.gpus.gpus.empty()) {
    // A driver that is too old is why no device is seen: one failure, not two.
    Finding f = without_gpu(facts, wanted);
    if (!out.empty() && out[0].status == Status::kFail) f.fix = out[0].fix;
    out.push_back(f);
    return out;
  }
  for (size_t i = 0; i < facts.gpus.gpus.size(); ++i) out.push_back(judge_gpu(facts, wanted, i));
  judge_together(facts, out);
  judge_state(facts, out);
  out.push_back(judge_links(facts));
  return out;
}

}  // namespace octavo::verify
