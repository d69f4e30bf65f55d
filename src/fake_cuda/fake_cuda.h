// A fake CUDA device: what tests and benches say to it, and what it remembers.
//
// liboctavo_fake_cuda.so, loaded before everything else (LD_PRELOAD), answers for the CUDA runtime,
// the driver, cuBLAS, cuBLASLt and NCCL. The real libtorch_cuda and libtransformer_engine run their
// host code on it: device queries, argument checks, the caching allocator, launches,
// GEMMs with their layouts and scales. Kernels never execute. Device memory is address space
// that costs nothing until touched. With OCTAVO_FAKE_CUDA_COMPUTE=1 GEMMs (and large
// copies) do happen, on the host, exactly as told, so that a wrong layout gives a wrong number.
//
// It is never a fallback: a process meets it only when somebody starts it with environment(...).
// Variables:
//   OCTAVO_FAKE_CUDA_CAPABILITY  80, 89, 90 (default), 100 or 120
//   OCTAVO_FAKE_CUDA_MEMORY      bytes of each device (default: what an 80 GB H100 has)
//   OCTAVO_FAKE_CUDA_DEVICES     how many (default 1)
//   OCTAVO_FAKE_CUDA_COMPUTE     1: GEMMs, large copies and large memsets really happen
//   OCTAVO_FAKE_CUDA_DRIVER      version of the driver (default 13020)
//   OCTAVO_FAKE_CUDA_EVENTS      how many events are kept (default 1000000; later ones are counted
//   as dropped) OCTAVO_FAKE_CUDA_RECORD      file to which the counts are added at exit, one line
//   of JSON
#pragma once
#include <dlfcn.h>

#include <cstdint>
#include <map>
#include <string>

namespace octavo::fake_cuda {

enum class Kind : std::int32_t {
  kLaunch,        // a kernel that was launched (name: of the kernel)
  kGemm,          // a GEMM by cuBLAS or cuBLASLt (name: of the entry point); no launch
  kCopyToDevice,  // bytes
  kCopyToHost,
  kCopyOnDevice,
  kMemset,
  kMalloc,  // device memory asked of CUDA itself, not of a caching allocator above it
  kFree,
  kHostMalloc,  // pinned host memory
  kHostFree,
  kStreamSync,  // the host waits: for a stream, a device, an event
  kDeviceSync,
  kEventSync,
  kEventRecord,
  kEventWait,     // a stream waits for an event
  kGraphLaunch,   // its nodes follow it in the list, each counted by its own kind
  kCollective,    // an NCCL call (bytes: of the data that this rank gives)
  kCommunicator,  // an NCCL communicator was made, from an id or by splitting another one
  kHostFunction,
  kUnexpected,  // an entry point was called that has no meaning here: it did nothing and said
                // success
  kKinds
};

// What happened since the start or the last reset. Bytes in use and their peak are of all devices
// together.
struct Counters {
  std::uint64_t count[static_cast<int>(Kind::kKinds)];
  std::uint64_t bytes[static_cast<int>(Kind::kKinds)];
  std::uint64_t blocking_copies;  // copies that the host waits for: cudaMemcpy, or to memory that
                                  // is not pinned
  std::uint64_t pageable_copies;  // asynchronous copies from or to host memory that is not pinned
  std::uint64_t captured_nodes;   // put into graphs instead of being run
  std::uint64_t out_of_memory;    // allocations refused
  std::uint64_t memory_in_use;
  std::uint64_t memory_peak;  // since the last reset
  std::uint64_t events_dropped;

