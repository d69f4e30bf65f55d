#include "aten_on_host.h"

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <cstring>
#include <set>
#include <string>

#include "base/error.h"

namespace octavo {
namespace {

using at::Tensor;
using c10::IValue;

// Done by libtorch's CUDA code: GEMMs, which the device computes, what has no numbers, and reading
// one number, which is a copy. Below: by formulas of their own.
const std::set<std::string> kLeft = {"aten::mm",
                                     "aten::addmm",
                                     "aten::addmm_",
                                     "aten::bmm",
                                     "aten::baddbmm",
                                     "aten::_addmm_activation",
                                     "aten::_scaled_addmm",
                                     "aten::_scaled_addmm_",
                                     "aten::_scaled_mm",
                                     "aten::_scaled_mm_v2",
                                     "aten::_local_scalar_dense",
                                     "aten::record_stream",
                                     "aten::resize_",
                                     "aten::set_",
                                     "aten::_flash_attention_forward",
                                     "aten::_flash_attention_backward",
                                     "aten::_fused_rms_norm_backward"};

bool has_tensors(const c10::Type& type) {
  return type.isSubtypeOf(*c10::OptionalType::ofTensor()) ||
         type.isSubtypeOf(*c10::ListType::ofTensors()) ||
         type.isSubtypeOf(*c10::ListType::ofOptionalTensors());
}

// Makes no view, takes tensors, and is not left to CUDA.
bool is_replaced(const c10::FunctionSchema& schema) {
  if (kLeft.contains(schema.name())) return false;
  for (const auto& made : schema.returns())
    if (made.alias_info() != nullptr && !made.alias_info()->isWrite()) return false;
  for (const auto& argument : schema.arguments())
    if (has_tensors(*argument.type())) return true;
  return false;
}

IValue on_host(const IValue& given) {
  if (given.isTensor()) return host_view(given.toTensor());
  if (given.isTensorList()) {
    c10::List<Tensor> views;
    for (const Tensor& tensor : given.toTensorVector()) views.push_back(host_view(tensor));
    return views;
  }
  if (given.isOptionalTensorList()) {
    c10::List<std::optional<Tensor>> views;
    for (const std::optional<Tensor>& tensor : given.toOptionalTensorVector())
      views.push_back(tensor ? std::optional<Tensor>(host_view(*tensor)) : std::nullopt);
    return views;
  }
  if (given.isDevice() && given.toDevice().is_cuda()) return at::Device(at::kCPU);
  return given;
}

std::optional<at::Device> gpu_of(const IValue& given) {
  std::vector<Tensor> tensors;
  if (given.isTensor()) tensors = {given.toTensor()};
  if (given.isTensorList()) tensors = given.toTensorVector();
  for (const Tensor& tensor : tensors)
    if (tensor.defined() && tensor.is_cuda()) return tensor.device();
  return std::nullopt;
}

IValue on_device(const IValue& made, at::Device device) {
  if (made.isTensor()) return device_copy(made.toTensor(), device);
  if (!made.isTensorList()) return made;
  c10::List<Tensor> copies;
  for (const Tensor& tensor : made.toTensorVector()) copies.push_back(device_copy(tensor, device));
  return copies;
}

// A result without elements that was given for libtorch to size: a view has no memory of its own
// to grow in, so the kernel fills a tensor of the CPU, which is taken over afterwards.
bool is_to_be_sized(const c10::Argument& argument, const IValue& given) {
  return argument.alias_info() != nullptr && given.isTensor() && given.toTensor().defined() &&
         given.toTensor().is_cuda() && given.toTensor().numel() == 0;
}

IValue view_of(const c10::Argument& argument, const IValue& given) {
  if (!is_to_be_sized(argument, given)) return on_host(given);
  const Tensor& result = given.toTensor();
  return at::empty(result.sizes(), at::TensorOptions(at::kCPU).dtype(result.dtype()));
}

// Every other result that was given (out=, or in place) must have had its size.
void take_over(const c10::FunctionSchema& schema, size_t i, const IValue& given,
               const IValue& view) {
  if (!given.isTensor() || !given.toTensor().defined()) return;
  const Tensor &result = given.toTensor(), &made = view.toTensor();
  if (is_to_be_sized(schema.arguments()[i], given)) {
    result.resize_(made.sizes());
    if (made.numel() > 0) host_view(result).copy_(made);
  } else if (result.sizes() != made.sizes()) {
    fail(ExitCode::kEnvironment, "aten_on_host", schema.name(), " would resize its result from ",
         octavo::str(result.sizes()), " to ", octavo::str(made.sizes()));
  }
}

// By its CPU kernel, with the operation's name in what it throws.
void call_cpu(const c10::OperatorHandle& op, Values* stack) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  try {
    op.callBoxed(stack);
  } catch (const std::exception& error) {
    fail(ExitCode::kEnvironment, "aten_on_host", toString(op.operator_name()),
         " on the CPU: ", error.what());
  }
}

void call_on_host(const c10::OperatorHandle& op, Values* stack) {
  const c10::FunctionSchema& schema = op.schema();
  const auto& arguments = schema.arguments();
  const auto& returns = schema.returns();
  const Values given(stack->end() - static_cast<std::ptrdiff_t>(arguments.size()), stack->end());
  stack->resize(stack->size() - arguments.size());
  std::optional<at::Device> device;
  Values views;
  for (size_t i = 0; i < given.size(); ++i) {
    if (!device) device = gpu_of(given[i]);
    views.push_back(view_of(arguments[i], given[i]));
  }
  OCTAVO_ASSERT(device.has_value());
  stack->insert(stack->end(), views.begin(), views.end());
  call_cpu(op, stack);
  for (size_t i = 0; i < given.size(); ++i) take_over(schema, i, given[i], views[i]);
  const size_t first = stack->size() - returns.size();
  for (size_t r = 0; r < returns.size(); ++r) {
    IValue& made = (*stack)[first + r];
    const c10::AliasInfo* written = returns[r].alias_info();
    if (written == nullptr) {
      made = on_device(made, *device);
      continue;
    }
    for (size_t i = 0; i < given.size(); ++i)
      if (arguments[i].alias_info() != nullptr && *arguments[i].alias_info() == *written)
        made = given[i];
  }
}

// Norms' gradients. The CPU's kernel of layer norm adds the gradients of its parameters up in BF16
// and there is none of RMS norm; on GPUs both are FP32 until they are rounded.
void call_layer_norm_backward(const c10::OperatorHandle& op, Values* stack) {
  constexpr size_t kArguments = 8;
  const size_t first = stack->size() - kArguments;
  const at::Device device = (*stack)[first].toTensor().device();
  const at::ScalarType type = (*stack)[first].toTensor().scalar_type(),
                       of_vectors = (*stack)[first + 5].toTensor().scalar_type();
  for (size_t i = first; i < stack->size(); ++i)
    if (IValue& value = (*stack)[i]; value.isTensor())
      value = host_view(value.toTensor()).to(at::kFloat);
  call_cpu(op, stack);
  for (size_t r = 0; r < 3; ++r) {
    IValue& made = (*stack)[stack->size() - 3 + r];
    made = device_copy(made.toTensor().to(r == 0 ? type : of_vectors), device);
  }
}

void call_rms_norm_backward(const c10::OperatorHandle&, Values* stack) {
  constexpr size_t kArguments = 6;
  const Values given(stack->end() - kArguments, stack->end());
  stack->resize(stack->size() - kArguments);
  const auto number = [&](size_t i) { return host_view(given[i].toTensor()).to(at::kFloat); };
  const Tensor d_normed = number(0), rstd = number(3).view({-1, 1}), gamma = number(4);
  const Tensor hat = number(1).mul_(rstd), scaled = at::mul(d_normed, gamma);
  const Tensor share = at::mul(scaled, hat).mean(1, /*keepdim=*/true);
  const Tensor dx = at::sub(scaled, at::mul(hat, share)).mul_(rstd);
  const auto put = [&](const Tensor& made, size_t like) {
    const Tensor& t = given[like].toTensor();
    stack->emplace_back(device_copy(made.to(t.scalar_type()), t.device()));
  };
  put(dx, 1);
  put(at::mul(d_normed, hat).sum(0), 4);
}

void call_flash_forward(const c10::OperatorHandle&, Values* stack) {
  flash_forward(*stack);
}
void call_flash_backward(const c10::OperatorHandle&, Values* stack) {
  flash_backward(*stack);
}

}  // namespace

