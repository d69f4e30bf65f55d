#pragma once
// Operations by libtorch's own kernels, on any device.

#include <memory>

#include "engine/ops.h"

namespace octavo::engine::aten {

std::unique_ptr<Matmul> make_matmul();
std::unique_ptr<Attention> make_attention();

}  // namespace octavo::engine::aten
