// A check that cannot fail proves nothing: implementations that are wrong in one way each.

#include "verify/kernel_checks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <map>

#include "engine/engine.h"
#include "engine/op_table.h"
#include "named_recipe.h"
#include "verify/kernel_checks_fp8.h"
#include "verify/kernels.h"

namespace octavo::verify {
namespace {

struct WrongMatmul : engine::Matmul {
  int wrong = 0;
  void forward(const at::Tensor& x, const at::Tensor& w, const at::Tensor& bias,
               at::Tensor& y) override {
    at::Tensor exact = at::mm(x.to(at::kDouble), w.to(at::kDouble).t());
    if (wrong != 1) exact += bias;  // 1: forgets the bias
    y.copy_(exact);
    if (wrong == 4) y[7][3] = NAN;
  }
  void input_gradient(const at::Tensor& dy, const at::Tensor& w, at::Tensor& dx) override {
    dx.copy_(at::mm(dy.to(at::kDouble), w.to(at::kDouble)) * (wrong == 2 ? 1.02 : 1.0));
  }
  void weight_gradient(const at::Tensor& dy, const at::Tensor& x, at::Tensor& dw,
                       engine::Accumulate) override {
    const at::Tensor exact = at::mm(dy.to(at::kDouble).t(), x.to(at::kDouble));
    dw.copy_(wrong == 3 ? exact : exact + dw.to(at::kDouble));  // 3: overwrites
  }
  bool sums_biases() const override { return true; }
  void weight_bias_gradient(const at::Tensor& dy, const at::Tensor& x, at::Tensor& dw,
                            engine::Accumulate mode, at::Tensor& dbias,
                            engine::Accumulate) override {
    weight_gradient(dy, x, dw, mode);
    dbias.copy_(wrong == 5 ? dy[0] : dy.to(at::kDouble).sum(0));
  }
  bool fuses_gelu() const override { return true; }
  void forward_gelu(const at::Tensor& x, const at::Tensor& w, const at::Tensor& bias, at::Tensor& h,
                    at::Tensor& y) override {
    const at::Tensor exact = at::mm(x.to(at::kDouble), w.to(at::kDouble).t()) + bias;
    h.copy_(wrong == 6 ? at::gelu(exact, "tanh") : exact);  // 6: keeps what comes out
    y.copy_(at::gelu(wrong == 7 ? h.to(at::kDouble) * 1.02 : exact, "tanh"));  // 7: a little off
  }
  void input_gradient_gelu(const at::Tensor& dy, const at::Tensor& w, const at::Tensor& h,
                           at::Tensor& dh) override {
    const at::Tensor exact = at::mm(dy.to(at::kDouble), w.to(at::kDouble));
    dh.copy_(wrong == 8 ? exact : at::gelu_backward(exact, h.to(at::kDouble), "tanh"));
  }
};

TEST(KernelChecks, FindWhatIsWrong) {
  constexpr const char* kPlaces[] = {"",
                                     "forward",
                                     "input gradient",
                                     "weight gradient",
                                     "forward",
                                     "bias gradient",
                                     "forward before GELU",
                                     "forward with GELU",
                                     "input gradient with GELU's"};
  for (int wrong = 0; wrong < static_cast<int>(std::size(kPlaces)); ++wrong) {
    WrongMatmul right, op;
    op.wrong = wrong;
    Bench bench(at::kCPU, at::kBFloat16, tolerance_of("aten", at::kCPU, at::kBFloat16));
    check(op, right, bench);
    if (wrong == 0) {
      EXPECT_EQ(bench.trouble(), "");
      EXPECT_LE(bench.worst(), 1);
    } else {
      EXPECT_TRUE(bench.trouble().starts_with(kPlaces[wrong])) << wrong << bench.trouble();
    }
  }
}

// The reference, with one GEMM a little off.
struct WrongFp8 : engine::Fp8Linear {
  explicit WrongFp8(int kind) : wrong(kind) {}
  int wrong;
  std::unique_ptr<Fp8Linear> right = engine::implementations<Fp8Linear>().back().make();