Tensor host_view(const Tensor& tensor) {
  if (!tensor.defined() || !tensor.is_cuda()) return tensor;
  return at::from_blob(tensor.mutable_data_ptr(), tensor.sizes(), tensor.strides(),
                       at::TensorOptions(at::kCPU).dtype(tensor.dtype()));
}

Tensor device_copy(const Tensor& made, at::Device device) {
  if (!made.defined() || made.is_cuda()) return made;
  Tensor copy = at::empty_strided(made.sizes(), made.strides(),
                                  at::TensorOptions(device).dtype(made.dtype()));
  if (made.numel() == 0) return copy;
  int64_t last = 0;
  for (int64_t d = 0; d < made.dim(); ++d) last += (made.size(d) - 1) * made.stride(d);
  std::memcpy(copy.mutable_data_ptr(), made.const_data_ptr(),
              static_cast<size_t>(last + 1) * made.element_size());
  return copy;
}

void run_aten_on_host() {
  const at::NoGradGuard no_grad;
  // Kernels live as long as the process.
  static torch::Library library(torch::Library::IMPL, "aten", c10::DispatchKey::CUDA, __FILE__,
                                __LINE__);
  auto& dispatcher = c10::Dispatcher::singleton();
  const c10::OperatorName layer_norm_backward("aten::native_layer_norm_backward", "");
  // copy_ is one function for all devices, which looks at them itself.
  std::vector<c10::OperatorName> names =
      dispatcher.getAllOpNamesForDispatchKey(c10::DispatchKey::CUDA);
  names.emplace_back("aten::copy_", "");
  for (const c10::OperatorName& name : names) {
    if (!name.name.starts_with("aten::") || name == layer_norm_backward) continue;
    const auto op = dispatcher.findSchema(name);
    if (!op || !is_replaced(op->schema())) continue;
    library.impl(toString(name).c_str(),
                 torch::CppFunction::makeFromBoxedFunction<&call_on_host>());
  }
  library.impl("_flash_attention_forward",
               torch::CppFunction::makeFromBoxedFunction<&call_flash_forward>());
  library.impl("_flash_attention_backward",
               torch::CppFunction::makeFromBoxedFunction<&call_flash_backward>());
  library.impl("native_layer_norm_backward",
               torch::CppFunction::makeFromBoxedFunction<&call_layer_norm_backward>());
  library.impl("_fused_rms_norm_backward",
               torch::CppFunction::makeFromBoxedFunction<&call_rms_norm_backward>());
}

}  // namespace octavo
