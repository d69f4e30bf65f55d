// Norms, activations and rotary positions, by the CPU's operations.

#include <transformer_engine/activation.h>
#include <transformer_engine/cast.h>
#include <transformer_engine/fused_rope.h>
#include <transformer_engine/normalization.h>
#include <transformer_engine/transpose.h>

#include "engine/cpu/cpu.h"
#include "te_double.h"

namespace te_double {
namespace {

using octavo::engine::Accumulate;
namespace cpu = octavo::engine::cpu;

// The first of two calls: without memory the handle is a question.
bool is_question(NVTETensor workspace, std::initializer_list<size_t> shape, NVTEDType type) {
  Tensor& t = tensor(workspace);
  NVTEBasicTensor& basic = t.params[kNVTERowwiseData];
  if (basic.data_ptr == nullptr) {
    basic.dtype = type;
    basic.shape.ndim = shape.size();
    std::copy(shape.begin(), shape.end(), basic.shape.data);
    return true;
  }
  check(basic.dtype == type && basic.shape.ndim == shape.size() &&
            std::equal(shape.begin(), shape.end(), basic.shape.data),
        "a workspace of another shape than was asked for");
  return false;
}

// Scales and shifts of norms: BF16 of a GPU, FP32 of a CPU, whose operations read FP32.
at::Tensor vector(NVTETensor given) {
  return view(given).to(at::kFloat);
}
// Room for their gradients, which go to wherever the caller wants them.
at::Tensor room_for(NVTETensor gradient) {
  return at::empty(view(gradient).sizes(), at::kFloat);
}

at::Tensor gelu_gradient(NVTETensor grad, NVTETensor input, at::Tensor& dbias) {
  at::Tensor dx = view(grad).clone();
  dbias = at::empty({dx.size(1)}, at::kFloat);
  cpu::make_gelu()->backward(dx, view(input), dbias, Accumulate::kOverwrite);
  return dx;
}

void rope(NVTETensor input, NVTETensor freqs, NVTETensor starts, NVTETensor output, bool back,
          int s, int b, int h, int d, int d2, int stride_b, int stride_h, int stride_d) {
  check(s == 1 && d == d2 && stride_h == d && stride_d == 1,
        "the stand-in takes sequences of one token with dense heads");
  const at::Tensor angles = view(freqs).view({-1, d}).narrow(1, 0, d / 2).contiguous();
  const at::Tensor wide = angles.to(at::kDouble);
  const at::Tensor table = at::cat({wide.cos(), wide.sin()}, 1).to(at::kFloat);
  const at::Tensor rows =
      at::from_blob(tensor(input).of(kNVTERowwiseData).data_ptr, {b, int64_t{h} * d}, {stride_b, 1},
                    at::TensorOptions().dtype(at::kBFloat16));
  at::Tensor turned = rows.contiguous().clone();
  cpu::make_rope()->rotate(turned, view(starts), table, h, back);
  view(output).copy_(turned.view({1, b, h, d}));
}

// As the library: from compute capability 10.0 on the kernel writes no transposed copy.
void put_gated(const at::Tensor& made, NVTETensor output) {
  const Tensor& out = tensor(output);
  check(out.mode != NVTE_DELAYED_TENSOR_SCALING || capability() < 100 ||
            !out.has(kNVTEColumnwiseData),
        "!output->has_columnwise_data()");
  put(made, tensor(output));
}

}  // namespace
}  // namespace te_double

using namespace te_double;