  std::uint64_t of(Kind kind) const { return count[static_cast<int>(kind)]; }
  std::uint64_t bytes_of(Kind kind) const { return bytes[static_cast<int>(kind)]; }
  // Times that the host waited for the device.
  std::uint64_t host_waits() const {
    return of(Kind::kStreamSync) + of(Kind::kDeviceSync) + of(Kind::kEventSync) + blocking_copies;
  }
};

struct Event {
  Kind kind;
  std::int32_t device;
  const char* name;      // lives as long as the process
  std::uint64_t stream;  // the handle, as a number
  std::uint64_t bytes;
};

// One operand of a GEMM, as CUDA was told. Types are cudaDataType_t, operations
// cublasOperation_t (0 N, 1 T), orders cublasLtOrder_t (0 column, 1 row), scale modes
// cublasLtMatmulMatrixScale_t.
struct GemmOperand {
  const void* data;
  const void* scale;  // a pointer or null
  std::int64_t rows, cols, ld;
  std::int64_t batch_stride;  // in elements
  std::int32_t type, op, order, scale_mode;
};

// A GEMM D = epilogue(alpha * op(A) op(B) + beta * C); D has m rows and n columns, in CUDA's
// column-major reading.
struct Gemm {
  const char* entry;  // which function was called
  std::uint64_t stream;
  std::int32_t device;
  std::int32_t compute_type;  // cublasComputeType_t
  std::int64_t m, n, k, batch_count;
  GemmOperand a, b, c, d;
  void* output;  // d.data, to be written to
  float alpha, beta;
  std::int32_t fast_accumulate;
  std::int32_t epilogue;  // cublasLtEpilogue_t, 1 is none
  void* bias;
  std::int32_t bias_type;  // cudaDataType_t
  std::int32_t aux_type;
  void* aux;  // input of GELU, kept or read by an epilogue
  std::int64_t aux_ld;
  void* amax_d;             // where the largest absolute value of D goes, or null
  std::uint64_t workspace;  // bytes
  std::int32_t
      captured;  // 1: put into a graph; the same GEMM appears again when the graph is launched
  std::int32_t computed;  // 1: the host really did it
};

// The functions of liboctavo_fake_cuda.so. Lists are copied out; `first` skips.
struct Api {
  std::uint64_t version;  // kApiVersion of the library
  void (*reset)();        // counters, events and GEMMs begin anew; memory in use stays
  void (*counters)(Counters* out);
  std::uint64_t (*events)(Event* out, std::uint64_t first,
                          std::uint64_t capacity);  // how many there are in all
  std::uint64_t (*gemms)(Gemm* out, std::uint64_t first, std::uint64_t capacity);
};
inline constexpr std::uint64_t kApiVersion = 3;

// The library's functions, or null in a process that does not run on the fake CUDA device.
inline const Api* api() {
  static const Api* const found = [] {
    auto* entry = reinterpret_cast<const Api* (*)()>(dlsym(RTLD_DEFAULT, "octavo_fake_cuda_api"));
    const Api* const functions = entry == nullptr ? nullptr : entry();
    return functions != nullptr && functions->version == kApiVersion ? functions : nullptr;
  }();
  return found;
}

inline bool is_active() {
  return api() != nullptr;
}

struct Options {
  int capability = 90;
  std::uint64_t memory = 0;  // 0: the default
  int devices = 1;
  bool compute = false;
  int driver = 0;  // 0: the default
  std::string record;
};

// The variables with which to start a process on the device. `lib_dir` is where octavo's libraries
// are, the device in its folder fake_cuda; a library path that the process needs besides goes
// behind ours.
inline std::map<std::string, std::string> environment(const Options& options,
                                                      const std::string& lib_dir,
                                                      const std::string& library_path = "") {
  std::map<std::string, std::string> variables = {
      {"LD_PRELOAD", lib_dir + "/fake_cuda/liboctavo_fake_cuda.so"},
      {"LD_LIBRARY_PATH",
       lib_dir + "/fake_cuda" + (library_path.empty() ? "" : ":" + library_path)},
      {"OCTAVO_FAKE_CUDA_CAPABILITY", std::to_string(options.capability)},
      {"OCTAVO_FAKE_CUDA_DEVICES", std::to_string(options.devices)},
      {"OCTAVO_FAKE_CUDA_COMPUTE", options.compute ? "1" : "0"}};
  if (options.memory > 0) variables["OCTAVO_FAKE_CUDA_MEMORY"] = std::to_string(options.memory);
  if (options.driver > 0) variables["OCTAVO_FAKE_CUDA_DRIVER"] = std::to_string(options.driver);
  if (!options.record.empty()) variables["OCTAVO_FAKE_CUDA_RECORD"] = options.record;
  return variables;
}

}  // namespace octavo::fake_cuda
