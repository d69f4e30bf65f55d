// What a profiler does to see NVTX ranges: a library that NVTX opens by NVTX_INJECTION64_PATH. This
// one writes "push THREAD NAME" and "pop THREAD" lines to the file that OCTAVO_RANGES names.

#include <nvtx3/nvToolsExt.h>
#include <pthread.h>

#include <cstdio>
#include <cstdlib>
#include <mutex>

namespace {

std::mutex mutex;
thread_local int depth = 0;

void write_line(const char* kind, const char* name) {
  static std::FILE* const file = std::fopen(std::getenv("OCTAVO_RANGES"), "a");
  if (file == nullptr) return;
  const std::lock_guard lock(mutex);
  std::fprintf(file, "%s %zu %s\n", kind, static_cast<size_t>(pthread_self()), name);
  std::fflush(file);
}

int push(const char* name) {
  write_line("push", name);
  return depth++;
}

int pop() {
  write_line("pop", "");
  return --depth;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int InitializeInjectionNvtx2(
    NvtxGetExportTableFunc_t get_table) {
  if (std::getenv("OCTAVO_RANGES") == nullptr) return 0;
  const auto* callbacks =
      static_cast<const NvtxExportTableCallbacks*>(get_table(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable table = nullptr;
  unsigned size = 0;
  if (callbacks == nullptr ||
      callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE, &table, &size) == 0 ||
      size <= NVTX_CBID_CORE_RangePop)
    return 0;
  *table[NVTX_CBID_CORE_RangePushA] = reinterpret_cast<NvtxFunctionPointer>(&push);
  *table[NVTX_CBID_CORE_RangePop] = reinterpret_cast<NvtxFunctionPointer>(&pop);
  return 1;
}
