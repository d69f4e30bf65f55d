#pragma once
// The GEMMs of a linear layer in FP8, and the quantizers that feed them. One implementation does
// both, because how codes and scales lie in memory is its own affair: Transformer Engine wants the
// column copy transposed and E8M0 scales swizzled, `_scaled_mm_v2` wants views of the same, the
// rehearsal wants BF16. Layers only say which copies they need and pass the result on.
// Shapes as in ops.h: x[T,I], w[O,I], y and dy[T,O].

#include <ATen/core/Tensor.h>

#include <optional>
#include <string_view>
#include <vector>

#include "engine/ops.h"
#include "fp8/health.h"
#include "fp8/nvfp4.h"
#include "fp8/recipe.h"

namespace octavo::engine {

// One copy of a matrix, quantized along the sum of the GEMM that reads it.
struct Fp8Copy {
  at::Tensor codes;      // one byte an element
  at::Tensor scales;     // decode factors: FP32, or E8M0 bytes; the layout is the implementation's
  at::Tensor values;     // rehearsal: the same numbers in BF16, ready to multiply
  bool rotated = false;  // it is of the Hadamard transform of the matrix (nvfp4)
  bool defined() const { return codes.defined() || values.defined(); }
};

struct Fp8Matrix {
  int64_t rows = 0, columns = 0;
  fp8::Side row_side, column_side;
  Fp8Copy row, column;  // may share their tensors

  const Fp8Copy& copy(fp8::Direction d) const { return d == fp8::Direction::kRow ? row : column; }
  const fp8::Side& side(fp8::Direction d) const {
    return d == fp8::Direction::kRow ? row_side : column_side;
  }
  fp8::Grid grid(fp8::Direction d) const {
    return fp8::grid_of(side(d).granularity, d, rows, columns);
  }
};

// What to make of one direction.
struct QuantizeSpec {
  fp8::Side side;
  bool wanted = false;
  bool keep = false;  // for the backward pass: in as few bytes as possible
  // Delayed only, FP32 [1] on the device: the factor to quantize with, and the slot that is raised
  // to the largest magnitude seen. `amax` undefined: not recorded (evaluation).
  at::Tensor factor, amax;
  // nvfp4 only.
  bool rotate = false;
  fp8::Nvfp4Rounding rounding{};
};

// The matrix that two orders ask for, before its copies are made.
inline Fp8Matrix matrix_for(const at::Tensor& x, const QuantizeSpec& row,
                            const QuantizeSpec& column) {
  return {.rows = x.size(0),
          .columns = x.size(1),
          .row_side = row.side,
          .column_side = column.side,
          .row = {},
          .column = {}};
}

// Both directions are ordered and the same numbers serve both.
inline bool one_serves_both(const QuantizeSpec& row, const QuantizeSpec& column) {
  return row.wanted && column.wanted && row.side == column.side &&
         is_symmetric(row.side.granularity);
}

enum class Activation : uint8_t { kGelu, kSwiGlu, kGeGlu };

struct Fp8Linear {
  static constexpr std::string_view kName = "fp8_linear";
  virtual ~Fp8Linear() = default;

  // x: compute (BF16). The copies that were ordered, of the numbers that x holds now.
  virtual Fp8Matrix quantize(const at::Tensor& x, fp8::Recipe recipe, const QuantizeSpec& row,
                             const QuantizeSpec& column) = 0;

  // y = x w^T + bias; bias may be undefined. Reads the row copies.
  virtual void forward(const Fp8Matrix& x, const Fp8Matrix& w, const at::Tensor& bias,
                       at::Tensor& y) = 0;
  // dx = dy w. Reads dy's row copy and w's column copy.
  virtual void input_gradient(const Fp8Matrix& dy, const Fp8Matrix& w, at::Tensor& dx) = 0;
  // dw (+)= dy^T x, summed in FP32; dw: FP32, or BF16 (rounded once). Reads the column copies.
  virtual void weight_gradient(const Fp8Matrix& dy, const Fp8Matrix& x, at::Tensor& dw,
                               Accumulate mode) = 0;

