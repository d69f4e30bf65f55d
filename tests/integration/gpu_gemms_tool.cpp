// The C++ side of tests/integration/gpu_gemms.py.
// usage: gpu_gemms_tool BACKEND CAPABILITY: in a process on the fake CUDA device of that
// capability,
//        with GEMMs computed
//        gpu_gemms_tool operations: every operation of the aten backend once; kernels do not run
// The last line is cases=N failed=0 caught=M of M.

#include <cstdio>
#include <string>

#include "base/error.h"
#include "engine/devices.h"
#include "fake_cuda/fake_cuda.h"
#include "gpu_gemms.h"
#include "gpu_operations.h"

namespace {

using namespace octavo;

int finish(const gemms::Tally& tally) {
  std::printf("cases=%lld failed=%lld caught=%lld of %lld\n", static_cast<long long>(tally.cases),
              static_cast<long long>(tally.failed), static_cast<long long>(tally.caught),
              static_cast<long long>(tally.mutations));
  return tally.failed == 0 && tally.caught == tally.mutations && tally.cases > 0 ? 0 : 1;
}

int run(int argc, char** argv) {
  if (!fake_cuda::is_active())
    fail(ExitCode::kUsage, "gpu_gemms", "wanted a process on the fake CUDA device, found none");
  const engine::GpuSearch& found = engine::gpus();
  if (found.gpus.empty()) fail(ExitCode::kEnvironment, "gpu_gemms", found.reason);
  gemms::Tally tally;
  if (argc == 2 && std::string(argv[1]) == "operations") {
    gemms::check_operations(tally);
    return finish(tally);
  }
  if (argc != 3) fail(ExitCode::kUsage, "gpu_gemms", "wanted BACKEND CAPABILITY, or operations");
  const gemms::Backend backend = gemms::make_backend(argv[1], std::stoi(argv[2]));
  check_bf16_gemms(tally);
  int64_t index = 0;
  for (const gemms::Problem& problem : gemms::problems_of(backend)) {
    check_calls(backend, problem, tally);
    // Mistakes on every third: enough of each kind, and the shapes differ.
    if (index++ % 3 == 0) check_mutations(backend, problem, tally);
  }
  return finish(tally);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gpu_gemms_tool: %s\n", error.what());
    return 1;
  }
}
