// The driver, and what NVML knows beyond CUDA: memory in use, lanes, links. Both are loaded when
// they are there; octavo links neither.

#include <dlfcn.h>

#include <fstream>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "verify/driver.h"

namespace octavo::verify {
namespace {

constexpr int kNvlinkCapability = 2;  // NVML_P2P_CAPS_INDEX_NVLINK
constexpr unsigned kMostLinks = 18;   // NVML_NVLINK_MAX_LINKS

// "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.65.06  Sun Jul …"
std::string kernel_module_version() {
  std::ifstream file("/proc/driver/nvidia/version");
  std::string line;
  std::getline(file, line);
  for (const std::string& word : split(line, ' '))
    if (!word.empty() && word.find_first_not_of("0123456789.") == word.npos &&
        word.find('.') != word.npos)
      return word;
  return "";
}

int cards_on_bus() {
  int cards = 0;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator("/sys/bus/pci/devices", error)) {
    std::string vendor, kind;
    std::ifstream(entry.path() / "vendor") >> vendor;
    std::ifstream(entry.path() / "class") >> kind;
    cards += vendor == "0x10de" && kind.starts_with("0x03") ? 1 : 0;
  }
  return cards;
}

using Device = struct Opaque*;

// The few functions of NVML that are asked; a name that an old library lacks answers "unknown".
class NvmlLibrary {
 public:
  explicit NvmlLibrary(void* handle) : handle_(handle) {}
  // Whether the call was made and gave 0.
  template <class... Args>
  bool call(const char* name, Args... args) const {
    const auto function = reinterpret_cast<int (*)(Args...)>(dlsym(handle_, name));
    return function != nullptr && function(args...) == 0;
  }

 private:
  void* handle_;
};

GpuState state_of(const NvmlLibrary& nvml, Device device) {
  GpuState state;
  char name[96] = {};
  if (nvml.call("nvmlDeviceGetName", device, &name[0], 96u)) state.name = name;
  if (!nvml.call("nvmlDeviceGetCudaComputeCapability", device, &state.major, &state.minor))
    state.major = state.minor = 0;
  struct {
    unsigned long long total, free, used;
  } memory{};
  if (nvml.call("nvmlDeviceGetMemoryInfo", device, static_cast<void*>(&memory))) {
    state.memory_total = memory.total;
    state.memory_used = memory.used;
  }
  const auto number = [&](const char* function) {
    unsigned value = 0;
    return nvml.call(function, device, &value) ? static_cast<int>(value) : 0;
  };
  state.pcie_generation = number("nvmlDeviceGetCurrPcieLinkGeneration");
  state.pcie_generation_most = number("nvmlDeviceGetMaxPcieLinkGeneration");
  state.pcie_width = number("nvmlDeviceGetCurrPcieLinkWidth");
  state.pcie_width_most = number("nvmlDeviceGetMaxPcieLinkWidth");
  for (unsigned link = 0; link < kMostLinks; ++link) {
    int active = 0;
    if (nvml.call("nvmlDeviceGetNvLinkState", device, link, &active) && active == 1)
      ++state.nvlinks;
  }
  return state;
}

// nvmlGpuTopologyLevel_t
std::string path_of(int level) {
  if (level <= 0) return "on one board";
  if (level <= 10) return "through one PCIe switch";
  if (level <= 20) return "through several PCIe switches";
  if (level <= 30) return "through one PCIe host bridge";
  return level <= 40 ? "through the memory of one processor" : "across processors";
}

Link link_between(const NvmlLibrary& nvml, const std::vector<Device>& devices, int a, int b) {
  Link link{.first = a, .second = b, .nvlink = false, .path = {}};
  const Device first = devices[static_cast<size_t>(a)], second = devices[static_cast<size_t>(b)];
  int status = 1, level = 50;
  link.nvlink =
      nvml.call("nvmlDeviceGetP2PStatus", first, second, kNvlinkCapability, &status) && status == 0;
  if (nvml.call("nvmlDeviceGetTopologyCommonAncestor", first, second, &level))
    link.path = path_of(level);
  else
    link.path = "by a way that NVML does not tell";
  return link;
}

}  // namespace

std::string Version::text() const {
  if (!known()) return "unknown";
  std::string out = str(major, ".", minor);
  return patch != 0 ? str(out, ".", patch) : out;
}

Driver gather_driver() {
  Driver driver;
  driver.nvidia_cards = cards_on_bus();
  driver.version = kernel_module_version();
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr) return driver;
  driver.file = "libcuda.so.1";
  void* symbol = dlsym(library, "cuDriverGetVersion");
  Dl_info info{};
  if (symbol != nullptr && dladdr(symbol, &info) != 0 && info.dli_fname != nullptr)
    driver.file = info.dli_fname;
  int number = 0;
  if (symbol != nullptr && reinterpret_cast<int (*)(int*)>(symbol)(&number) == 0)
    driver.cuda = {number / 1000, number % 1000 / 10, 0};
  return driver;
}

Nvml gather_nvml() {
  Nvml out;
  void* handle = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    out.problem = "NVML (libnvidia-ml.so.1) is not on this machine";
    return out;
  }
  const NvmlLibrary nvml(handle);
  if (!nvml.call("nvmlInit_v2")) {
    out.problem = "NVML does not start";
    return out;
  }
  char version[96] = {};
  if (nvml.call("nvmlSystemGetDriverVersion", &version[0], 96u)) out.driver = version;
  unsigned count = 0;
  nvml.call("nvmlDeviceGetCount_v2", &count);
  std::vector<Device> devices;
  for (unsigned i = 0; i < count; ++i) {
    Device device = nullptr;
    if (!nvml.call("nvmlDeviceGetHandleByIndex_v2", i, &device)) continue;
    devices.push_back(device);
    out.gpus.push_back(state_of(nvml, device));
  }
  const int found = static_cast<int>(devices.size());
  for (int a = 0; a < found; ++a)
    for (int b = a + 1; b < found; ++b) out.links.push_back(link_between(nvml, devices, a, b));
  nvml.call("nvmlShutdown");
  return out;
}

}  // namespace octavo::verify
