#pragma once
// Where our CUDA kernels come from, and how one is launched.

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>

#include "kernels/kernels.h"

namespace octavo::engine::own {

struct Library {
  const OctavoKernels* kernels = nullptr;
  std::string problem;  // when there are none
};
const Library& library();
const OctavoKernels& found_kernels();  // fails when there are none

// Calls launch(kernels, stream) for the device of the tensor; fails when CUDA does.
void launch_for(const at::Tensor& tensor, const OctavoKernels& kernels, const char* what,
                const std::function<int32_t(const OctavoKernels&, void* stream)>& launch);

// Of an argument that may be left out.
template <class T>
T* pointer_to(const at::Tensor& t) {
  return t.defined() ? static_cast<T*>(t.mutable_data_ptr()) : nullptr;
}

}  // namespace octavo::engine::own
