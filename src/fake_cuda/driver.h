// How functions of the driver are found by name.
#pragma once
#include <string>

namespace octavo::fake_cuda {

// The address of a driver function as a program compiled for that CUDA version expects it; null
// when there is none.
void* find_driver_function(const std::string& name, int version);
// Whether the function only notes that it was called.
bool is_stub(const std::string& name);

}  // namespace octavo::fake_cuda
