#pragma once
// AdamW's moments of one parameter, as they are kept (kernels/adamw_storage.h) and as checkpoints
// hold them.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string_view>

#include "engine/ops.h"

namespace octavo::optim {

enum class MomentType { kFp32, kBf16, kFp8 };
std::string_view name_of(MomentType type);

enum class MomentOrder { kFirst, kSecond };

using Moment = engine::AdamW::Moment;

// All zero, for a parameter of this shape.
Moment make_moment(at::IntArrayRef shape, MomentType type, at::Device device);
int64_t bytes_of(const Moment& moment);

// What a moment read from a file is; fails when values and scales do not fit together or the shape.
MomentType type_of(const Moment& stored, at::IntArrayRef shape, std::string_view name);

// `from` into `to`, which may be of another type; then what does not fit is rounded to the nearest.
// No second moment that is not zero becomes zero.
void copy_moment(const Moment& from, Moment& to, MomentOrder order);

}  // namespace octavo::optim
