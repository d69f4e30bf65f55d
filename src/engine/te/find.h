#pragma once
// Where Transformer Engine's library is, and the libraries that must be open before it.

#include <string>

namespace octavo::engine::te {

inline constexpr char kUnknownVersion[] = "unknown";

struct Opened {
  void* handle = nullptr;  // never closed: its kernels may run until the process ends
  std::string path, version;
  std::string problem;  // when there is no handle: what was looked for and what was found
};

// Sets NVTE_CUDA_INCLUDE_DIR, for the library, to the headers beside libtorch unless it is set.
// Looked for: OCTAVO_TE_LIBRARY when it is set, and nothing else then; the wheel in the Python
// environment that libtorch is from; the system's library path.
Opened open_library();

}  // namespace octavo::engine::te
