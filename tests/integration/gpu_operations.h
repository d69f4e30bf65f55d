#pragma once
// Every operation of the aten backend on the fake CUDA device: libtorch's host code accepts
// each of our calls, launches what it should, and the host never waits.

#include "gpu_gemms.h"

namespace octavo::gemms {

void check_operations(Tally& tally);

}  // namespace octavo::gemms