  engine::Fp8Matrix quantize(const at::Tensor& x, fp8::Recipe recipe,
                             const engine::QuantizeSpec& row,
                             const engine::QuantizeSpec& column) override {
    at::Tensor from = wrong == 1 ? x * 2 : x;
    if (wrong == 13) {  // one code of all, by a step
      from = x.clone();
      from[x.size(0) - 1][x.size(1) / 2] *= 1.2;
    }
    return right->quantize(from, recipe, row, column);
  }
  void forward(const engine::Fp8Matrix& x, const engine::Fp8Matrix& w, const at::Tensor& bias,
               at::Tensor& y) override {
    right->forward(x, w, bias, y);
    if (wrong == 2) y.copy_(y.roll(1, 0));  // rows of another token
  }
  void input_gradient(const engine::Fp8Matrix& dy, const engine::Fp8Matrix& w,
                      at::Tensor& dx) override {
    right->input_gradient(dy, w, dx);
    if (wrong == 3) dx.mul_(1.25);  // a scale that is not its own
  }
  void weight_gradient(const engine::Fp8Matrix& dy, const engine::Fp8Matrix& x, at::Tensor& dw,
                       engine::Accumulate mode) override {
    right->weight_gradient(dy, x, dw, wrong == 4 ? engine::Accumulate::kOverwrite : mode);
  }
  void update_factors(at::Tensor& history, at::Tensor& factors,
                      const std::vector<fp8::Format>& formats, fp8::AmaxAlgo algo, int64_t margin,
                      bool recompute) override {
    right->update_factors(history, factors, formats, algo, margin + (wrong == 5 ? 1 : 0),
                          recompute);
  }
  at::Tensor health_stats(const at::Tensor& x, const engine::Fp8Matrix& quantized,
                          fp8::Direction direction) override {
    return right->health_stats(x, quantized, direction);
  }

