#pragma once
// The operations that have several implementations. Shapes: T tokens (rows), I inputs, O outputs, C
// channels, V columns of the (padded) vocabulary, B sequences, S their length, H heads, D channels
// per head. All tensors are contiguous and on the target's device. "compute" is the target's
// activation dtype (BF16 or FP32); parameters of norms, biases, statistics and every gradient of a
// parameter are FP32. Calls return when the work is done or enqueued.

#include <ATen/core/Tensor.h>

#include <string_view>

namespace octavo::engine {

// Whether a parameter's gradient is written for the first time in this step or added to.
enum class Accumulate : bool { kOverwrite = false, kAdd = true };

struct Matmul {
  static constexpr std::string_view kName = "matmul";
  virtual ~Matmul() = default;
  // y[T,O] = x[T,I] w[O,I]^T + bias[O]; bias may be undefined. x, w, y: compute; bias: FP32.
  virtual void forward(const at::Tensor& x, const at::Tensor& w, const at::Tensor& bias,
                       at::Tensor& y) = 0;
  // dx[T,I] = dy[T,O] w[O,I]
  virtual void input_gradient(const at::Tensor& dy, const at::Tensor& w, at::Tensor& dx) = 0;
  // dw[O,I] (+)= dy[T,O]^T x[T,I], accumulated and stored in FP32.
  virtual void weight_gradient(const at::Tensor& dy, const at::Tensor& x, at::Tensor& dw,
                               Accumulate mode) = 0;
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
  // linear layer.
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
  };
  // logits[T,V] (compute) become their gradient in place when wanted; targets[T] int32, negative =
  // ignored.
  virtual at::Tensor run(at::Tensor& logits, const at::Tensor& targets, const Options& options) = 0;
};

struct Attention {  // causal, softmax scale 1/sqrt(D)
  static constexpr std::string_view kName = "attention";
  virtual ~Attention() = default;
  struct Forward {
    at::Tensor out;  // [B*S, H*D] compute
    at::Tensor lse;  // what backward needs of the softmax; its shape is the implementation's own
  };
  // qkv[B*S, 3*H*D]: rows of q, k, v side by side.
  virtual Forward forward(const at::Tensor& qkv, int64_t batch, int64_t heads) = 0;
  virtual at::Tensor backward(const at::Tensor& d_out, const at::Tensor& qkv, const Forward& saved,
                              int64_t batch, int64_t heads) = 0;
};

struct Embedding {
  static constexpr std::string_view kName = "embedding";
  virtual ~Embedding() = default;
  // x[T,C] = tokens[ids] + positions[t % length]; ids[T] int32. positions may be undefined.
  virtual at::Tensor forward(const at::Tensor& ids, const at::Tensor& tokens,
                             const at::Tensor& positions, int64_t length) = 0;
  // Adds into both gradients (FP32), in a fixed order. d_positions may be undefined.
  virtual void backward(const at::Tensor& ids, const at::Tensor& dx, at::Tensor& d_tokens,
                        at::Tensor& d_positions, int64_t length) = 0;
};

struct AdamW {
  static constexpr std::string_view kName = "adamw";
  virtual ~AdamW() = default;
  struct Hyper {
    float lr = 0, beta1 = 0.9f, beta2 = 0.95f, eps = 1e-8f, weight_decay = 0;
    int64_t step = 1;      // from 1: for the bias corrections
    float grad_scale = 1;  // the clipping factor
  };
  // Updates master, m, v (FP32) and, when defined, the compute copy (BF16) of the new weights.
  virtual void step(at::Tensor& master, at::Tensor& m, at::Tensor& v, const at::Tensor& grad,
                    at::Tensor& compute, const Hyper& hyper) = 0;
  // Sum of squares in double precision, in an order that does not depend on the number of threads.
  virtual double sum_of_squares(const at::Tensor& grad) = 0;
};

}  // namespace octavo::engine
