// Matrices to FP8 with one scale each: many in one launch, or one with the sums of its columns.

#include <ATen/ATen.h>

#include <limits>

#include "base/error.h"
#include "engine/own/library.h"
#include "engine/own/own.h"
#include "engine/own/scratch.h"
#include "engine/traffic.h"

namespace octavo::engine::own {
namespace {

using at::Tensor;
using kernels::QuantizeArguments;

kernels::QuantizeTensor entry_of(const QuantizeJob& job) {
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  const Tensor& x = job.x;
  OCTAVO_ASSERT(x.dim() == 2 && x.scalar_type() == at::kBFloat16 && x.is_contiguous() &&
                x.size(0) <= kMost && x.size(1) <= kMost);
  for (const Tensor& t : {job.codes, job.column_codes})
    OCTAVO_ASSERT(!t.defined() || (t.numel() == x.numel() && t.is_contiguous()));
  const auto bytes = [](const Tensor& t) {
    return t.defined() ? static_cast<uint8_t*>(t.mutable_data_ptr()) : nullptr;
  };
  return {
      .x = static_cast<const kernels::Bf16*>(x.const_data_ptr()),
      .codes = bytes(job.codes),
      .column_codes = bytes(job.column_codes),
      .scale = job.scale.const_data_ptr<float>(),
      .inverse = job.inverse.mutable_data_ptr<float>(),
      .amax = job.amax.defined() ? static_cast<uint32_t*>(job.amax.mutable_data_ptr()) : nullptr,
      .rows = static_cast<int32_t>(x.size(0)),
      .columns = static_cast<int32_t>(x.size(1)),
      .first_block = 0};
}

void launch(const OctavoKernels& kernels, fp8::Format format, QuantizeArguments& arguments,
            const Tensor& on) {
  const int64_t blocks = kernels::plan_quantize(arguments);
  launch_for(on, kernels, "quantizing", [&](const OctavoKernels& all, void* stream) {
    return all.quantize(format, arguments, blocks, stream);
  });
}

}  // namespace

void quantize(const OctavoKernels& kernels, fp8::Format format,
              const std::vector<QuantizeJob>& jobs) {
  const at::NoGradGuard no_grad;
  QuantizeArguments arguments{};
  for (size_t i = 0; i < jobs.size(); ++i) {
    arguments.tensors[arguments.count++] = entry_of(jobs[i]);
    note_traffic("octavo_quantize", {jobs[i].x}, {jobs[i].codes, jobs[i].column_codes});
    if (arguments.count < QuantizeArguments::kMost && i + 1 < jobs.size()) continue;
    launch(kernels, format, arguments, jobs[i].x);
    arguments.count = 0;
  }
}

void quantize_and_sum(const OctavoKernels& kernels, fp8::Format format, const QuantizeJob& job,
                      Tensor& sums, Accumulate mode) {
  const at::NoGradGuard no_grad;
  const int64_t columns = job.x.size(1);
  if (sums.scalar_type() != at::kFloat)  // another operation has left one of its own
    sums = mode == Accumulate::kAdd ? sums.to(at::kFloat)
                                    : at::empty({columns}, job.x.options().dtype(at::kFloat));
  OCTAVO_ASSERT(sums.is_contiguous() && sums.numel() == columns);
  const ScratchMemory scratch =
      scratch_for(job.x, kernels::quantize_scratch(job.x.size(0), columns));
  QuantizeArguments arguments{};
  arguments.tensors[arguments.count++] = entry_of(job);
  arguments.adds = mode == Accumulate::kAdd;
  arguments.sums = sums.mutable_data_ptr<float>();
  arguments.parts = scratch.parts_data();
  arguments.tickets = scratch.tickets_data();
  launch(kernels, format, arguments, job.x);
  note_traffic("octavo_quantize_sum", {job.x, scratch.parts},
               {job.codes, job.column_codes, sums, scratch.parts});
}

}  // namespace octavo::engine::own
