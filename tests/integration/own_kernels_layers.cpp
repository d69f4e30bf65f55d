#include <vector>

#include "engine/own/library.h"
#include "engine/own/own.h"
#include "engine/reference/reference.h"
#include "fp8/formats.h"
#include "own_kernels.h"

namespace octavo {
namespace {

using at::Tensor;
using engine::Accumulate;
using engine::own::QuantizeJob;

const OctavoKernels& own_kernels() {
  return engine::own::found_kernels();
}
auto layer_norm() {
  return engine::own::make_layer_norm(own_kernels(), nullptr);
}
auto rms_norm() {
  return engine::own::make_rms_norm(own_kernels(), nullptr);
}

Tensor random(at::IntArrayRef shape) {
  return at::randn(shape).to(at::kBFloat16);
}
// BF16 numbers, as a GPU's layers have gammas and betas; the reference takes them in FP32.
Tensor vector(int64_t n) {
  return (at::randn({n}) * 0.5 + 1).to(at::kBFloat16).to(at::kFloat);
}
Tensor in_bf16(const Tensor& t) {
  return t.to(at::kBFloat16).to(at::kCUDA);
}

// Two roundings of sums in another order may fall on different sides: one step of BF16.
bool near(const Tensor& found, const Tensor& wanted) {
  return at::allclose(found.cpu().to(at::kDouble), wanted.to(at::kDouble), 0x1p-7, 1e-4);
}

struct NormCase {
  int64_t rows, columns;
  bool residual;
  Accumulate mode;
};

void compare_layer_norm(Differences& differences, const NormCase& c) {
  const std::string name = str("LayerNorm of ", c.rows, " x ", c.columns);
  const Tensor x = random({c.rows, c.columns}), d_normed = random({c.rows, c.columns});
  const Tensor delta = c.residual ? random({c.rows, c.columns}) : Tensor();
  const Tensor gamma = vector(c.columns), beta = vector(c.columns);
  const auto reference = engine::reference::make_layer_norm();
  const auto wanted = reference->forward(x, delta, gamma, beta, 1e-5);
  const auto found = layer_norm()->forward(on_gpu_copy(x), on_gpu_copy(delta), in_bf16(gamma),
                                           in_bf16(beta), 1e-5);
  differences.check(same_bytes(found.sum, wanted.sum) && near(found.normed, wanted.normed) &&
                        near(found.mean, wanted.mean) && near(found.rstd, wanted.rstd),
                    name);
  Tensor dgamma = vector(c.columns), dbeta = vector(c.columns);
  Tensor own_dgamma = on_gpu_copy(dgamma), own_dbeta = on_gpu_copy(dbeta);
  const Tensor dx = reference->backward(d_normed, delta, wanted, gamma, dgamma, dbeta, c.mode);
  const Tensor own_dx = layer_norm()->backward(on_gpu_copy(d_normed), on_gpu_copy(delta), found,
                                               in_bf16(gamma), own_dgamma, own_dbeta, c.mode);
  differences.check(near(own_dx, dx) && near(own_dgamma, dgamma) && near(own_dbeta, dbeta),
                    name + "'s gradients");
}

void compare_rms_norm(Differences& differences, const NormCase& c) {
  const std::string name = str("RMS norm of ", c.rows, " x ", c.columns);
  const Tensor x = random({c.rows, c.columns}), d_normed = random({c.rows, c.columns});
  const Tensor delta = c.residual ? random({c.rows, c.columns}) : Tensor(),
               gamma = vector(c.columns);
  const auto reference = engine::reference::make_rms_norm();
  const auto wanted = reference->forward(x, delta, gamma, 1e-5);
  const auto found = rms_norm()->forward(on_gpu_copy(x), on_gpu_copy(delta), in_bf16(gamma), 1e-5);
  differences.check(same_bytes(found.sum, wanted.sum) && near(found.normed, wanted.normed) &&
                        near(found.rstd, wanted.rstd),
                    name);
  for (const bool frozen : {false, true}) {
    Tensor dgamma = frozen ? Tensor() : vector(c.columns), own_dgamma = on_gpu_copy(dgamma);
    const Tensor dx = reference->backward(d_normed, delta, wanted, gamma, dgamma, c.mode);
    const Tensor own_dx = rms_norm()->backward(on_gpu_copy(d_normed), on_gpu_copy(delta), found,
                                               in_bf16(gamma), own_dgamma, c.mode);
    differences.check(near(own_dx, dx) && (frozen || near(own_dgamma, dgamma)),
                      name + (frozen ? "'s gradient, frozen" : "'s gradients"));
  }
}

void compare_rope(Differences& differences) {
  const int64_t rows = 19, heads = 6, keys = 2, dim = 64, positions = 40;
  const Tensor angles = at::rand({positions, dim / 2}) * 6;
  const Tensor table = at::cat({angles.cos(), angles.sin()}, 1);
  const Tensor at_rows = at::randint(positions, {rows}, at::kInt);
  const Tensor qkv = random({rows, (heads + 2 * keys) * dim});
  const auto own = engine::own::make_rope(), reference = engine::reference::make_rope();
  Tensor wanted_back;
  for (const bool back : {false, true}) {
    Tensor wanted = qkv.clone(), found = on_gpu_copy(qkv);
    reference->rotate(wanted, at_rows, table, heads + keys, back);
    own->rotate(found, on_gpu_copy(at_rows), on_gpu_copy(table), heads + keys, back);
    differences.check(near(found, wanted), back ? "rotary positions, back" : "rotary positions");
    wanted_back = wanted;
  }
  const auto parts = qkv.split_with_sizes({heads * dim, keys * dim, keys * dim}, 1);
  const auto part = [&](size_t i) { return on_gpu_copy(parts[i].contiguous()); };
  differences.check(
      near(own->packed_back(part(0), part(1), part(2), on_gpu_copy(at_rows), on_gpu_copy(table)),
           wanted_back),
      "gradients of q, k and v, packed");
}

// Numbers are copied there: libtorch's kernels, which would fill them in, do not run.
QuantizeJob job_of(const Tensor& x, float scale) {
  return {.x = x,
          .codes = at::empty_like(x, at::kByte),
          .column_codes = at::empty({x.size(1), x.size(0)}, x.options().dtype(at::kByte)),
          .scale = on_gpu_copy(at::full({1}, scale)),
          .inverse = empty_on_gpu({1}, at::kFloat),
          .amax = on_gpu_copy(at::zeros({1}))};
}

bool is_right(const QuantizeJob& job, fp8::Format format, float scale) {
  const Tensor x = job.x.cpu().to(at::kFloat), codes = job.codes.cpu();
  const float* value = x.const_data_ptr<float>();
  const auto* code = codes.const_data_ptr<uint8_t>();
  for (int64_t i = 0; i < x.numel(); ++i)
    if (code[i] != fp8::encode(format, value[i] * scale)) return false;
  return at::equal(job.column_codes.cpu(), codes.t()) && job.inverse.item<float>() == 1 / scale &&
         job.amax.item<float>() == x.abs().max().item<float>();
}

void compare_quantize(Differences& differences) {
  constexpr float kScale = 12.5f;
  for (const auto format : {fp8::Format::kE4M3, fp8::Format::kE5M2}) {
    std::vector<QuantizeJob> jobs;
    for (int64_t i = 1; i <= 65; ++i)  // more than one launch takes
      jobs.push_back(job_of(on_gpu_copy(random({16 * (i % 9 + 1), 32})), kScale));
    engine::own::quantize(own_kernels(), format, jobs);
    for (const QuantizeJob& job : jobs)
      differences.check(is_right(job, format, kScale), octavo::str("quantized, ", job.x.sizes()));
    for (const auto mode : {Accumulate::kOverwrite, Accumulate::kAdd})
      for (const auto type : {at::kFloat, at::kBFloat16}) {
        // libtorch, which would widen what is added to, does not compute here.
        if (mode == Accumulate::kAdd && type != at::kFloat) continue;
        const QuantizeJob job = job_of(on_gpu_copy(random({272, 144})), kScale);
        const Tensor before = at::randn({144}).to(type);
        Tensor sums = on_gpu_copy(before);
        engine::own::quantize_and_sum(own_kernels(), format, job, sums, mode);
        Tensor wanted = job.x.cpu().to(at::kDouble).sum(0);
        if (mode == Accumulate::kAdd) wanted = wanted + before.to(at::kDouble);
        differences.check(is_right(job, format, kScale) && sums.scalar_type() == at::kFloat &&
                              at::allclose(sums.cpu().to(at::kDouble), wanted, 1e-5, 1e-4),
                          "quantized with column sums");
      }
  }
}

// Codes of a norm's result: those of the result in BF16.
void compare_norm_quantize(Differences& differences) {
  constexpr float kScale = 12.5f;
  for (const int64_t columns : {768, 2048}) {
    const Tensor x = on_gpu_copy(random({32, columns})), delta = on_gpu_copy(random({32, columns}));
    const Tensor gamma = in_bf16(vector(columns)), beta = in_bf16(vector(columns));
    QuantizeJob job = job_of(x, kScale);
    auto out = engine::own::prepare_norm(x, delta, true);
    out.codes = job.codes;
    out.column_codes = job.column_codes;
    out.scale = job.scale;
    out.inverse = job.inverse;
    out.amax = job.amax;
    engine::own::add_norm(own_kernels(), {x, delta, gamma, beta, 1e-5}, out);
    const auto plain = layer_norm()->forward(x, delta, gamma, beta, 1e-5);
    job.x = plain.normed;
    differences.check(is_right(job, fp8::Format::kE4M3, kScale) &&
                          same_bytes(out.sum, plain.sum.cpu()) &&
                          same_bytes(out.rstd, plain.rstd.cpu()),
                      str("a norm's codes, ", columns));
  }
}

}  // namespace

void compare_layers(Differences& differences) {
  for (const NormCase& c : {NormCase{40, 768, true, Accumulate::kAdd},
                            NormCase{19, 2048, false, Accumulate::kOverwrite},
                            NormCase{3, 5120, true, Accumulate::kOverwrite}}) {
    compare_layer_norm(differences, c);
    compare_rms_norm(differences, c);
  }
  compare_rope(differences);
  compare_quantize(differences);
  compare_norm_quantize(differences);
}

void count_layer_launches() {
  const int64_t rows = 8192, columns = 4096, dim = 128;
  const Tensor x = empty_on_gpu({rows, columns}, at::kBFloat16),
               gamma = empty_on_gpu({columns}, at::kBFloat16);
  const auto norm = layer_norm();
  const auto saved = norm->forward(x, x, gamma, gamma, 1e-5);
  print_counts("norm", [&] { norm->forward(x, x, gamma, gamma, 1e-5); });
  Tensor dgamma = empty_on_gpu({columns}, at::kFloat), dbeta = empty_on_gpu({columns}, at::kFloat);
  print_counts("norm_backward",
               [&] { norm->backward(x, x, saved, gamma, dgamma, dbeta, Accumulate::kAdd); });
  const auto rope = engine::own::make_rope();
  Tensor qkv = empty_on_gpu({rows, columns + 2048}, at::kBFloat16);
  const Tensor keys = empty_on_gpu({rows, 1024}, at::kBFloat16);
  const Tensor positions = empty_on_gpu({rows}, at::kInt),
               table = empty_on_gpu({rows, dim}, at::kFloat);
  print_counts("rope", [&] { rope->rotate(qkv, positions, table, 40, false); });
  print_counts("rope_pack", [&] { rope->packed_back(x, keys, keys, positions, table); });
  const std::vector<QuantizeJob> weights(48, job_of(empty_on_gpu({64, 64}, at::kBFloat16), 1));
  print_counts("weights",
               [&] { engine::own::quantize(own_kernels(), fp8::Format::kE4M3, weights); });
  const QuantizeJob job = job_of(x, 1);
  print_counts("quantize_sum", [&] {
    engine::own::quantize_and_sum(own_kernels(), fp8::Format::kE5M2, job, dbeta, Accumulate::kAdd);
  });
}

}  // namespace octavo
