#pragma once
// The launches of kernels.h on the host, done before they return: `stream` is not looked at.
// Pointers are to the CPU's memory, or to that of the fake CUDA device, which is the same.

#include "kernels/kernels.h"

namespace octavo::kernels {

const OctavoKernels& host_kernels();

}  // namespace octavo::kernels
