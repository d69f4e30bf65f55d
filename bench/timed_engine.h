#pragma once
// Wraps every operation of an engine so that the time spent in it is added up: where a step's time
// goes.

#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "engine/engine.h"

namespace octavo::bench {

using Seconds = std::map<std::string, double>;

class Timer {
 public:
  Timer(Seconds& table, const char* name)
      : table_(table), name_(name), start_(std::chrono::steady_clock::now()) {}
  ~Timer() {
    const auto passed = std::chrono::steady_clock::now() - start_;
    // Experts run on several threads at once: the time of all of them.
    static std::mutex mutex;
    const std::lock_guard lock(mutex);
    table_[name_] += std::chrono::duration<double>(passed).count();
  }

 private:
  Seconds& table_;
  const char* name_;
  std::chrono::steady_clock::time_point start_;
};

template <class Op>
struct Timed : Op {
  Timed(std::unique_ptr<Op> wrapped, Seconds& seconds)
      : inner(std::move(wrapped)), table(seconds) {}
  std::unique_ptr<Op> inner;
  Seconds& table;
};

using at::Tensor;
using engine::Accumulate;

struct TimedMatmul final : Timed<engine::Matmul> {
  using Timed::Timed;
  static const char* part(const Tensor& w, const char* block, const char* head) {
    return w.size(0) > 16384 ? head : block;
  }
  void forward(const Tensor& x, const Tensor& w, const Tensor& bias, Tensor& y) override {
    const Timer timer(table, part(w, "GEMM forward", "head GEMM forward"));
    inner->forward(x, w, bias, y);
  }
  void input_gradient(const Tensor& dy, const Tensor& w, Tensor& dx) override {
    const Timer timer(table, part(w, "GEMM input gradient", "head GEMM input gradient"));
    inner->input_gradient(dy, w, dx);
  }
  void weight_gradient(const Tensor& dy, const Tensor& x, Tensor& dw, Accumulate mode) override {
    const Timer timer(table, part(dw, "GEMM weight gradient", "head GEMM weight gradient"));
    inner->weight_gradient(dy, x, dw, mode);
  }
};

struct TimedFp8Linear final : Timed<engine::Fp8Linear> {
  using Timed::Timed;
  using Matrix = engine::Fp8Matrix;
  using Spec = engine::QuantizeSpec;
  Matrix quantize(const Tensor& x, fp8::Recipe recipe, const Spec& row,
                  const Spec& column) override {
    const char* part = column.keep         ? "FP8 quantize inputs"
                       : x.requires_grad() ? "FP8 quantize weights"
                                           : "FP8 quantize gradients";
    const Timer timer(table, part);
    return inner->quantize(x, recipe, row, column);
  }
  void forward(const Matrix& x, const Matrix& w, const Tensor& bias, Tensor& y) override {
    const Timer timer(table, "GEMM forward");
    inner->forward(x, w, bias, y);
  }
  void input_gradient(const Matrix& dy, const Matrix& w, Tensor& dx) override {
    const Timer timer(table, "GEMM input gradient");
    inner->input_gradient(dy, w, dx);
  }
  void weight_gradient(const Matrix& dy, const Matrix& x, Tensor& dw, Accumulate mode) override {
    const Timer timer(table, "GEMM weight gradient (and codes to BF16)");
    inner->weight_gradient(dy, x, dw, mode);
  }
  void update_factors(Tensor& history, Tensor& factors, const std::vector<fp8::Format>& formats,
                      fp8::AmaxAlgo algo, int64_t margin, bool recompute) override {
    const Timer timer(table, "FP8 factors");
    inner->update_factors(history, factors, formats, algo, margin, recompute);
  }
  Tensor health_stats(const Tensor& x, const Matrix& quantized, fp8::Direction direction) override {
    const Timer timer(table, "FP8 statistics");
    return inner->health_stats(x, quantized, direction);
  }
};

struct TimedLayerNorm final : Timed<engine::LayerNorm> {
  using Timed::Timed;
  Forward forward(const Tensor& x, const Tensor& delta, const Tensor& gamma, const Tensor& beta,
                  double eps) override {
    const Timer timer(table, "layer norm + residual");
    return inner->forward(x, delta, gamma, beta, eps);
  }
  Tensor backward(const Tensor& d_normed, const Tensor& d_sum, const Forward& saved,
                  const Tensor& gamma, Tensor& dgamma, Tensor& dbeta, Accumulate mode) override {
    const Timer timer(table, "layer norm + residual");
    return inner->backward(d_normed, d_sum, saved, gamma, dgamma, dbeta, mode);
  }
};

struct TimedGelu final : Timed<engine::Gelu> {
  using Timed::Timed;
  Tensor forward(const Tensor& x) override {
    const Timer timer(table, "GELU");
    return inner->forward(x);
  }
  void backward(Tensor& dy, const Tensor& x, Tensor& dbias, Accumulate mode) override {
    const Timer timer(table, "GELU");
    inner->backward(dy, x, dbias, mode);
  }
};

struct TimedColumnSum final : Timed<engine::ColumnSum> {
  using Timed::Timed;
  void add(const Tensor& x, Tensor& sums, Accumulate mode) override {
    const Timer timer(table, "bias gradients");
    inner->add(x, sums, mode);
  }
};

struct TimedCrossEntropy final : Timed<engine::CrossEntropy> {
  using Timed::Timed;
  Tensor run(Tensor& logits, const Tensor& targets, const Options& options) override {
    const Timer timer(table, "cross-entropy");
    return inner->run(logits, targets, options);
  }
};

struct TimedAttention final : Timed<engine::Attention> {
  using Timed::Timed;
  Forward forward(const Tensor& qkv, const Shape& shape) override {
    const Timer timer(table, "attention forward");
    return inner->forward(qkv, shape);
  }
  Tensor backward(const Tensor& d_out, const Tensor& qkv, const Forward& saved,
                  const Shape& shape) override {
    const Timer timer(table, "attention backward");
    return inner->backward(d_out, qkv, saved, shape);
  }
  Tensor extend(const Tensor& q, const Tensor& keys, const Tensor& values,
                const Shape& shape) override {
    const Timer timer(table, "attention forward");
    return inner->extend(q, keys, values, shape);
  }
};

struct TimedRmsNorm final : Timed<engine::RmsNorm> {
  using Timed::Timed;
  Forward forward(const Tensor& x, const Tensor& delta, const Tensor& gamma, double eps) override {
    const Timer timer(table, "RMS norm + residual");
    return inner->forward(x, delta, gamma, eps);
  }
  Tensor backward(const Tensor& d_normed, const Tensor& d_sum, const Forward& saved,
                  const Tensor& gamma, Tensor& dgamma, Accumulate mode) override {
    const Timer timer(table, "RMS norm + residual");
    return inner->backward(d_normed, d_sum, saved, gamma, dgamma, mode);
  }
};

struct TimedSwiGlu final : Timed<engine::SwiGlu> {
  using Timed::Timed;
  Tensor forward(const Tensor& x) override {
    const Timer timer(table, "SwiGLU");
    return inner->forward(x);
  }
  Tensor backward(const Tensor& dy, const Tensor& x) override {
    const Timer timer(table, "SwiGLU");
    return inner->backward(dy, x);
  }
};

struct TimedGeGlu final : Timed<engine::GeGlu> {
  using Timed::Timed;
  Tensor forward(const Tensor& x) override {
    const Timer timer(table, "GeGLU");
    return inner->forward(x);
  }
  Tensor backward(const Tensor& dy, const Tensor& x) override {
    const Timer timer(table, "GeGLU");
    return inner->backward(dy, x);
  }
};

struct TimedRope final : Timed<engine::Rope> {
  using Timed::Timed;
  void rotate(Tensor& x, const Tensor& positions, const Tensor& angles, int64_t heads,
              bool back) override {
    const Timer timer(table, "RoPE");
    inner->rotate(x, positions, angles, heads, back);
  }
};

struct TimedEmbedding final : Timed<engine::Embedding> {
  using Timed::Timed;
  Tensor forward(const Tensor& ids, const Tensor& tokens, const Tensor& positions,
                 int64_t length) override {
    const Timer timer(table, "embedding");
    return inner->forward(ids, tokens, positions, length);
  }
  void backward(const Tensor& ids, const Tensor& dx, Tensor& d_tokens, Tensor& d_positions,
                int64_t length) override {
    const Timer timer(table, "embedding");
    inner->backward(ids, dx, d_tokens, d_positions, length);
  }
};

struct TimedAdamW final : Timed<engine::AdamW> {
  using Timed::Timed;
  void step(Tensor& master, Moment& m, Moment& v, const Tensor& grad, Tensor& compute,
            const Hyper& hyper) override {
    const Timer timer(table, "AdamW");
    inner->step(master, m, v, grad, compute, hyper);
  }
  double sum_of_squares(const Tensor& grad) override {
    const Timer timer(table, "gradient norm");
    return inner->sum_of_squares(grad);
  }
};

inline void time_operations(engine::Engine& e, Seconds& table) {
  e.matmul = std::make_unique<TimedMatmul>(std::move(e.matmul), table);
  e.fp8_linear = std::make_unique<TimedFp8Linear>(std::move(e.fp8_linear), table);
  e.layer_norm = std::make_unique<TimedLayerNorm>(std::move(e.layer_norm), table);
  e.gelu = std::make_unique<TimedGelu>(std::move(e.gelu), table);
  e.column_sum = std::make_unique<TimedColumnSum>(std::move(e.column_sum), table);
  e.cross_entropy = std::make_unique<TimedCrossEntropy>(std::move(e.cross_entropy), table);
  e.attention = std::make_unique<TimedAttention>(std::move(e.attention), table);
  e.rms_norm = std::make_unique<TimedRmsNorm>(std::move(e.rms_norm), table);
  e.swiglu = std::make_unique<TimedSwiGlu>(std::move(e.swiglu), table);
  e.geglu = std::make_unique<TimedGeGlu>(std::move(e.geglu), table);
  e.rope = std::make_unique<TimedRope>(std::move(e.rope), table);
  e.embedding = std::make_unique<TimedEmbedding>(std::move(e.embedding), table);
  e.adamw = std::make_unique<TimedAdamW>(std::move(e.adamw), table);
}

}  // namespace octavo::bench
