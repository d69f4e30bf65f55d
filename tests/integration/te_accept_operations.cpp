// Norms, activations, rotary positions, fused passes and the update of scales.

#include <dlfcn.h>
#include <transformer_engine/swizzle.h>

#include "engine/te/layout.h"
#include "engine/te/quantizer.h"
#include "engine/te/te.h"
#include "fake_cuda/fake_cuda.h"
#include "te_accept.h"

namespace octavo {

using at::Tensor;
using engine::Accumulate;
using engine::Activation;
using fp8::Direction;
using fp8::FormatChoice;
using fp8::Recipe;
using fp8::Role;

void Acceptance::fused() {
  for (const bool column : {true, false})
    for (const Recipe recipe : fp8::kRecipes)
      if (engine::te::quantizes_in_one_pass(recipe) && has(recipe)) fused_by(recipe, column);
  update();
  if (has(fp8::recipe_with(fp8::Granularity::kBlock32))) swizzle();
}

// `column`: both copies are ordered, else the row copy alone.
void Acceptance::fused_by(Recipe recipe, bool column) {
  auto& linear = *engine_.fp8_linear;
  const int64_t rows = 160, columns = 256;
  const auto ordered = [&](Role role) {
    const FormatChoice format = fp8::default_format(recipe);
    return Orders{order(recipe, format, role, Direction::kRow, true),
                  order(recipe, format, role, Direction::kColumn, column)};
  };
  const auto must = [](const auto& made) {
    return made.has_value() ? std::string() : std::string("was not fused");
  };
  // On 12.x the kernels write no transposed copy; both are made of what is not fused.
  const bool gated_fuses = capability_ < 120 || !column;
  const auto must_when_gated = [&](const auto& made, const auto& apart) {
    if (made.has_value() != gated_fuses) return str(gated_fuses ? "was not" : "was", " fused");
    if (!made.has_value()) apart();
    return std::string();
  };
  const std::string name =
      str(config::name_of(recipe), column ? ", both copies: " : ", one copy: ");
  const Orders in = ordered(Role::kInput);
  const Orders grad = ordered(Role::kGradient);
  // Our own kernel, and of rows that it does not take the library's.
  if (fp8::uses_history(recipe))
    for (const int64_t width : {columns, int64_t{8192}, int64_t{16400}})
      for (const bool shift : {true, false})
        for (const bool residual : {true, false})
          cases_.run(str(name, shift ? "LayerNorm" : "RMS norm", " of ", width), [&] {
            const auto made = linear.norm_quantize(
                bf16({rows, width}), residual ? bf16({rows, width}) : Tensor(), bf16({width}),
                shift ? bf16({width}) : Tensor(), 1e-5, recipe, in.row, in.column);
            if (made && made->sum.sizes() != at::IntArrayRef({rows, width}))
              return std::string("no sum");
            return must(made);
          });
  if (fp8::uses_history(recipe)) {
    cases_.run(name + "many weights", [&] {
      std::vector<engine::Fp8Linear::Request> all;
      for (int64_t i = 1; i <= 70; ++i)
        all.push_back(
            {bf16({16 * i, columns}), ordered(Role::kWeight).row, ordered(Role::kWeight).column});
      fake_cuda::api()->reset();
      const auto made = linear.quantize_all(all, recipe);
      fake_cuda::Counters counters{};
      fake_cuda::api()->counters(&counters);
      const auto launches = counters.of(fake_cuda::Kind::kLaunch);
      // The library has a kernel for sides that are multiples of its tile, and one for others.
      return made.size() == all.size() && launches <= 4 ? std::string()
                                                        : str(launches, " launches");
    });
    Tensor sums = fp32({columns});
    for (const auto mode : {Accumulate::kOverwrite, Accumulate::kAdd})
      cases_.run(name + "a gradient and the bias's", [&] {
        fake_cuda::api()->reset();
        const auto made = linear.quantize_and_sum(bf16({rows, columns}), sums, mode, recipe,
                                                  grad.row, grad.column);
        fake_cuda::Counters counters{};
        fake_cuda::api()->counters(&counters);
        const auto launches = counters.of(fake_cuda::Kind::kLaunch);
        if (!linear.sums_biases()) return made ? std::string("was summed") : std::string();
        return made && launches == 1 ? std::string() : str("wanted one launch, found ", launches);
      });
  }
  cases_.run(name + "GELU", [&] {
    return must(linear.activate_quantize(Activation::kGelu, bf16({rows, columns}), recipe, in.row,
                                         in.column));
  });
  cases_.run(name + "SwiGLU", [&] {
    const Tensor x = bf16({rows, 2 * columns});
    return must_when_gated(
        linear.activate_quantize(Activation::kSwiGlu, x, recipe, in.row, in.column),
        [&] { linear.quantize(engine_.swiglu->forward(x), recipe, in.row, in.column); });
  });
  Tensor dbias = fp32({columns}), none;
  for (const auto mode : {Accumulate::kOverwrite, Accumulate::kAdd})
    cases_.run(name + "GELU's gradient and the bias's", [&] {
      return must(linear.activation_gradient_quantize(Activation::kGelu, bf16({rows, columns}),
                                                      bf16({rows, columns}), dbias, mode, recipe,
                                                      grad.row, grad.column));
    });
  cases_.run(name + "GELU's gradient", [&] {
    return must(linear.activation_gradient_quantize(
        Activation::kGelu, bf16({rows, columns}), bf16({rows, columns}), none,
        Accumulate::kOverwrite, recipe, grad.row, grad.column));
  });
  cases_.run(name + "SwiGLU's gradient", [&] {
    const Tensor dy = bf16({rows, columns}), x = bf16({rows, 2 * columns});
    return must_when_gated(
        linear.activation_gradient_quantize(Activation::kSwiGlu, dy, x, none,
                                            Accumulate::kOverwrite, recipe, grad.row, grad.column),
        [&] { linear.quantize(engine_.swiglu->backward(dy, x), recipe, grad.row, grad.column); });
  });
}

void Acceptance::update() {
  auto& linear = *engine_.fp8_linear;
  const fp8::Options usual;
  for (const auto algo : {fp8::AmaxAlgo::kMax, fp8::AmaxAlgo::kMostRecent})
    for (const bool recompute : {true, false})
      cases_.accepts("delayed: update of factors", [&] {
        Tensor history = at::zeros({usual.history, 3}, at::TensorOptions(kGpu).dtype(at::kFloat)),
               factors = at::ones({3}, at::TensorOptions(kGpu).dtype(at::kFloat));
        linear.update_factors(history, factors,
                              {fp8::Format::kE4M3, fp8::Format::kE5M2, fp8::Format::kE4M3}, algo, 1,
                              recompute);
      });
}

// octavo lets the quantizer write swizzled scales. That the library swizzles plain ones of the
// same shapes shows that it means the same by them.
void Acceptance::swizzle() {
  cases_.accepts("mxfp8: swizzling plain scales", [&] {
    const auto call = reinterpret_cast<decltype(&nvte_swizzle_scaling_factors)>(
        dlsym(dlopen(engine::te::library_info().path.c_str(), RTLD_NOW | RTLD_NOLOAD),
              "nvte_swizzle_scaling_factors"));
    const engine::te::OnDevice on(bf16({1, 1}));
    for (const Direction direction : {Direction::kRow, Direction::kColumn}) {
      const fp8::Side side{fp8::Format::kE4M3, fp8::Granularity::kBlock32};
      const auto layout = engine::te::layout_of(side, direction, 160, 384, on.facts);
      const auto params = engine::te::params_of(side, direction, on.facts);
      engine::te::Handle plain(layout.mode), swizzled(layout.mode);
      const auto from = allocate_copy(layout, kGpu), to = allocate_copy(layout, kGpu);
      describe_copy(plain, from, side, layout, params);
      describe_copy(swizzled, to, side, layout, params);
      swizzled.set_swizzled();
      call(plain, swizzled, on.stream);
    }
  });
}

void Acceptance::operations() {
  struct Shape {
    int64_t rows, columns;
  };
  for (const Shape& shape : {Shape{160, 768}, Shape{7, 96}, Shape{64, 4096}}) {
    const int64_t rows = shape.rows, columns = shape.columns;
    const std::string name = str(rows, " x ", columns, ": ");
    const Tensor x = bf16({rows, columns}), delta = bf16({rows, columns}), none;
    const Tensor gamma = bf16({columns}), beta = bf16({columns});
    Tensor dgamma = fp32({columns}), dbeta = fp32({columns});
    const auto layer_norm = engine::te::make_layer_norm();
    const auto rms_norm = engine::te::make_rms_norm();
    const auto rope = engine::te::make_rope();
    for (const bool residual : {true, false}) {
      const Tensor& added = residual ? delta : none;
      cases_.accepts(name + "LayerNorm", [&] {
        const auto out = layer_norm->forward(x, added, gamma, beta, 1e-5);
        layer_norm->backward(bf16({rows, columns}), added, out, gamma, dgamma, dbeta,
                             residual ? Accumulate::kAdd : Accumulate::kOverwrite);
      });
      cases_.accepts(name + "RMS norm", [&] {
        const auto out = rms_norm->forward(x, added, gamma, 1e-5);
        rms_norm->backward(bf16({rows, columns}), added, out, gamma, dgamma,
                           residual ? Accumulate::kAdd : Accumulate::kOverwrite);
      });
    }
    cases_.accepts(name + "RMS norm, frozen", [&] {
      Tensor frozen;
      const auto out = rms_norm->forward(x, none, gamma, 1e-5);
      rms_norm->backward(bf16({rows, columns}), none, out, gamma, frozen, Accumulate::kAdd);
    });
    cases_.accepts(name + "GELU", [&] {
      Tensor dy = engine_.gelu->forward(x);
      engine_.gelu->backward(dy, x, dgamma, Accumulate::kAdd);
    });
    for (const bool back : {false, true})
      cases_.run(name + (back ? "GELU's gradient in a GEMM" : "GELU in a GEMM"), [&] {
        constexpr int kGeluAuxBias = 164, kDGelu = 192;  // CUBLASLT_EPILOGUE_…
        Tensor h = bf16({rows, 32}), y = bf16({rows, 32});
        fake_cuda::api()->reset();
        if (back)
          engine_.matmul->input_gradient_gelu(x, bf16({columns, 32}), h, y);
        else
          engine_.matmul->forward_gelu(x, bf16({32, columns}), bf16({32}), h, y);
        fake_cuda::Gemm gemm{};
        if (fake_cuda::api()->gemms(&gemm, 0, 1) != 1) return std::string("wanted one GEMM");
        const bool right = gemm.m == 32 && gemm.n == rows && gemm.k == columns &&
                           gemm.epilogue == (back ? kDGelu : kGeluAuxBias) &&
                           gemm.output == y.data_ptr() && gemm.aux == h.data_ptr();
        return right ? std::string()
                     : str("a GEMM of ", gemm.m, " x ", gemm.n, " over ", gemm.k, ", epilogue ",
                           gemm.epilogue);
      });
    for (const auto type : {at::kFloat, at::kBFloat16})
      for (const auto mode : {Accumulate::kOverwrite, Accumulate::kAdd})
        cases_.run(name + "a weight's gradient and its bias's in one GEMM", [&] {
          constexpr int kBgradB = 512;  // CUBLASLT_EPILOGUE_BGRADB
          Tensor dw = at::empty({32, columns}, at::TensorOptions(kGpu).dtype(type));
          Tensor dbias = fp32({32});
          fake_cuda::api()->reset();
          engine_.matmul->weight_bias_gradient(bf16({rows, 32}), x, dw, mode, dbias, mode);
          fake_cuda::Gemm gemm{};
          if (fake_cuda::api()->gemms(&gemm, 0, 1) != 1) return std::string("wanted one GEMM");
          const bool right = gemm.m == columns && gemm.n == 32 && gemm.k == rows &&
                             gemm.epilogue == kBgradB && gemm.output == dw.data_ptr() &&
                             gemm.beta == (mode == Accumulate::kAdd ? 1.0f : 0.0f);
          if (mode == Accumulate::kOverwrite && gemm.bias != dbias.data_ptr())
            return std::string("the bias's gradient is written elsewhere");
          return right ? std::string()
                       : str("a GEMM of ", gemm.m, " x ", gemm.n, " over ", gemm.k, ", epilogue ",
                             gemm.epilogue, ", beta ", gemm.beta);
        });
    cases_.accepts(name + "SwiGLU", [&] {
      const Tensor y = engine_.swiglu->forward(x);
      engine_.swiglu->backward(y, x);
    });
    cases_.accepts(name + "rotary positions", [&] {
      Tensor qkv = bf16({rows, columns + 32});
      const Tensor positions = at::zeros({rows}, at::TensorOptions(kGpu).dtype(at::kInt));
      for (const bool back : {false, true})
        rope->rotate(qkv, positions, fp32({rows, 32}), columns / 32, back);
    });
  }
}

}  // namespace octavo
