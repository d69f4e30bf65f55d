#include "fake_cuda/kernels.h"

#include <cxxabi.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "fake_cuda/device.h"
#include "fake_cuda/memory.h"
#include "fake_cuda/record.h"

namespace octavo::fake_cuda {
namespace {

struct Variable {
  std::size_t bytes;
  void* address = nullptr;  // made when it is first asked for
};

struct Registry {
  std::mutex mutex;
  // libtorch registers a hundred thousand kernels and uses a few dozen, so the table is built when
  // one is looked up.
  std::vector<std::pair<const void*, const char*>> fresh;
  std::unordered_map<const void*, const char*> mangled;
  std::unordered_map<const void*, std::unique_ptr<Kernel>> kernels;  // by host function
  std::unordered_map<const void*, Kernel*> handles;                  // by themselves
  std::unordered_map<const void*, Variable> variables;
};

Registry& registry() {
  static auto* const only = new Registry;
  return *only;
}

void erase_all(std::string& text, const std::string& word) {
  for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at))
    text.erase(at, word.size());
}

// The end of the name: parameters are in the last parentheses at depth zero.
std::size_t end_of_name(const std::string& text) {
  int depth = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '<') ++depth;
    if (text[i] == '>' && (i == 0 || text[i - 1] != '-')) --depth;
    if (text[i] == '(' && depth == 0) return i;
  }
  return text.size();
}

Kernel& add_kernel(std::unique_ptr<Kernel> kernel, const void* key) {
  Kernel& added = *kernel;
  registry().handles[&added] = &added;
  registry().kernels[key] = std::move(kernel);
  return added;
}

}  // namespace

std::string readable_name(const char* mangled) {
  int status = 0;
  char* const demangled = abi::__cxa_demangle(mangled, nullptr, nullptr, &status);
  if (demangled == nullptr) return mangled;
  std::string text = demangled;
  std::free(demangled);
  for (const char* word :
       {"(anonymous namespace)::", "at::native::", "transformer_engine::", "c10::"}) {
    erase_all(text, word);
  }
  text.resize(end_of_name(text));
  if (text.starts_with("void ")) text.erase(0, 5);
  constexpr std::size_t kLongest = 160;
  if (text.size() > kLongest) text = text.substr(0, kLongest - 3) + "...";
  return text;
}

Kernel& find_kernel(const void* key) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  if (const auto known = all.kernels.find(key); known != all.kernels.end()) return *known->second;
  if (const auto known = all.handles.find(key); known != all.handles.end()) return *known->second;
  for (const auto& [function, name] : all.fresh) all.mangled[function] = name;
  all.fresh.clear();
  const auto found = all.mangled.find(key);
  const std::string name =
      found == all.mangled.end() ? "unregistered kernel" : readable_name(found->second);
  return add_kernel(std::make_unique<Kernel>(Kernel{strdup(name.c_str())}), key);
}

Kernel& make_kernel(const char* mangled) {
  const std::string name = readable_name(mangled);
  auto kernel = std::make_unique<Kernel>(Kernel{strdup(name.c_str())});
  const void* const key = kernel.get();
  const std::lock_guard lock(registry().mutex);
  return add_kernel(std::move(kernel), key);
}

void* address_of_variable(const void* symbol) {
  const std::lock_guard lock(registry().mutex);
  const auto found = registry().variables.find(symbol);
  if (found == registry().variables.end()) return nullptr;
  if (found->second.address == nullptr)
    found->second.address = allocate_variable(found->second.bytes);
  return found->second.address;
}

cudaError_t launch(const Kernel& kernel, const LaunchShape& shape, cudaStream_t stream) {
  const auto& [grid, block, shared_memory] = shape;
  if (availability() != cudaSuccess) return remember(availability());
  const std::uint64_t threads = std::uint64_t{block.x} * block.y * block.z;
  const bool fits = threads >= 1 && threads <= 1024 && block.z <= 64 && grid.x >= 1 &&
                    grid.y >= 1 && grid.z >= 1 && grid.x <= 2147483647u && grid.y <= 65535 &&
                    grid.z <= 65535;
  if (!fits) return remember(cudaErrorInvalidConfiguration);
  if (shared_memory > kernel.dynamic_shared_memory) return remember(cudaErrorInvalidValue);
  return submit(stream, make_event(Kind::kLaunch, kernel.name, stream));
}

cudaError_t set_dynamic_shared_memory(Kernel& kernel, int bytes) {
  if (bytes < 0 || bytes > model().shared_memory_block) return remember(cudaErrorInvalidValue);
  const std::lock_guard lock(registry().mutex);
  kernel.dynamic_shared_memory = bytes;
  return cudaSuccess;
}

}  // namespace octavo::fake_cuda

using namespace octavo::fake_cuda;

// What compilers generate: a program registers its kernels and variables before main.
extern "C" {

void** __cudaRegisterFatBinary(void*) {
  static void* handle = nullptr;
  return &handle;
}

void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
char __cudaInitModule(void**) {
  return 1;
}

void __cudaRegisterFunction(void**, const char* host_function, char*, const char* name, int, uint3*,
                            uint3*, dim3*, dim3*, int*) {
  const std::lock_guard lock(registry().mutex);
  registry().fresh.emplace_back(host_function, name);
}

void __cudaRegisterVar(void**, char* symbol, char*, const char*, int, std::size_t bytes, int, int) {
  const std::lock_guard lock(registry().mutex);
  registry().variables[symbol] = {bytes};
}

cudaError_t cudaGetSymbolAddress(void** address, const void* symbol) {
  *address = address_of_variable(symbol);
  return *address == nullptr ? remember(cudaErrorInvalidSymbol) : cudaSuccess;
}

}  // extern "C"