  // Fused passes, each in two.
  template <class Op>
  static std::unique_ptr<Op> reference() {
    return engine::implementations<Op>().back().make();
  }
  bool has_fused_passes() const override { return true; }
  std::optional<Normed> norm_quantize(const at::Tensor& x, const at::Tensor& delta,
                                      const at::Tensor& gamma, const at::Tensor& beta, double eps,
                                      fp8::Recipe recipe, const engine::QuantizeSpec& row,
                                      const engine::QuantizeSpec& column) override {
    if (beta.defined()) {
      const auto out = reference<engine::LayerNorm>()->forward(x, delta, gamma, beta, eps);
      return Normed{out.sum, out.mean, out.rstd,
                    right->quantize(wrong == 6 ? out.sum : out.normed, recipe, row, column)};
    }
    const auto out = reference<engine::RmsNorm>()->forward(x, delta, gamma, eps);
    return Normed{
        wrong == 7 ? x : out.sum, {}, out.rstd, right->quantize(out.normed, recipe, row, column)};
  }
  std::optional<engine::Fp8Matrix> activate_quantize(engine::Activation activation,
                                                     const at::Tensor& x, fp8::Recipe recipe,
                                                     const engine::QuantizeSpec& row,
                                                     const engine::QuantizeSpec& column) override {
    const bool gated = activation == engine::Activation::kSwiGlu;
    const at::Tensor y = gated ? reference<engine::SwiGlu>()->forward(wrong == 8 ? x.roll(1, 1) : x)
                               : reference<engine::Gelu>()->forward(x);
    return right->quantize(y, recipe, row, column);
  }
  std::optional<engine::Fp8Matrix> activation_gradient_quantize(
      engine::Activation activation, const at::Tensor& dy, const at::Tensor& x, at::Tensor& dbias,
      engine::Accumulate mode, fp8::Recipe recipe, const engine::QuantizeSpec& row,
      const engine::QuantizeSpec& column) override {
    at::Tensor dx = dy.clone();
    if (activation == engine::Activation::kSwiGlu) {
      dx = reference<engine::SwiGlu>()->backward(dy, x);
    } else {
      reference<engine::Gelu>()->backward(dx, x, dbias, mode);
      if (wrong == 9) dbias.mul_(0.5);
      if (wrong == 10) dx = dy;
    }
    return right->quantize(dx, recipe, row, column);
  }
  std::optional<engine::Fp8Matrix> quantize_and_sum(const at::Tensor& x, at::Tensor& dbias,
                                                    engine::Accumulate, fp8::Recipe recipe,
                                                    const engine::QuantizeSpec& row,
                                                    const engine::QuantizeSpec& column) override {
    dbias.copy_(x.to(at::kFloat).sum(0));
    if (wrong == 11) dbias[3] += dbias[4];
    return right->quantize(x, recipe, row, column);
  }
  bool quantizes_together(fp8::Recipe) const override { return true; }
  std::vector<engine::Fp8Matrix> quantize_all(const std::vector<Request>& requests,
                                              fp8::Recipe recipe) override {
    std::vector<engine::Fp8Matrix> made;
    for (const Request& r : requests) {
      const at::Tensor x = wrong == 12 ? r.x.flip(0) : r.x;
      made.push_back(right->quantize(x, recipe, r.row, r.column));
    }
    return made;
  }
};

TEST(KernelChecks, FindWrongFp8GemmsWithinTheToleranceOfMatrixUnits) {
  for (const fp8::Recipe recipe : fp8::kRecipes)
    for (int wrong = 0; wrong < 14; ++wrong) {
      if (wrong == 5 && !fp8::uses_history(recipe)) continue;
      SCOPED_TRACE(std::string(config::name_of(recipe)) + ", wrong " + std::to_string(wrong));
      at::manual_seed(20);
      WrongFp8 op(wrong), oracle(0);
      Bench bench(at::kCPU, at::kBFloat16, native_fp8_tolerance());
      check(op, oracle, recipe, bench);
      EXPECT_EQ(bench.trouble().empty(), wrong == 0) << bench.trouble();
    }
}

// In four bits the CPU's rehearsal is what a GPU is compared with.
TEST(KernelChecks, FindWrongFp4Gemms) {
  for (const int wrong : {0, 1, 2, 3, 4}) {
    SCOPED_TRACE(wrong);
    at::manual_seed(20);
    WrongFp8 op(wrong), oracle(0);
    op.right = std::move(engine::Engine(engine::Target{}).fp8_linear);
    oracle.right = std::move(engine::Engine(engine::Target{}).fp8_linear);
    Bench bench(at::kCPU, at::kBFloat16, native_fp8_tolerance());
    check(op, oracle, named_recipe("nvfp4"), bench);
    EXPECT_EQ(bench.trouble().empty(), wrong == 0) << bench.trouble();
  }
}

// A GPU with sums as narrow as Hopper's passes at any length, and so does one with exact sums; one
// that loses four times as much does not, nor one whose sums are 5% too small. Blockwise sums are
// promoted every 128 terms: what Hopper loses there is small beside BF16's rounding of the result,
// and four times as much is not seen; eight times is.
struct LongSums : WrongFp8 {
  enum class Kind { kExact, kHopper, kNarrower, kShort } kind;
  double times;  // what Hopper loses, of kNarrower
  LongSums(Kind k, double t) : WrongFp8(0), kind(k), times(t) {}
  engine::Engine hopper{[] {
    engine::Target target;
    target.hopper_sums = true;
    return target;
  }()};
  // Each matrix as both want it, found again by where the first lies.
  std::map<const void*, std::pair<engine::Fp8Matrix, engine::Fp8Matrix>> twins;
  static const void* place_of(const engine::Fp8Matrix& m) {
    return (m.row.codes.defined() ? m.row.codes : m.row.values).const_data_ptr();
  }
  engine::Fp8Matrix quantize(const at::Tensor& x, fp8::Recipe recipe,
                             const engine::QuantizeSpec& row,
                             const engine::QuantizeSpec& column) override {
    const engine::Fp8Matrix made = right->quantize(x, recipe, row, column);
    twins[place_of(made)] = {made, hopper.fp8_linear->quantize(x, recipe, row, column)};
    return made;
  }
  void narrow(at::Tensor& result, const auto& multiply) {
    if (kind == Kind::kShort) result.mul_(0.95);
    if (kind != Kind::kHopper && kind != Kind::kNarrower) return;
    at::Tensor by_hopper = at::empty_like(result);
    multiply(by_hopper);
    const at::Tensor exact = result.to(at::kDouble), lost = by_hopper.to(at::kDouble) - exact;
    result.copy_(exact + (kind == Kind::kNarrower ? times : 1) * lost);
  }
  void forward(const engine::Fp8Matrix& x, const engine::Fp8Matrix& w, const at::Tensor& bias,
               at::Tensor& y) override {
    right->forward(x, w, bias, y);
    narrow(y, [&](at::Tensor& to) {
      hopper.fp8_linear->forward(twins.at(place_of(x)).second, twins.at(place_of(w)).second, bias,
                                 to);
    });
  }
  void input_gradient(const engine::Fp8Matrix& dy, const engine::Fp8Matrix& w,
                      at::Tensor& dx) override {
    right->input_gradient(dy, w, dx);
    narrow(dx, [&](at::Tensor& to) {
      hopper.fp8_linear->input_gradient(twins.at(place_of(dy)).second, twins.at(place_of(w)).second,
                                        to);
    });
  }
};

TEST(KernelChecks, LongSumsAsNarrowAsHoppersPassAndNarrowerOnesDoNot) {
  using Kind = LongSums::Kind;
  const std::pair<fp8::Recipe, double> recipes[] = {{named_recipe("current"), 4},
                                                    {named_recipe("blockwise"), 8}};
  for (const auto& [recipe, times] : recipes) {
    for (const Kind kind : {Kind::kExact, Kind::kHopper, Kind::kNarrower, Kind::kShort}) {
      SCOPED_TRACE(std::string(config::name_of(recipe)) + ", kind " +
                   std::to_string(static_cast<int>(kind)));
      at::manual_seed(20);
      LongSums op(kind, times);
      WrongFp8 oracle(0);
      Bench bench(at::kCPU, at::kBFloat16, native_fp8_tolerance());
      check_long_sums(op, oracle, recipe, bench);
      EXPECT_EQ(bench.trouble().empty(), kind == Kind::kExact || kind == Kind::kHopper)
          << bench.trouble();
      if (bench.trouble().empty()) EXPECT_EQ(bench.compared(), 4 * 32 * 128);
    }
  }
}

// Every operation of the engine has its lines, and the CPU passes them all.
TEST(KernelChecks, ThisCpuPasses) {
  std::vector<std::string> names;
  const auto all = check_kernels({.device = at::kCPU}, false,
                                 [&](const std::string& name) { names.push_back(name); });
  EXPECT_GT(names.size(), 40u);
  for (const Finding& f : all)
    EXPECT_TRUE(f.status == Status::kOk || f.id == "others") << f.id << ": " << f.found;
}

// On the fake CUDA device no number counts, and no line says ok.
TEST(KernelChecks, NothingIsOkOnAFakeDevice) {
  for (const Finding& f : check_kernels({.device = at::kCPU}, true, [](const std::string&) {})) {
    EXPECT_EQ(f.status, Status::kNotChecked) << f.id;
    if (f.id != "others") EXPECT_TRUE(f.found.starts_with("fake CUDA device")) << f.found;
  }
}

}  // namespace
}  // namespace octavo::verify