extern "C" {

void nvte_layernorm_fwd(const NVTETensor x, const NVTETensor gamma, const NVTETensor beta,
                        const float epsilon, NVTETensor z, NVTETensor mu, NVTETensor rsigma,
                        NVTETensor workspace, const int /*units*/, const bool zero_centered,
                        cudaStream_t /*stream*/) {
  check(!zero_centered, "gamma is not centred at zero here");
  if (is_question(workspace, {1}, kNVTEByte)) return;
  count_call("nvte_layernorm_fwd");
  const auto out =
      cpu::make_layer_norm()->forward(view(x), {}, vector(gamma), vector(beta), epsilon);
  view(mu).copy_(out.mean);
  view(rsigma).copy_(out.rstd);
  put(out.normed, tensor(z));
}

void nvte_layernorm_bwd(const NVTETensor dz, const NVTETensor x, const NVTETensor mu,
                        const NVTETensor rsigma, const NVTETensor gamma, NVTETensor dx,
                        NVTETensor dgamma, NVTETensor dbeta, NVTETensor workspace,
                        const int /*units*/, const bool /*zero_centered*/,
                        cudaStream_t /*stream*/) {
  if (is_question(workspace, {64}, kNVTEByte)) return;
  count_call("nvte_layernorm_bwd");
  at::Tensor d_gamma = room_for(dgamma), d_beta = room_for(dbeta);
  view(dx).copy_(
      cpu::make_layer_norm()->backward(view(dz), {}, {view(x), {}, view(mu), view(rsigma)},
                                       vector(gamma), d_gamma, d_beta, Accumulate::kOverwrite));
  view(dgamma).copy_(d_gamma);
  view(dbeta).copy_(d_beta);
}

void nvte_rmsnorm_fwd(const NVTETensor x, const NVTETensor gamma, const float epsilon, NVTETensor z,
                      NVTETensor rsigma, NVTETensor workspace, const int /*units*/,
                      const bool zero_centered, cudaStream_t /*stream*/) {
  check(!zero_centered, "gamma is not centred at zero here");
  if (is_question(workspace, {1}, kNVTEByte)) return;
  count_call("nvte_rmsnorm_fwd");
  const auto out = cpu::make_rms_norm()->forward(view(x), {}, vector(gamma), epsilon);
  view(rsigma).copy_(out.rstd);
  put(out.normed, tensor(z));
}

void nvte_rmsnorm_bwd(const NVTETensor dz, const NVTETensor x, const NVTETensor rsigma,
                      const NVTETensor gamma, NVTETensor dx, NVTETensor dgamma,
                      NVTETensor workspace, const int /*units*/, const bool /*zero_centered*/,
                      cudaStream_t /*stream*/) {
  if (is_question(workspace, {64}, kNVTEByte)) return;
  count_call("nvte_rmsnorm_bwd");
  at::Tensor d_gamma = room_for(dgamma);
  view(dx).copy_(cpu::make_rms_norm()->backward(view(dz), {}, {view(x), {}, view(rsigma)},
                                                vector(gamma), d_gamma, Accumulate::kOverwrite));
  view(dgamma).copy_(d_gamma);
}

void nvte_rmsnorm_bwd_add(const NVTETensor dz, const NVTETensor x, const NVTETensor add,
                          const NVTETensor rsigma, const NVTETensor gamma, NVTETensor dx,
                          NVTETensor dgamma, NVTETensor workspace, const int /*units*/,
                          const bool /*zero_centered*/, cudaStream_t /*stream*/) {
  if (is_question(workspace, {64}, kNVTEByte)) return;
  count_call("nvte_rmsnorm_bwd_add");
  at::Tensor d_gamma = room_for(dgamma);
  view(dx).copy_(cpu::make_rms_norm()->backward(view(dz), view(add), {view(x), {}, view(rsigma)},
                                                vector(gamma), d_gamma, Accumulate::kOverwrite));
  view(dgamma).copy_(d_gamma);
}

void nvte_gelu(const NVTETensor input, NVTETensor output, cudaStream_t /*stream*/) {
  count_call("nvte_gelu");
  put(cpu::make_gelu()->forward(view(input)), tensor(output));
}

void nvte_dgelu(const NVTETensor grad, const NVTETensor input, NVTETensor output,
                cudaStream_t /*stream*/) {
  count_call("nvte_dgelu");
  at::Tensor unused;
  put(gelu_gradient(grad, input, unused), tensor(output));
}

void nvte_quantize_dbias_dgelu(const NVTETensor input, const NVTETensor act_input,
                               NVTETensor output, NVTETensor dbias, NVTETensor workspace,
                               cudaStream_t /*stream*/) {
  const Tensor& out = tensor(output);
  check(out.mode != NVTE_BLOCK_SCALING_1D && out.mode != NVTE_BLOCK_SCALING_2D,
        "not implemented for blocks of 128");
  check(out.mode != NVTE_DELAYED_TENSOR_SCALING || any_layout() || out.has(kNVTEColumnwiseData),
        "below compute capability 10.0 both copies are written");
  if (is_question(workspace, {1, static_cast<size_t>(view(input).size(1))}, kNVTEFloat32)) return;
  count_call("nvte_quantize_dbias_dgelu");
  at::Tensor sums;
  const at::Tensor dx = gelu_gradient(input, act_input, sums);
  view(dbias).copy_(sums);
  put(dx, tensor(output));
}

void nvte_swiglu(const NVTETensor input, NVTETensor output, cudaStream_t /*stream*/) {
  count_call("nvte_swiglu");
  put_gated(cpu::make_swiglu()->forward(view(input)), output);
}

void nvte_dswiglu(const NVTETensor grad, const NVTETensor input, NVTETensor output,
                  cudaStream_t /*stream*/) {
  count_call("nvte_dswiglu");
  put_gated(cpu::make_swiglu()->backward(view(grad), view(input)), output);
}

void nvte_dswiglu_cast_transpose(const NVTETensor input, const NVTETensor act_input,
                                 NVTETensor output, cudaStream_t /*stream*/) {
  const Tensor& out = tensor(output);
  check(out.mode == NVTE_DELAYED_TENSOR_SCALING && capability() < 100 &&
            out.has(kNVTERowwiseData) && out.has(kNVTEColumnwiseData),
        "both copies of one scale are written, below compute capability 10.0");
  count_call("nvte_dswiglu_cast_transpose");
  put(cpu::make_swiglu()->backward(view(input), view(act_input)), tensor(output));
}

void nvte_fused_rope_forward(const NVTETensor input, const NVTETensor /*cu_seqlens*/,
                             const NVTETensor freqs, const NVTETensor start_positions,
                             NVTETensor output, const NVTE_QKV_Format /*format*/,
                             const bool interleaved, const int /*cp_size*/, const int /*cp_rank*/,
                             const int s, const int b, const int h, const int d, const int d2,
                             const int /*stride_s*/, const int stride_b, const int stride_h,
                             const int stride_d, cudaStream_t /*stream*/) {
  check(!interleaved, "channels i and i + d/2 are turned together");
  count_call("nvte_fused_rope_forward");
  rope(input, freqs, start_positions, output, false, s, b, h, d, d2, stride_b, stride_h, stride_d);
}

void nvte_fused_rope_backward(const NVTETensor grads, const NVTETensor /*cu_seqlens*/,
                              const NVTETensor freqs, const NVTETensor start_positions,
                              NVTETensor output, const NVTE_QKV_Format /*format*/,
                              const bool interleaved, const int /*cp_size*/, const int /*cp_rank*/,
                              const int s, const int b, const int h, const int d, const int d2,
                              const int /*stride_s*/, const int stride_b, const int stride_h,
                              const int stride_d, cudaStream_t /*stream*/) {
  check(!interleaved, "channels i and i + d/2 are turned together");
  count_call("nvte_fused_rope_backward");
  rope(grads, freqs, start_positions, output, true, s, b, h, d, d2, stride_b, stride_h, stride_d);
}

}  // extern "C"
