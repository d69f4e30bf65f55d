#pragma once
// libtorch's operations with numbers on the fake CUDA device. The device's memory is the host's,
// and no kernel runs in it; so each operation that libtorch has for CUDA is done by its CPU kernel,
// in the same memory and with the same sizes and strides. What stays as it is:
// - GEMMs: libtorch's own host code calls cuBLAS and cuBLASLt, which the device computes;
// - whatever only says where a tensor lies (views), and allocations;
// - flash attention, which has no CPU kernel of its own: see flash_on_host.cpp; the same of RMS
//   norm's gradient.
// A kernel that is launched all the same has computed nothing: the device's record of launches
// shows it, and whoever compares numbers must look there.

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <vector>

namespace octavo {

// For the whole process, once libtorch's CUDA library is loaded. The device must have been told to
// compute.
void run_aten_on_host();

// The same memory as a tensor of the CPU; other tensors as they are.
at::Tensor host_view(const at::Tensor& tensor);
// A tensor on `device` with these numbers, sizes and strides.
at::Tensor device_copy(const at::Tensor& made, at::Device device);

// aten::_flash_attention_forward and _backward over packed sequences, in FP32 and without blocks.
using Values = std::vector<c10::IValue>;
void flash_forward(Values& stack);
void flash_backward(Values& stack);

// What a test does to see that it would notice: attention's logits are multiplied by this.
void set_attention_fault(double factor);

}  // namespace octavo
