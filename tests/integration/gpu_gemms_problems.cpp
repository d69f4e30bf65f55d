// The problems: every recipe, format and GEMM on odd shapes, and what they must give.

#include "base/error.h"
#include "engine/aten/aten.h"
#include "engine/reference/reference.h"
#include "fp8/legality.h"
#include "gpu_gemms.h"

namespace octavo::gemms {
namespace {

using at::Tensor;
using engine::Fp8Matrix;
using engine::QuantizeSpec;
using fp8::Direction;
using fp8::FormatChoice;
using fp8::Recipe;
using fp8::Role;

constexpr Shape kShapes[] = {{48, 80, 144},  {80, 144, 48},  {136, 64, 272},  {37, 48, 16},
                             {48, 256, 128}, {80, 640, 384}, {136, 384, 640}, {37, 128, 768},
                             {96, 160, 224}, {160, 96, 288}, {128, 128, 128}};

std::vector<Recipe> recipes_of(const Backend& backend) {
  std::vector<Recipe> result;
  for (const Recipe recipe : fp8::kRecipes) {  // alpha of nvfp4 is a kernel's
    const fp8::RecipeTraits& row = fp8::traits_of(recipe);
    // With one scale the sums are scaled by a kernel, which does not run here.
    const fp8::ComputeCapabilities& has = backend.name == "te" ? row.native : row.libtorch;
    const bool runs = backend.is_native ? has.has(backend.capability)
                                        : row.activations != fp8::Granularity::kTensor;
    if (runs) result.push_back(recipe);
  }
  return result;
}
std::vector<FormatChoice> formats_of(Recipe recipe) {
  if (!fp8::traits_of(recipe).chooses_format) return {FormatChoice::kE4m3};
  return {FormatChoice::kHybrid, FormatChoice::kE4m3, FormatChoice::kE5m2};
}

// A matrix as the backend and as the reference have it.
struct BackendAndReference {
  Fp8Matrix made, reference;
};

class Maker {
 public:
  Maker(const Backend& backend, Recipe recipe, FormatChoice format)
      : backend_(backend), recipe_(recipe), format_(format) {}

  BackendAndReference matrix(int64_t rows, int64_t columns, double scale, Role role) {
    // Rows and columns of different sizes: a scale in the wrong place shows.
    const Tensor sizes =
        at::exp2(at::randint(-3, 4, {rows, 1})) * at::exp2(at::randint(-3, 4, {1, columns}));
    const Tensor x = (at::randn({rows, columns}) * sizes * scale).to(at::kBFloat16);
    const QuantizeSpec row = order(role, Direction::kRow), column = order(role, Direction::kColumn);
    return {backend_.quantize(x, recipe_, row, column),
            reference_->quantize(x, recipe_, row, column)};
  }

  engine::Fp8Linear& reference() { return *reference_; }

 private:
  QuantizeSpec order(Role role, Direction direction) const {
    QuantizeSpec result{.side = side_of(recipe_, format_, role, direction), .wanted = true};
    if (fp8::uses_history(recipe_))
      result.factor = at::full({1}, 3.7f + 2 * static_cast<float>(role));
    return result;
  }