  // Whether any of the fused passes below exists: where none does, layers need not ask.
  virtual bool has_fused_passes() const { return false; }
  // Fused passes, where the implementation has one for the recipe: what quantize() would have
  // given of the pass's result, which is then never written in BF16. nullopt: do it in two passes.
  struct Normed {
    at::Tensor sum;         // x + delta, x itself when delta is undefined
    at::Tensor mean, rstd;  // [T] FP32, for the norm's backward; mean is undefined of an RMS norm
    Fp8Matrix matrix;
  };
  // Of norm(x + delta); delta may be undefined. beta undefined: an RMS norm.
  virtual std::optional<Normed> norm_quantize(const at::Tensor& /*x*/, const at::Tensor& /*delta*/,
                                              const at::Tensor& /*gamma*/,
                                              const at::Tensor& /*beta*/, double /*eps*/,
                                              fp8::Recipe, const QuantizeSpec& /*row*/,
                                              const QuantizeSpec& /*column*/) {
    return std::nullopt;
  }
  // Whether a bias's gradient can come out of quantizing the gradient: whoever says so may still
  // give nothing for one recipe or shape.
  virtual bool sums_biases() const { return false; }
  // Of x itself; dbias[C] (+)= its column sums.
  virtual std::optional<Fp8Matrix> quantize_and_sum(const at::Tensor& /*x*/, at::Tensor& /*dbias*/,
                                                    Accumulate, fp8::Recipe,
                                                    const QuantizeSpec& /*row*/,
                                                    const QuantizeSpec& /*column*/) {
    return std::nullopt;
  }

  // Whether many matrices are quantized in fewer launches than one by one.
  virtual bool quantizes_together(fp8::Recipe) const { return false; }
  struct Request {
    at::Tensor x;
    QuantizeSpec row, column;
  };
  // quantize() of each.
  virtual std::vector<Fp8Matrix> quantize_all(const std::vector<Request>& requests,
                                              fp8::Recipe recipe);

  // Of gelu(x), or of swiglu(x) as the operations of ops.h have them.
  virtual std::optional<Fp8Matrix> activate_quantize(Activation, const at::Tensor& /*x*/,
                                                     fp8::Recipe, const QuantizeSpec& /*row*/,
                                                     const QuantizeSpec& /*column*/) {
    return std::nullopt;
  }
  // Of the gradient of the activation's input; dbias[C] (+)= its column sums when defined.
  virtual std::optional<Fp8Matrix> activation_gradient_quantize(
      Activation, const at::Tensor& /*dy*/, const at::Tensor& /*x*/, at::Tensor& /*dbias*/,
      Accumulate, fp8::Recipe, const QuantizeSpec& /*row*/, const QuantizeSpec& /*column*/) {
    return std::nullopt;
  }

  // The number of rows must be a multiple of it in the GEMMs of a copy with such scales.
  virtual int64_t row_multiple(fp8::Granularity) const { return 1; }

  // Rows of a matrix that is spread over ranks: codes and scales (FP32, of mxfp8 E8M0) both
  // row-major as fp8::Grid has them, so that those of all ranks one after the other are the
  // whole's. Why an implementation cannot take such a whole; "" when it can.
  virtual std::string_view no_parts_reason(fp8::Recipe) const { return {}; }
  virtual Fp8Copy quantize_part(const at::Tensor& x, fp8::Recipe recipe, fp8::Direction direction,
                                const QuantizeSpec& order);
  // Makes the whole's codes a copy of `matrix`; of both directions when they serve both.
  virtual void adopt_part(const Fp8Copy& whole, fp8::Direction direction, bool both,
                          Fp8Matrix& matrix);
  // The factor of recipe current from the largest magnitude [1], on its device.
  static at::Tensor factor_of(fp8::Format format, const at::Tensor& amax);

  // Delayed scaling after a step; see fp8/scaling.h. history FP32 [length, slots], factors [slots].
  virtual void update_factors(at::Tensor& history, at::Tensor& factors,
                              const std::vector<fp8::Format>& formats, fp8::AmaxAlgo algo,
                              int64_t margin, bool recompute) = 0;

  // What quantizing did to x: a pass of its own, for the steps that take statistics. As the stats
  // of fp8/health.h, FP64 on the device of x, which is not waited for; of a tensor on a GPU that
  // is large they are those of a part of its rows, see aten/fp8_quantize.h.
  virtual at::Tensor health_stats(const at::Tensor& x, const Fp8Matrix& quantized,
                                  fp8::Direction direction) = 0;
  // The same, waited for.
  fp8::TensorHealth measure(const at::Tensor& x, const Fp8Matrix& quantized,
                            fp8::Direction direction);

  // Operands with an infinity that the calling thread quantized since the start, as far as the
  // implementation sees them: a cast that saturates makes a large number of it, and nothing after
  // it shows that it was there.
  virtual int64_t infinite_operands() const { return 0; }

  // Blocks whose smallest values are below BF16's normal range, where AMX takes them for zero.
  // Since the start; native implementations have none.
  virtual int64_t blocks_below_range() const { return 0; }
};

// What health_stats() gives, of stats that are in the CPU's memory.
at::Tensor stats_in_memory(const fp8::TensorHealth& health);

// update_factors() for tensors in the CPU's memory.
void update_factors_in_memory(at::Tensor& history, at::Tensor& factors,
                              const std::vector<fp8::Format>& formats, fp8::AmaxAlgo algo,
                              int64_t margin, bool recompute);

}  // namespace octavo::engine
