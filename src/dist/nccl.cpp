#include "dist/nccl.h"

#include <dlfcn.h>

#include <cstdlib>

#include "base/error.h"
#include "engine/cuda/cuda_module.h"

namespace octavo::dist {

void keep_nccl_from_polling() {
  ::setenv("TORCH_NCCL_DUMP_ON_TIMEOUT", "0", /*overwrite=*/0);
}

c10::intrusive_ptr<c10d::Backend> make_nccl(const c10::intrusive_ptr<c10d::Store>& store, int rank,
                                            int size, at::Device device,
                                            std::chrono::milliseconds timeout,
                                            const NcclSplit& split) {
  // The module is open since the device was found.
  const auto make = reinterpret_cast<decltype(&octavo_cuda_make_nccl)>(
      dlsym(RTLD_DEFAULT, "octavo_cuda_make_nccl"));
  if (make == nullptr)
    fail(ExitCode::kEnvironment, "dist", "the GPU module is of another version; build both again");
  c10::intrusive_ptr<c10d::Backend> made;
  make(&store, rank, size, device.index(), timeout.count(),
       split.from == nullptr ? nullptr : &split.from, split.color, &made);
  return made;
}

}  // namespace octavo::dist