  const Backend& backend_;
  Recipe recipe_;
  FormatChoice format_;
  std::unique_ptr<engine::Fp8Linear> reference_ = engine::reference::make_fp8_linear();
};

// The sum of the magnitudes of what is added up.
Tensor magnitudes(engine::Fp8Linear& reference, GemmKind gemm, Fp8Matrix a, Fp8Matrix b,
                  const Tensor& like) {
  for (engine::Fp8Matrix* m : {&a, &b})
    for (engine::Fp8Copy* copy : {&m->row, &m->column}) copy->codes = copy->codes.bitwise_and(0x7F);
  Tensor result = at::empty_like(like, like.options().dtype(at::kDouble));
  if (gemm == GemmKind::kForward)
    reference.forward(a, b, Tensor(), result);
  else if (gemm == GemmKind::kInputGradient)
    reference.input_gradient(a, b, result);
  else
    reference.weight_gradient(a, b, result, engine::Accumulate::kOverwrite);
  return result;
}

void solve(Maker& maker, Problem& p, const BackendAndReference& a, const BackendAndReference& b) {
  p.left = a.made;
  p.right = b.made;
  const bool add = p.before.defined();
  const std::vector<int64_t> sizes =
      p.gemm == GemmKind::kForward         ? std::vector{p.shape.tokens, p.shape.out}
      : p.gemm == GemmKind::kInputGradient ? std::vector{p.shape.tokens, p.shape.in}
                                           : std::vector{p.shape.out, p.shape.in};
  p.wanted = add ? p.before.to(at::kDouble) : at::empty(sizes, at::kDouble);
  auto& reference = maker.reference();
  if (p.gemm == GemmKind::kForward)
    reference.forward(a.reference, b.reference, p.bias, p.wanted);
  else if (p.gemm == GemmKind::kInputGradient)
    reference.input_gradient(a.reference, b.reference, p.wanted);
  else
    reference.weight_gradient(a.reference, b.reference, p.wanted,
                              add ? engine::Accumulate::kAdd : engine::Accumulate::kOverwrite);
  p.slack = 2e-6 * magnitudes(reference, p.gemm, a.reference, b.reference, p.wanted);
}

}  // namespace

std::vector<Problem> problems_of(const Backend& backend) {
  std::vector<Problem> problems;
  at::manual_seed(6);
  for (const Recipe recipe : recipes_of(backend))
    for (const FormatChoice format : formats_of(recipe))
      for (const Shape& s : kShapes) {
        if (!fp8::refusal(recipe, s.out, s.in).empty()) continue;
        if (backend.serves && !backend.serves(recipe, s)) continue;
        Maker maker(backend, recipe, format);
        const BackendAndReference x = maker.matrix(s.tokens, s.in, 1, Role::kInput),
                                  w = maker.matrix(s.out, s.in, 0.1, Role::kWeight),
                                  dy = maker.matrix(s.tokens, s.out, 0.01, Role::kGradient);
        const auto add = [&](Problem problem, const BackendAndReference& a,
                             const BackendAndReference& b) {
          problem.recipe = recipe;
          problem.shape = s;
          solve(maker, problem, a, b);
          problems.push_back(std::move(problem));
        };
        add({.gemm = GemmKind::kForward}, x, w);
        add({.gemm = GemmKind::kForward, .bias = at::randn({s.out}).to(at::kBFloat16)}, x, w);
        add({.gemm = GemmKind::kInputGradient}, dy, w);
        if (!fp8::token_refusal(recipe, s.tokens).empty()) continue;
        for (const auto result : {at::kFloat, at::kBFloat16}) {
          const Tensor before = at::randn({s.out, s.in}).to(result);
          add({.gemm = GemmKind::kWeightGradient, .result = result}, dy, x);
          add({.gemm = GemmKind::kWeightGradient, .before = before, .result = result}, dy, x);
        }
      }
  return problems;
}

Backend make_backend(const std::string& name, int capability) {
  if (name == "te") return make_te_backend(capability);
  Backend result{.name = name, .capability = capability, .is_native = name != "rehearsal"};
  if (name == "aten")
    result.op = engine::aten::make_scaled_mm(capability);
  else if (name == "rehearsal")
    result.op = engine::aten::make_rehearsal();
  else
    fail(ExitCode::kUsage, "gpu_gemms", "wanted the backend aten or rehearsal, found ", name);
  result.quantize = [op = result.op](const Tensor& x, Recipe recipe, const QuantizeSpec& row,
                                     const QuantizeSpec& column) {
    return op->quantize(x, recipe, row, column);
  };
  return result;
}

}  // namespace octavo::gemms
