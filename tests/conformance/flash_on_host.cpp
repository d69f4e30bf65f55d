// Attention over packed sequences as libtorch documents its flash kernels: queries [T, H, D], keys
// and values [T, G, D], where H is a multiple of G; the first row of each sequence; causal, with a
// window; logsumexp [H, T]. Written here from the formula: it shares nothing with the engine's
// attention for CPUs. Everything is FP32 until the result is rounded.

#include <ATen/ATen.h>

#include <limits>

#include "aten_on_host.h"
#include "base/error.h"

namespace octavo {
namespace {

using at::Tensor;

double fault = 1;

struct Call {
  Tensor q, k, v;
  std::vector<int64_t> bounds;
  double scale = 0;
  std::optional<int64_t> back;  // keys before a query's own
};

std::vector<int64_t> bounds_of(const Tensor& starts) {
  const Tensor host = host_view(starts).to(at::kLong).contiguous();
  return {host.const_data_ptr<int64_t>(), host.const_data_ptr<int64_t>() + host.numel()};
}

std::optional<int64_t> number(const c10::IValue& value) {
  return value.isNone() ? std::nullopt : std::optional<int64_t>(value.toInt());
}

// One sequence of one operand: [H, S, D] in FP32, keys and values again for each head that shares
// them.
Tensor heads(const Tensor& rows, int64_t begin, int64_t end, int64_t count) {
  return host_view(rows)
      .slice(0, begin, end)
      .to(at::kFloat)
      .transpose(0, 1)
      .repeat_interleave(count / rows.size(1), 0);
}

// [H, S, S], minus infinity where a query does not see a key.
Tensor logits_of(const Call& call, const Tensor& q, const Tensor& k) {
  const int64_t length = q.size(1);
  Tensor unseen = at::ones({length, length}, at::kBool).triu(1);
  if (call.back) unseen.logical_or_(at::ones({length, length}, at::kBool).tril(-*call.back - 1));
  return at::matmul(q, k.transpose(1, 2))
      .mul_(fault * call.scale)
      .masked_fill_(unseen, -std::numeric_limits<float>::infinity());
}

// Heads [H, S, D] to rows; heads that share keys are summed.
void put_rows(const Tensor& of_heads, Tensor& rows, int64_t begin, int64_t end) {
  const int64_t count = rows.size(1);
  rows.slice(0, begin, end)
      .copy_(of_heads.unflatten(0, {count, of_heads.size(0) / count}).sum(1).transpose(0, 1));
}

Tensor empty_rows(const Tensor& like) {
  return at::empty(like.sizes(), at::TensorOptions(at::kCPU).dtype(like.dtype()));
}

Values taken(Values& stack, size_t count) {
  const auto first = stack.end() - static_cast<std::ptrdiff_t>(count);
  Values values(first, stack.end());
  stack.erase(first, stack.end());
  return values;
}

}  // namespace

void set_attention_fault(double factor) {
  fault = factor;
}

void flash_forward(Values& stack) {
  constexpr size_t kArguments = 17;
  const Values given = taken(stack, kArguments);
  const at::NoGradGuard no_grad;
  OCTAVO_ASSERT(given[7].toDouble() == 0 && given[8].toBool());  // no dropout; causal
  const Call call{.q = given[0].toTensor(),
                  .k = given[1].toTensor(),
                  .v = given[2].toTensor(),
                  .bounds = bounds_of(given[3].toTensor()),
                  .scale = given[10].toDouble(),
                  .back = number(given[11])};
  const int64_t count = call.q.size(1);
  Tensor out = empty_rows(call.q), lse = at::empty({count, call.q.size(0)}, at::kFloat);
  for (size_t i = 0; i + 1 < call.bounds.size(); ++i) {
    const int64_t begin = call.bounds[i], end = call.bounds[i + 1];
    const Tensor logits =
        logits_of(call, heads(call.q, begin, end, count), heads(call.k, begin, end, count));
    const Tensor sums = logits.logsumexp(2);
    lse.slice(1, begin, end).copy_(sums);
    put_rows(at::matmul((logits - sums.unsqueeze(2)).exp_(), heads(call.v, begin, end, count)), out,
             begin, end);
  }
  const at::Device device = call.q.device();
  const Tensor none = at::empty({0}, at::TensorOptions(device).dtype(at::kLong));
  for (const Tensor& made : {device_copy(out, device), device_copy(lse, device), none, none, none})
    stack.emplace_back(made);
}

void flash_backward(Values& stack) {
  constexpr size_t kArguments = 17;
  const Values given = taken(stack, kArguments);
  const at::NoGradGuard no_grad;
  OCTAVO_ASSERT(given[10].toDouble() == 0 && given[11].toBool());
  const Call call{.q = given[1].toTensor(),
                  .k = given[2].toTensor(),
                  .v = given[3].toTensor(),
                  .bounds = bounds_of(given[6].toTensor()),
                  .scale = given[14].toDouble(),
                  .back = number(given[15])};
  const Tensor d_rows = given[0].toTensor(), out_rows = given[4].toTensor(),
               lse = host_view(given[5].toTensor());
  const int64_t count = call.q.size(1);
  Tensor dq = empty_rows(call.q), dk = empty_rows(call.k), dv = empty_rows(call.v);
  for (size_t i = 0; i + 1 < call.bounds.size(); ++i) {
    const int64_t begin = call.bounds[i], end = call.bounds[i + 1];
    const auto part = [&](const Tensor& rows) { return heads(rows, begin, end, count); };
    const Tensor q = part(call.q), k = part(call.k), v = part(call.v), d_out = part(d_rows);
    const Tensor p = (logits_of(call, q, k) - lse.slice(1, begin, end).unsqueeze(2)).exp_();
    const Tensor delta = (d_out * part(out_rows)).sum(2, /*keepdim=*/true);
    const Tensor ds =
        (at::matmul(d_out, v.transpose(1, 2)) - delta).mul_(p).mul_(fault * call.scale);
    put_rows(at::matmul(ds, k), dq, begin, end);
    put_rows(at::matmul(ds.transpose(1, 2), q), dk, begin, end);
    put_rows(at::matmul(p.transpose(1, 2), d_out), dv, begin, end);
  }
  for (const Tensor& made : {dq, dk, dv}) stack.emplace_back(device_copy(made, call.q.device()));
}

}  // namespace octavo
