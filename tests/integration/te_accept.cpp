// Every call that src/engine/te makes, to the real library on a device that is not there: its own
// checks, kernel choices and cuBLASLt descriptors run, kernels do not. And what the library would
// take although it is wrong is refused by us.

#include "te_accept.h"

#include <map>
#include <string>
#include <vector>

#include "engine/devices.h"
#include "engine/own/library.h"
#include "engine/te/library.h"
#include "engine/te/te.h"
#include "fake_cuda/fake_cuda.h"
#include "fp8/execution.h"
#include "fp8/legality.h"

namespace octavo {

using at::Tensor;
using engine::Accumulate;
using engine::Fp8Matrix;
using engine::QuantizeSpec;
using fp8::Direction;
using fp8::FormatChoice;
using fp8::Recipe;
using fp8::Role;

int Acceptance::run() {
  choices();
  for (const Recipe recipe : fp8::kAllRecipes) {
    if (!fp8::traits_of(recipe).in_transformer_engine) continue;
    if (has(recipe))
      linear(recipe);
    else
      cases_.refuses(str("quantize by ", config::name_of(recipe)), "does not have it",
                     [&] { quantized(recipe, FormatChoice::kE4m3, Role::kInput, 64, 128); });
  }
  nvfp4();
  adopt();
  fused();
  operations();
  wrong_uses();
  nothing_unexpected();
  return cases_.finish();
}

bool Acceptance::has(Recipe recipe) const {
  return fp8::has_native({.is_gpu = true,
                          .major = capability_ / 10,
                          .minor = capability_ % 10,
                          .has_te = true,
                          .name = {}},
                         recipe);
}

QuantizeSpec Acceptance::order(Recipe recipe, FormatChoice format, Role role, Direction direction,
                               bool wanted) {
  QuantizeSpec made{.side = side_of(recipe, format, role, direction), .wanted = wanted};
  if (fp8::uses_history(recipe)) {
    made.factor = factors_.narrow(0, direction == Direction::kRow ? 0 : 1, 1);
    made.amax = factors_.narrow(0, direction == Direction::kRow ? 2 : 3, 1);
    if (side_of(recipe, format, role, Direction::kRow).format == made.side.format)
      made.factor = factors_.narrow(0, 0, 1), made.amax = factors_.narrow(0, 2, 1);
  }
  const fp8::Options options{.recipe = recipe, .format = format};
  made.rotate = is_rotated(options, role, direction);
  made.rounding = {.stochastic = is_stochastic(options, role), .seed = 7, .stream = 11};
  return made;
}
Fp8Matrix Acceptance::quantized(Recipe recipe, FormatChoice format, Role role, int64_t rows,
                                int64_t columns, bool row, bool column) {
  return engine_.fp8_linear->quantize(bf16({rows, columns}), recipe,
                                      order(recipe, format, role, Direction::kRow, row),
                                      order(recipe, format, role, Direction::kColumn, column));
}

void Acceptance::choices() {
  const bool has_own = engine::own::library().kernels != nullptr;
  const std::string norms = has_own ? "own/others_by_te" : "te", rope = has_own ? "own" : "te";
  const std::map<std::string, std::string> wanted = {{"fp8_linear", "te"}, {"layer_norm", norms},
                                                     {"rms_norm", norms},  {"gelu", "te"},
                                                     {"swiglu", "te"},     {"rope", rope}};
  for (const engine::Choice& choice : engine_.choices)
    if (const auto found = wanted.find(choice.op); found != wanted.end())
      cases_.run("who runs " + choice.op, [&] {
        return choice.implementation == found->second ? "" : "it is " + choice.implementation;
      });
}

// Quantizers and GEMMs of one recipe, with each of its formats, and tokens that fill no block or
// are no multiple of what the recipe wants.
void Acceptance::linear(Recipe recipe) {
  const bool blocks = !fp8::traits_of(recipe).chooses_format;
  std::vector<FormatChoice> formats = {FormatChoice::kE4m3};
  if (!blocks) formats = {FormatChoice::kHybrid, FormatChoice::kE4m3, FormatChoice::kE5m2};
  for (const FormatChoice format : formats)
    for (const int64_t tokens : {160, 32, 77, 1}) gemms(recipe, format, tokens, 384, 256);
  if (!blocks) gemms(recipe, FormatChoice::kHybrid, 208, 80, 48);
  const std::string name = str(config::name_of(recipe), ": ");
  for (const Role role : {Role::kInput, Role::kWeight, Role::kGradient})
    for (const bool row : {true, false})
      cases_.accepts(str(name, row ? "row" : "column", " copy of ", fp8::name_of(role), " alone"),
                     [&] { quantized(recipe, FormatChoice::kE4m3, role, 128, 256, row, !row); });
  cases_.accepts(name + "no tokens", [&] {
    const Fp8Matrix x = quantized(recipe, FormatChoice::kE4m3, Role::kInput, 0, 256),
                    w = quantized(recipe, FormatChoice::kE4m3, Role::kWeight, 384, 256),
                    dy = quantized(recipe, FormatChoice::kE4m3, Role::kGradient, 0, 384);
    Tensor y = bf16({0, 384}), dx = bf16({0, 256}), dw = fp32({384, 256});
    engine_.fp8_linear->forward(x, w, {}, y);
    engine_.fp8_linear->input_gradient(dy, w, dx);
    engine_.fp8_linear->weight_gradient(dy, x, dw, Accumulate::kOverwrite);
  });
}

// A gathered weight: one kernel of the library where a transposed copy is wanted, none elsewhere.
void Acceptance::adopt() {
  const Fp8Matrix made = quantized(Recipe::kCurrent, FormatChoice::kE4m3, Role::kWeight, 256, 384);
  cases_.run("codes that were gathered", [&]() -> std::string {
    Fp8Matrix found = made;
    found.column = {};
    engine_.fp8_linear->adopt_part(made.row, Direction::kRow, /*both=*/true, found);  // compiles
    fake_cuda::api()->reset();
    engine_.fp8_linear->adopt_part(made.row, Direction::kRow, /*both=*/true, found);
    fake_cuda::Counters counters{};
    fake_cuda::api()->counters(&counters);
    const bool transposes = capability_ < 100 || capability_ >= 120;
    const auto launched = counters.of(fake_cuda::Kind::kLaunch);
    if (launched != (transposes ? 1u : 0u)) return str(launched, " kernels");
    fake_cuda::Event event{};
    if (transposes && (fake_cuda::api()->events(&event, 0, 1) < 1 ||
                       std::string_view(event.name).find("transpose") == std::string_view::npos))
      return str("another kernel: ", event.name);
    return "";
  });
}

void Acceptance::gemms(Recipe recipe, FormatChoice format, int64_t tokens, int64_t outputs,
                       int64_t inputs) {
  const std::string name = str(config::name_of(recipe), ", ", config::name_of(format), ", ", tokens,
                               " x ", inputs, " to ", outputs, ": ");
  const Fp8Matrix x = quantized(recipe, format, Role::kInput, tokens, inputs);
  const Fp8Matrix w = quantized(recipe, format, Role::kWeight, outputs, inputs);
  const Fp8Matrix dy = quantized(recipe, format, Role::kGradient, tokens, outputs);
  Tensor y = bf16({tokens, outputs}), dx = bf16({tokens, inputs});
  const int64_t rows = tokens + fp8::padding(recipe, tokens);
  auto& linear = *engine_.fp8_linear;
  const bool blocks = !fp8::traits_of(recipe).chooses_format;
  one_gemm(name + "forward", {rows, outputs, inputs}, !blocks, 0,
           [&] { linear.forward(x, w, {}, y); });
  one_gemm(name + "forward with bias", {rows, outputs, inputs}, !blocks, 0,
           [&] { linear.forward(x, w, bf16({outputs}), y); });
  one_gemm(name + "input gradient", {rows, inputs, outputs}, false, 0,
           [&] { linear.input_gradient(dy, w, dx); });
  for (const auto type : {at::kFloat, at::kBFloat16})
    for (const auto mode : {Accumulate::kOverwrite, Accumulate::kAdd}) {
      Tensor dw = at::empty({outputs, inputs}, at::TensorOptions(kGpu).dtype(type));
      one_gemm(name + "weight gradient", {outputs, inputs, rows}, false,
               mode == Accumulate::kAdd ? 1.0f : 0.0f,
               [&] { linear.weight_gradient(dy, x, dw, mode); });
    }
}

// One cuBLASLt call, of these sides, with the accumulator and the beta that are wanted.
void Acceptance::one_gemm(const std::string& name, const Sides& sides, bool fast, float beta,
                          const std::function<void()>& call) {
  cases_.run(name, [&]() -> std::string {
    const fake_cuda::Api& device = *fake_cuda::api();
    const uint64_t before = device.gemms(nullptr, 0, 0);
    call();
    fake_cuda::Gemm gemm{};
    if (device.gemms(&gemm, before, 1) != before + 1) return "wanted one GEMM";
    // Column-major: m are the columns of our result.
    if (gemm.m != sides.columns || gemm.n != sides.rows || gemm.k != sides.summed)
      return str("sides ", gemm.m, ", ", gemm.n, ", ", gemm.k);
    if (gemm.fast_accumulate != (fast ? 1 : 0)) return "another accumulator";
    // That of NVFP4 is written by a kernel, which does not run here.
    const bool fp4 = gemm.a.type == kCudaE2M1;
    if ((!fp4 && gemm.alpha != 1) || gemm.beta != beta) return str("beta ", gemm.beta);
    if (gemm.workspace < (uint64_t{32} << 20)) return str("workspace ", gemm.workspace);
    return "";
  });
}

void Acceptance::wrong_uses() {
  auto& linear = *engine_.fp8_linear;
  const auto make = [&](FormatChoice format, Role role, int64_t rows, int64_t columns) {
    return quantized(Recipe::kCurrent, format, role, rows, columns);
  };
  const Fp8Matrix x = make(FormatChoice::kE4m3, Role::kInput, 64, 128),
                  w = make(FormatChoice::kE4m3, Role::kWeight, 256, 128),
                  dy = make(FormatChoice::kE4m3, Role::kGradient, 64, 256);
  Tensor y = bf16({64, 256}), dw = fp32({256, 128});
  cases_.refuses("a result of another shape", "result", [&] {
    Tensor small = bf16({63, 256});
    linear.forward(x, w, {}, small);
  });
  cases_.refuses("an FP32 result of the forward GEMM", "BF16", [&] {
    Tensor wide = fp32({64, 256});
    linear.forward(x, w, {}, wide);
  });
  cases_.refuses("an unaligned result", "aligned", [&] {
    Tensor shifted = fp32({256 * 128 + 1}).narrow(0, 1, 256 * 128).view({256, 128});
    linear.weight_gradient(dy, x, shifted, Accumulate::kOverwrite);
  });
  cases_.refuses("an FP32 bias", "bias", [&] { linear.forward(x, w, fp32({256}), y); });
  cases_.refuses("a copy that was not made", "is not there", [&] {
    Fp8Matrix half = x;
    half.column = {};
    linear.weight_gradient(dy, half, dw, Accumulate::kOverwrite);
  });
  cases_.refuses("two operands in E5M2", "E5M2", [&] {
    const Fp8Matrix d5 = make(FormatChoice::kE5m2, Role::kGradient, 64, 256),
                    x5 = make(FormatChoice::kHybrid, Role::kGradient, 64, 128);
    linear.weight_gradient(d5, x5, dw, Accumulate::kOverwrite);
  });
  cases_.refuses("a sum over nothing", "sum", [&] {
    const Fp8Matrix x0 = make(FormatChoice::kE4m3, Role::kInput, 64, 0),
                    w0 = make(FormatChoice::kE4m3, Role::kWeight, 256, 0);
    linear.forward(x0, w0, {}, y);
  });
  cases_.refuses("24 columns", "multiples of 16",
                 [&] { make(FormatChoice::kE4m3, Role::kInput, 64, 24); });
  cases_.refuses("scales of another shape", "scales", [&] {
    Fp8Matrix other = x;
    other.row.scales = fp32({2});
    linear.forward(other, w, {}, y);
  });
  cases_.refuses("codes of another shape", "codes", [&] {
    Fp8Matrix other = x;
    other.rows = 32;
    Tensor half = bf16({32, 256});
    linear.forward(other, w, {}, half);
  });
  const QuantizeSpec row =
      order(Recipe::kCurrent, FormatChoice::kE4m3, Role::kInput, Direction::kRow, true);
  cases_.refuses("FP32 to be quantized", "BF16", [&] {
    linear.quantize(fp32({64, 128}), Recipe::kCurrent, row, {});
  });
  cases_.refuses("unaligned numbers to be quantized", "aligned", [&] {
    linear.quantize(bf16({64 * 128 + 1}).narrow(0, 1, 64 * 128).view({64, 128}), Recipe::kCurrent,
                    row, {});
  });
  cases_.refuses("one scale per row", "rowwise", [&] {
    linear.quantize(
        bf16({64, 128}), Recipe::kRowwise,
        order(Recipe::kRowwise, FormatChoice::kE4m3, Role::kInput, Direction::kRow, true), {});
  });
  cases_.refuses("tensors in the CPU's memory", "GPU", [&] {
    linear.quantize(at::empty({64, 128}, at::kBFloat16), Recipe::kCurrent, row, {});
  });
  cases_.refuses("an FP32 gamma", "gamma", [&] {
    engine_.rms_norm->forward(bf16({64, 128}), {}, fp32({128}), 1e-5);
  });
  cases_.refuses("what the library itself refuses", "nvte_set_tensor_param_v2", [&] {
    engine::te::library().nvte_set_tensor_param_v2(nullptr, kNVTEAmax, nullptr, 0);
  });
  // Made by hand: none of our quantizers gives it. From 10.0 up to 12.0 there are both.
  const bool has_both = capability_ >= 100 && capability_ < 120;
  const auto blocks = capability_ == 90 ? fp8::Granularity::kBlock32
                      : has_both        ? fp8::Granularity::kVector
                                        : fp8::Granularity::kBlock128;
  cases_.refuses("a GEMM of blocks that the device does not have",
                 has_both ? "a recipe that Transformer Engine has" : "compute capability", [&] {
                   Fp8Matrix a = x, b = w;
                   a.row_side.granularity = b.row_side.granularity = blocks;
                   linear.forward(a, b, {}, y);
                 });
}

void Acceptance::nothing_unexpected() {
  cases_.run("entry points that mean nothing here", [] {
    const fake_cuda::Api& device = *fake_cuda::api();
    std::vector<fake_cuda::Event> events(device.events(nullptr, 0, 0));
    device.events(events.data(), 0, events.size());
    std::string names;
    for (const fake_cuda::Event& event : events)
      // CUDA's libraries ask for private tables when they start, and do without.
      if (event.kind == fake_cuda::Kind::kUnexpected &&
          std::string(event.name) != "cuGetExportTable")
        names += str(" ", event.name);
    return names;
  });
}

int check_acceptance(int capability) {
  if (!fake_cuda::is_active())
    fail(ExitCode::kEnvironment, "te_calls", "wanted a process on the fake CUDA device");
  if (engine::gpus().gpus.empty()) fail(ExitCode::kEnvironment, "te_calls", engine::gpus().reason);
  const auto& gpu = engine::gpus().gpus.front();
  if (10 * gpu.major + gpu.minor != capability)
    fail(ExitCode::kEnvironment, "te_calls", "the device is of another compute capability");
  const auto info = engine::te::library_info();
  if (!info.problem.empty()) fail(ExitCode::kEnvironment, "te_calls", info.problem);
  std::printf("Transformer Engine %s on a fake CUDA device of capability %d\n",
              info.version.c_str(), capability);
  return Acceptance(capability).run();
}

}  // namespace octavo
