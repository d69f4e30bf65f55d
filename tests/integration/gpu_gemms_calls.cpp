// Running a problem, what the call must have said, and mistakes made on purpose.

#include <cstdio>

#include "base/error.h"
#include "engine/aten/aten.h"
#include "fake_cuda/fake_cuda.h"
#include "gpu_gemms.h"

namespace octavo::gemms {
namespace {

using at::Tensor;
using engine::Fp8Copy;
using engine::Fp8Matrix;
using fp8::Direction;
using fp8::Granularity;
using fp8::Recipe;

Fp8Copy on_device(const Fp8Copy& copy) {
  const auto moved = [](const Tensor& t) { return t.defined() ? t.to(at::kCUDA) : t; };
  return {moved(copy.codes), moved(copy.scales), moved(copy.values)};
}
// Kernels do not run there: a result is what was copied to it until a GEMM writes it.
Tensor filled(const Problem& p) {
  return (p.before.defined() ? p.before : at::full(p.wanted.sizes(), NAN, at::dtype(p.result)))
      .to(at::kCUDA);
}

int32_t cuda_type(fp8::Format format) {
  return format == fp8::Format::kE4M3 ? 28 : 29;
}
int32_t cuda_type(at::ScalarType type) {
  return type == at::kFloat ? 0 : 14;
}
int32_t scale_mode(Granularity granularity) {
  switch (granularity) {
    case Granularity::kTensor:
      return 0;
    case Granularity::kVector:
      return 3;
    case Granularity::kBlock128:
      return 4;
    case Granularity::kSquare128:
      return 5;
    case Granularity::kBlock16:  // of nvfp4: te_calls has its GEMMs
    case Granularity::kSquare16:
      OCTAVO_ASSERT(false);
      break;
    case Granularity::kBlock32:
      break;
  }
  return 2;
}

std::vector<fake_cuda::Gemm> recorded() {
  std::vector<fake_cuda::Gemm> found(16);
  found.resize(fake_cuda::api()->gemms(found.data(), 0, found.size()));
  return found;
}

std::string text_of(const WantedCall& c) {
  return str("m ", c.m, " n ", c.n, " k ", c.k, " lda ", c.lda, " ldb ", c.ldb, " ops ", c.op_a,
             c.op_b, " types ", c.type_a, " ", c.type_b, " ", c.type_d, " scale modes ", c.mode_a,
             " ", c.mode_b, " fast ", c.fast, " epilogue ", c.epilogue, " beta ", c.beta);
}
WantedCall call_of(const fake_cuda::Gemm& g) {
  return {g.m,
          g.n,
          g.k,
          g.a.ld,
          g.b.ld,
          g.a.op,
          g.b.op,
          g.a.type,
          g.b.type,
          g.d.type,
          g.a.scale_mode,
          g.b.scale_mode,
          g.fast_accumulate,
          g.epilogue,
          g.beta};
}

std::string compared(const Tensor& found, const Problem& p) {
  const Tensor a = found.to(at::kDouble), e = p.wanted;
  const double digits = p.result == at::kBFloat16 ? 7 : 22;
  const Tensor allowed = at::exp2(e.abs().clamp_min(0x1p-126).log2().floor() - digits) + p.slack;
  const Tensor outside = ((a - e).abs() <= allowed).logical_not();
  const auto count = outside.sum().item<int64_t>();
  return count == 0 ? "" : str(count, " of ", a.numel(), " results are wrong");
}

}  // namespace

Direction left_copy(GemmKind p) {
  return p == GemmKind::kWeightGradient ? Direction::kColumn : Direction::kRow;
}
Direction right_copy(GemmKind p) {
  return p == GemmKind::kForward ? Direction::kRow : Direction::kColumn;
}
std::string text_of(const Problem& p) {
  return str(config::name_of(p.recipe), " ", name_of(p.gemm), " ", p.shape.tokens, " x ",
             p.shape.in, " -> ", p.shape.out, p.bias.defined() ? " + bias" : "",
             p.before.defined() ? " added" : "", " to ", at::toString(p.result));
}

Extents extents_of(const Problem& p) {
  const Shape& s = p.shape;
  if (p.gemm == GemmKind::kForward) return {s.tokens, s.out, s.in};
  if (p.gemm == GemmKind::kInputGradient) return {s.tokens, s.in, s.out};
  return {s.out, s.in, s.tokens};
}
int64_t up_to(int64_t size, int64_t multiple) {
  return (size + multiple - 1) / multiple * multiple;
}

bool is_computed(const Problem& p, const Backend& backend) {
  return fp8::traits_of(p.recipe).activations != fp8::Granularity::kVector ||
         backend.capability == 90 || !backend.is_native;
}

void Tally::check(bool passed, const std::string& what, const std::string& found) {
  ++cases;
  if (passed) return;
  ++failed;
  std::printf("FAIL %s: %s\n", what.c_str(), found.c_str());
}

std::string run_on_device(const Backend& backend, const Problem& p) {
  Fp8Matrix left = p.left, right = p.right;
  for (Fp8Matrix* m : {&left, &right}) {
    m->row = on_device(m->row);
    m->column = on_device(m->column);
  }
  const Tensor bias = p.bias.defined() ? p.bias.to(at::kCUDA) : p.bias;
  Tensor out = filled(p);
  fake_cuda::api()->reset();
  try {
    if (p.gemm == GemmKind::kForward)
      backend.op->forward(left, right, bias, out);
    else if (p.gemm == GemmKind::kInputGradient)
      backend.op->input_gradient(left, right, out);
    else
      backend.op->weight_gradient(
          left, right, out,
          p.before.defined() ? engine::Accumulate::kAdd : engine::Accumulate::kOverwrite);
  } catch (const std::exception& error) {
    return str("refused: ", std::string(error.what()).substr(0, 300));
  }
  fake_cuda::Counters counters{};
  fake_cuda::api()->counters(&counters);
  if (counters.host_waits() != 0) return "the host waited";
  if (!is_computed(p, backend))
    return counters.of(fake_cuda::Kind::kLaunch) > 0 ? "" : "no kernel was launched";
  return compared(out.cpu(), p);
}

WantedCall wanted_call(const Problem& p, int capability) {
  const auto [rows, n, k] = extents_of(p);
  const fp8::Side left = p.left.side(left_copy(p.gemm)), right = p.right.side(right_copy(p.gemm));
  // Operands whose sum runs along their rows in memory, but where any layout is taken. Blocks of
  // 128, which lie so, are given as blocks of 32 there.
  const auto of_128 = [](Granularity g) {
    return g == Granularity::kBlock128 || g == Granularity::kSquare128;
  };
  const bool as_32 = capability >= 100 && of_128(left.granularity);
  const bool as_stored = capability >= 100 && capability < 120 && !as_32;
  const bool left_turned = as_stored && p.gemm == GemmKind::kWeightGradient,
             right_turned = as_stored && p.gemm != GemmKind::kForward;
  // 1 x 128: rows come in fours.
  const int64_t m = left.granularity == Granularity::kBlock128 ? up_to(rows, 4) : rows;
  const bool fast = p.gemm == GemmKind::kForward && (left.granularity == Granularity::kTensor ||
                                                     left.granularity == Granularity::kVector);
  return {.m = n,
          .n = m,
          .k = k,
          .lda = right_turned ? n : k,
          .ldb = left_turned ? m : k,
          .op_a = right_turned ? 0 : 1,
          .op_b = left_turned ? 1 : 0,
          .type_a = cuda_type(right.format),
          .type_b = cuda_type(left.format),
          .type_d = cuda_type(p.result),
          .mode_a = scale_mode(as_32 ? Granularity::kBlock32 : right.granularity),
          .mode_b = scale_mode(as_32 ? Granularity::kBlock32 : left.granularity),
          .fast = fast ? 1 : 0,
          .epilogue = p.bias.defined() ? 4 : 1,
          .beta = p.before.defined() ? 1.0f : 0.0f};
}

void check_calls(const Backend& backend, const Problem& p, Tally& tally) {
  const std::string wrong = run_on_device(backend, p);
  tally.check(wrong.empty(), text_of(p), wrong);
  if (!wrong.empty() || !backend.is_native || !is_computed(p, backend)) return;
  const auto calls = recorded();
  const std::string wanted = text_of(wanted_call(p, backend.capability));
  const std::string found =
      calls.size() == 1 ? text_of(call_of(calls[0])) : str(calls.size(), " GEMMs");
  tally.check(found == wanted, str(text_of(p), ", wanted ", wanted), found);
}

void check_bf16_gemms(Tally& tally) {
  const auto op = engine::aten::make_matmul();
  const Tensor x = at::randn({136, 80}).to(at::kBFloat16),
               w = at::randn({48, 80}).to(at::kBFloat16),
               dy = at::randn({136, 48}).to(at::kBFloat16),
               bias = at::randn({48}).to(at::kBFloat16);
  const auto wide = [](const Tensor& t) { return t.to(at::kDouble); };
  const auto gpu = [](const Tensor& t) { return t.to(at::kCUDA); };
  const auto check = [&](const char* name, const Tensor& found, const Tensor& wanted) {
    Problem p{.gemm = GemmKind::kForward, .result = found.scalar_type()};
    p.wanted = wanted;
    p.slack = at::full_like(wanted, 1e-4);
    const std::string wrong = compared(found.cpu(), p);
    tally.check(wrong.empty(), str("BF16 ", name), wrong);
  };
  Tensor y = gpu(at::zeros({136, 48}, at::kBFloat16)),
         dx = gpu(at::zeros({136, 80}, at::kBFloat16));
  op->forward(gpu(x), gpu(w), gpu(bias), y);
  check("forward with bias", y, at::mm(wide(x), wide(w).t()) + wide(bias));
  op->input_gradient(gpu(dy), gpu(w), dx);
  check("input gradient", dx, at::mm(wide(dy), wide(w)));
  for (const auto type : {at::kFloat, at::kBFloat16})
    for (const auto mode : {engine::Accumulate::kOverwrite, engine::Accumulate::kAdd}) {
      const Tensor before = at::randn({48, 80}).to(type);
      Tensor dw = gpu(before);
      op->weight_gradient(gpu(dy), gpu(x), dw, mode);
      const Tensor result = at::mm(wide(dy).t(), wide(x));
      check("weight gradient", dw,
            mode == engine::Accumulate::kAdd ? result + wide(before) : result);
    }
}

}  // namespace octavo::gemms
