#pragma once
// The operations that have several implementations. Shapes: T tokens (rows), I inputs, O outputs, C
// channels, V columns of the (padded) vocabulary, B sequences, S their length, H heads, D channels
// per head. All tensors are contiguous and on the target's device. "compute" is the target's
// activation dtype (BF16 or FP32). Scales of norms and biases are FP32 on CPUs and in the compute
// dtype on GPUs, whose kernels take nothing else; statistics are FP32 on both. Gradients of
// matrices are FP32 or BF16, those of vectors FP32; a norm, and a bias's GEMM, may put a tensor of
// their own, in the compute dtype, in their place when they overwrite. Calls return when the work
// is done or enqueued.

#include <ATen/core/Tensor.h>

#include <cmath>
#include <string_view>
#include <vector>

namespace octavo::engine {

// Whether a parameter's gradient is written for the first time in this step or added to.
enum class Accumulate : bool { kOverwrite = false, kAdd = true };

struct Matmul {
  static constexpr std::string_view kName = "matmul";
  virtual ~Matmul() = default;
  // y[T,O] = x[T,I] w[O,I]^T + bias[O]; bias may be undefined. x, w, y: compute.
  virtual void forward(const at::Tensor& x, const at::Tensor& w, const at::Tensor& bias,
                       at::Tensor& y) = 0;
  // dx[T,I] = dy[T,O] w[O,I]
  virtual void input_gradient(const at::Tensor& dy, const at::Tensor& w, at::Tensor& dx) = 0;
  // dw[O,I] (+)= dy[T,O]^T x[T,I], summed in FP32; dw: FP32, or BF16 (rounded once) in BF16.
  virtual void weight_gradient(const at::Tensor& dy, const at::Tensor& x, at::Tensor& dw,
                               Accumulate mode) = 0;
  // Whether a bias's gradient comes with the weight's, in the same pass.
  virtual bool sums_biases() const { return false; }
  // Whether a layer's GELU is part of its GEMM.
  virtual bool fuses_gelu() const { return false; }
  // h[T,O] = x w^T + bias, y[T,O] = gelu(h), of which y may be made before h is rounded.
  virtual void forward_gelu(const at::Tensor& x, const at::Tensor& w, const at::Tensor& bias,
                            at::Tensor& h, at::Tensor& y);
  // dh[T,I] = gelu'(h) * (dy[T,O] w[O,I]): the input gradient of the layer behind the GELU of h.
  virtual void input_gradient_gelu(const at::Tensor& dy, const at::Tensor& w, const at::Tensor& h,
                                   at::Tensor& dh);
  // weight_gradient(); then dbias[O] (+)= column sums of dy.
  virtual void weight_bias_gradient(const at::Tensor& dy, const at::Tensor& x, at::Tensor& dw,
                                    Accumulate mode, at::Tensor& dbias, Accumulate bias_mode);
};

struct LayerNorm {
  static constexpr std::string_view kName = "layer_norm";
  virtual ~LayerNorm() = default;
  struct Forward {
    at::Tensor sum;         // [T,C] compute: x + delta (x itself when delta is undefined)
    at::Tensor normed;      // [T,C] compute
    at::Tensor mean, rstd;  // [T] FP32
  };
  // Residual addition and norm in one pass over memory. delta may be undefined.
  virtual Forward forward(const at::Tensor& x, const at::Tensor& delta, const at::Tensor& gamma,
                          const at::Tensor& beta, double eps) = 0;
  // The gradient of x (and of delta): d_sum (may be undefined) plus what flows back through the
  // norm.
  virtual at::Tensor backward(const at::Tensor& d_normed, const at::Tensor& d_sum,
                              const Forward& saved, const at::Tensor& gamma, at::Tensor& dgamma,
                              at::Tensor& dbeta, Accumulate mode) = 0;
};

struct Gelu {  // the tanh form, as GPT-2 has it
  static constexpr std::string_view kName = "gelu";
  virtual ~Gelu() = default;
  virtual at::Tensor forward(const at::Tensor& x) = 0;
  // dx, written over dy; dbias[C] (+)= column sums of dx, because x was the output of a biased
  // linear layer; undefined when that layer's GEMM sums it (Matmul::sums_biases).
  virtual void backward(at::Tensor& dy, const at::Tensor& x, at::Tensor& dbias,
                        Accumulate mode) = 0;
};

struct ColumnSum {
  static constexpr std::string_view kName = "column_sum";
  virtual ~ColumnSum() = default;
  virtual void add(const at::Tensor& x, at::Tensor& sums,
                   Accumulate mode) = 0;  // sums[C] (+)= column sums of x[T,C]
};

struct CrossEntropy {
  static constexpr std::string_view kName = "cross_entropy";
  virtual ~CrossEntropy() = default;
  struct Options {
    int64_t classes = 0;   // columns beyond are padding: no probability, no gradient
    float grad_scale = 1;  // gradients are scaled by this (1 / (tokens * accumulation))
    float z_weight = 0;    // adds z_weight * logsumexp^2 per token (z-loss)
    bool want_gradient = true;
    // FP64 [T,2], contiguous; when defined it receives each token's loss and logsumexp^2, zeros
    // where it is ignored: what the result is the sum of.
    at::Tensor each = {};
  };
  // logits[T,V] (compute) become their gradient in place when wanted; targets[T] int32, negative =
  // ignored.
  virtual at::Tensor run(at::Tensor& logits, const at::Tensor& targets, const Options& options) = 0;
};

struct RmsNorm {
  static constexpr std::string_view kName = "rms_norm";
  virtual ~RmsNorm() = default;
  struct Forward {
    at::Tensor sum;     // [T,C] compute: x + delta (x itself when delta is undefined)
    at::Tensor normed;  // [T,C] compute: sum / sqrt(mean(sum^2) + eps) * gamma
    at::Tensor rstd;    // [T] FP32
  };
  // Residual addition and norm in one pass over memory. delta may be undefined.
  virtual Forward forward(const at::Tensor& x, const at::Tensor& delta, const at::Tensor& gamma,
                          double eps) = 0;
  // The gradient of x (and of delta), as LayerNorm's. dgamma is undefined when gamma is frozen.
  virtual at::Tensor backward(const at::Tensor& d_normed, const at::Tensor& d_sum,
                              const Forward& saved, const at::Tensor& gamma, at::Tensor& dgamma,
                              Accumulate mode) = 0;
};

struct SwiGlu {
  static constexpr std::string_view kName = "swiglu";
  virtual ~SwiGlu() = default;
  // y[T,F] = silu(gate) * up, where x[T,2F] holds gate and up side by side.
  virtual at::Tensor forward(const at::Tensor& x) = 0;
  virtual at::Tensor backward(const at::Tensor& dy, const at::Tensor& x) = 0;  // dx[T,2F]
};

struct GeGlu {  // with the tanh form of GELU, as Gemma has it
  static constexpr std::string_view kName = "geglu";
  virtual ~GeGlu() = default;
  // As SwiGlu's: y[T,F] = gelu(gate) * up.
  virtual at::Tensor forward(const at::Tensor& x) = 0;
  virtual at::Tensor backward(const at::Tensor& dy, const at::Tensor& x) = 0;  // dx[T,2F]
};

struct Rope {
  static constexpr std::string_view kName = "rope";
  virtual ~Rope() = default;
  // Rotates the first `heads` heads of every row of x[T,*] in place: channels i and i + D/2 of a
  // head by the angle whose cosine and sine are table[position][i] and table[position][D/2 + i].
  // table[P,D] FP32; positions[T] int32. `back` rotates the other way: that is the gradient.
  virtual void rotate(at::Tensor& x, const at::Tensor& positions, const at::Tensor& table,
                      int64_t heads, bool back) = 0;
  // Whether packed_back() is there.
  virtual bool packs() const { return false; }
  // The gradients of q, k and v, [T, heads * D] each, side by side: those of q and k rotated back.
  virtual at::Tensor packed_back(const at::Tensor& dq, const at::Tensor& dk, const at::Tensor& dv,
                                 const at::Tensor& positions, const at::Tensor& table);
};

struct Attention {  // causal within each sequence
  static constexpr std::string_view kName = "attention";
  virtual ~Attention() = default;
  struct Shape {
    int64_t heads = 1, kv_heads = 1, dim = 1;  // heads is a multiple of kv_heads
    std::vector<int64_t> bounds;  // sequence i is rows bounds[i] to bounds[i + 1]; the last is T
    at::Tensor starts;            // the same on the device, int32; undefined on CPUs
    int64_t longest = 0;          // rows of the longest sequence
    int64_t window = 0;  // keys that a query sees, its own and those before it; 0: all of them
    double scale = 0;    // of the scores; 0: 1/sqrt(D)
    double softmax_scale() const {
      return scale > 0 ? scale : 1 / std::sqrt(static_cast<double>(dim));
    }
    int64_t group() const { return heads / kv_heads; }  // queries that share a key
    bool in_rows() const {                              // all sequences have one length
      for (size_t i = 1; i < bounds.size(); ++i)
        if (bounds[i] != static_cast<int64_t>(i) * bounds[1]) return false;
      return true;
    }
    int64_t width() const { return heads * dim; }
    int64_t row() const { return (heads + 2 * kv_heads) * dim; }
  };
  struct Forward {
    at::Tensor out;  // [T, H*D] compute
    at::Tensor lse;  // [H, T] FP32: logarithm of the softmax's sum. May be undefined.
  };
  // qkv[T, (H + 2 G) D]: rows of q, k, v side by side, G heads of k and of v.
  virtual Forward forward(const at::Tensor& qkv, const Shape& shape) = 0;
  virtual at::Tensor backward(const at::Tensor& d_out, const at::Tensor& qkv, const Forward& saved,
                              const Shape& shape) = 0;
  // Whether the gradients of q, k and v are made apart, and backward() puts them side by side.
  virtual bool gives_parts() const { return false; }
  struct Parts {
    at::Tensor dq, dk, dv;  // [T, heads * D] each
  };
  virtual Parts backward_parts(const at::Tensor& d_out, const at::Tensor& qkv, const Forward& saved,
                               const Shape& shape);
  // For generation: out[n, H*D] of q[n, H*D], the last n tokens of a sequence whose keys and values
  // are given, [m, G*D] each. The shape's bounds are not read. q may be a view of wider rows.
  virtual at::Tensor extend(const at::Tensor& q, const at::Tensor& keys, const at::Tensor& values,
                            const Shape& shape) = 0;
};

struct Embedding {
  static constexpr std::string_view kName = "embedding";
  virtual ~Embedding() = default;
  // x[T,C] = tokens[ids] + positions[t % length]; ids[T] int32. positions may be undefined.
  virtual at::Tensor forward(const at::Tensor& ids, const at::Tensor& tokens,
                             const at::Tensor& positions, int64_t length) = 0;
  // Adds into both gradients (FP32; or BF16, rounded once), in a fixed order. d_positions may be
  // undefined.
  virtual void backward(const at::Tensor& ids, const at::Tensor& dx, at::Tensor& d_tokens,
                        at::Tensor& d_positions, int64_t length) = 0;
};

struct AdamW {
  static constexpr std::string_view kName = "adamw";
  virtual ~AdamW() = default;
  struct Hyper {
    float lr = 0, beta1 = 0.9f, beta2 = 0.95f, eps = 1e-8f, weight_decay = 0;
    int64_t step = 1;               // from 1: for the bias corrections
    float grad_scale = 1;           // the clipping factor
    uint64_t seed = 0, stream = 0;  // of the random numbers; a stream for each parameter and step
    int64_t first = 0;  // element of the parameter that the tensors begin with; a multiple of 128
  };
  // FP32 or BF16; or bytes with an FP32 scale for every 128 of them: see adamw_storage.h.
  struct Moment {
    at::Tensor values, scales;
  };
  // Updates master (FP32 or BF16), both moments and, when defined, the compute copy (BF16) of the
  // new weights. grad: FP32 or BF16. What is stored in fewer than 32 bits is rounded stochastically
  // as kernels/adamw_storage.h says, but the compute copy, which is the nearest. On CPUs, and by
  // our own CUDA kernels, every bit of the result is the reference's; libtorch's draw other random
  // numbers. All depend on seed, stream and an element's place in the parameter: the result is the
  // same however it is sharded.
  virtual void step(at::Tensor& master, Moment& m, Moment& v, const at::Tensor& grad,
                    at::Tensor& compute, const Hyper& hyper) = 0;
  // The arguments of step() for one parameter.
  struct Update {
    at::Tensor master;
    Moment m, v;
    at::Tensor grad, compute;
    Hyper hyper;
  };
  // Many steps at once: few launches on a GPU.
  virtual void step_all(std::vector<Update>& updates) {
    for (Update& u : updates) step(u.master, u.m, u.v, u.grad, u.compute, u.hyper);
  }
  // Sum of squares (FP32 or BF16) in double precision, in an order that does not depend on the
  // number of threads. Waits for the device.
  virtual double sum_of_squares(const at::Tensor& grad) = 0;
  // The same of many, double [n] on the device: does not wait.
  virtual at::Tensor sums_of_squares(const std::vector<at::Tensor>& grads);
};

}  // namespace octavo::engine
