#include "nn/param.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <numeric>

#include "base/checked.h"
#include "base/error.h"
#include "nn/fp8_weight.h"

namespace octavo::nn {

void Param::allocate_grad() {
  OCTAVO_ASSERT(trainable);  // a layer must not ask for the gradient of a frozen weight
  const auto options = at::TensorOptions(leaf.device()).dtype(grad_type);
  if (chunk == 0) {
    grad = at::empty(sizes_, options);
    return;
  }
  padded_grad = at::empty({shard_count * chunk, sizes_[1]}, options);
  grad = padded_grad.narrow(0, 0, sizes_[0]);
  padded_grad.narrow(0, sizes_[0], padded_grad.size(0) - sizes_[0]).zero_();
}

at::Tensor Param::master_grad() const {
  if (!spreads_masters) return grad;
  const at::Tensor part = own_grad.defined() ? own_grad : padded_grad.narrow(0, first_row, chunk);
  return part.narrow(0, 0, master.size(0));
}

at::Tensor Param::master_copy() const {
  if (!spreads_masters) return compute.is_same(master) ? at::Tensor() : compute;
  return own.scalar_type() == master.scalar_type() ? at::Tensor()
                                                   : own.narrow(0, 0, master.size(0));
}

at::Tensor Param::counted_grad() const {
  if (chunk == 0) return counts_here ? grad : grad.narrow(0, 0, 0);
  if (spreads_masters) return master_grad();
  return grad.narrow(0, std::min(first_row, sizes_[0]),
                     std::clamp<int64_t>(sizes_[0] - first_row, 0, chunk));
}

void Param::copy_rows(const at::Tensor& values, int64_t first) {
  const int64_t begin = spreads_masters ? first_row : 0, end = begin + master.size(0);
  const int64_t from = std::max(first, begin), to = std::min(first + values.size(0), end);
  if (from < to)
    master.narrow(0, from - begin, to - from).copy_(values.narrow(0, from - first, to - from));
}

namespace {

constexpr Fp8Block kPackBlock{128, 128};

// Parts begin at a multiple of the blocks that low-bit moments are kept in.
int64_t chunk_of(int64_t rows, int64_t columns, int ranks) {
  constexpr int64_t kBlock = 128;
  return round_up((rows + ranks - 1) / ranks, kBlock / std::gcd(columns, kBlock));
}

// The tensors of a matrix whose rows are spread: what this rank keeps.
void allocate_part(Param& p, const Storage::Shards& shards, const at::TensorOptions& compute,
                   bool one_tensor) {
  const int64_t rows = p.sizes_[0], columns = p.sizes_[1];
  const int64_t count = std::clamp<int64_t>(rows - p.first_row, 0, p.chunk);
  p.spreads_masters = true;
  if (shards.weights) {
    p.own = at::zeros({p.chunk, columns}, compute);
  } else {
    p.padded = at::zeros({p.chunk * shards.count, columns}, compute);
    p.compute = p.padded.narrow(0, 0, rows);
    p.own = p.padded.narrow(0, p.first_row, p.chunk);
  }
  p.master = one_tensor ? p.own.narrow(0, 0, count)
                        : at::zeros({count, columns}, compute.dtype(at::kFloat));
  if (shards.gradients && p.trainable)
    p.own_grad = at::empty({p.chunk, columns}, compute.dtype(at::kFloat));
}

}  // namespace

ParamPtr make_param(std::string name, at::IntArrayRef shape, at::ScalarType compute, bool decays,
                    at::Device device, const Storage& storage) {
  auto param = c10::make_intrusive<Param>();
  const auto options = at::TensorOptions().device(device);
  const bool is_matrix = shape.size() >= 2;
  // A GPU's kernels take vectors in the compute dtype too.
  const bool is_low = compute != at::kFloat && (is_matrix || device.is_cuda());
  const bool one_tensor = is_low && is_matrix && (!storage.trainable || storage.master == compute);
  param->name = std::move(name);
  param->decays = decays;
  param->trainable = storage.trainable;
  param->sizes_ = shape.vec();
  // A leaf that asks for gradients keeps autograd's graph connected down to the embedding.
  param->leaf = at::empty({0}, options).set_requires_grad(storage.trainable);
  param->grad_type = is_low && is_matrix ? storage.gradient : at::kFloat;
  if (storage.packed && is_matrix) {
    OCTAVO_ASSERT(one_tensor && !storage.trainable);
    param->codes = at::zeros(shape, options.dtype(at::kByte)).view(at::kFloat8_e4m3fn);
    param->scales = at::ones(
        {ceil_div(shape[0], kPackBlock.rows), ceil_div(shape[1], kPackBlock.columns)}, options);
    return param;
  }
  const Storage::Shards& shards = storage.shards;
  // A frozen weight has no state to spread but itself.
  const bool spread = shards.count > 1 && is_matrix && shape[0] >= shards.count &&
                      (storage.trainable || shards.weights);
  if (spread) {
    param->shard_count = shards.count;
    param->chunk = chunk_of(shape[0], shape[1], shards.count);
    param->first_row = param->chunk * shards.index;
  }
  if (spread && shards.masters) {
    allocate_part(*param, shards, options.dtype(is_low ? compute : at::kFloat),
                  one_tensor || !is_low);
  } else {
    param->master = at::zeros(shape, options.dtype(one_tensor ? compute : at::kFloat));
    param->compute =
        is_low && !one_tensor ? at::zeros(shape, options.dtype(compute)) : param->master;
  }
  // Others get their memory at the first write.
  if (storage.trainable && param->grad_type == at::kFloat && !param->own_grad.defined())
    param->allocate_grad();
  return param;
}

at::Tensor Param::weights() const {
  if (!codes.defined()) return compute;
  // The same numbers. A GPU rounds as it writes and needs no room for FP32; a CPU would need more.
  return codes.is_cpu() ? dequantize_weight(codes, scales, kPackBlock).to(at::kBFloat16)
                        : dequantize_weight(codes, scales, kPackBlock, at::kBFloat16);
}

void Param::pack() {
  OCTAVO_ASSERT(!trainable && master.dim() == 2 && compute.scalar_type() == at::kBFloat16);
  const auto packed = quantize_weight(master.cpu(), kPackBlock, at::kFloat, name);
  codes.reset();  // the device has room for one
  codes = packed.codes.to(leaf.device());
  scales = packed.scales.to(leaf.device());
  master.reset();
  compute.reset();
  ++version;
}

int64_t count_of(const ParamList& params) {
  int64_t count = 0;
  for (const auto& p : params) count += p->count();
  return count;
}

void fill_masters(const ParamList& params, const std::function<void(Param&)>& fill) {
  const at::NoGradGuard no_grad;
  for (const auto& p : params) {
    const bool packed = p->codes.defined();
    if (packed) p->compute = p->master = at::zeros(p->sizes(), at::kBFloat16);
    fill(*p);
    if (packed) p->pack();
  }
  refresh_compute(params);
}

void refresh_compute(const ParamList& params) {
  const at::NoGradGuard no_grad;
  for (const auto& p : params) {
    if (at::Tensor copy = p->master_copy(); copy.defined()) copy.copy_(p->master);
    ++p->version;
  }
}

}  // namespace octavo::nn
