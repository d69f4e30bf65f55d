// NVFP4: which copies and scales each GEMM reads, as what, and by which kernels they were made.

#include <string>
#include <vector>

#include "engine/padded_fp8_linear.h"
#include "fake_cuda/fake_cuda.h"
#include "fp8/legality.h"
#include "named_recipe.h"
#include "te_accept.h"

namespace octavo {

using at::Tensor;
using engine::Accumulate;
using engine::Fp8Copy;
using engine::Fp8Matrix;
using fp8::Direction;
using fp8::FormatChoice;
using fp8::Recipe;
using fp8::Role;

namespace {

constexpr int32_t kTransposed = 1, kAsItIs = 0;  // cublasOperation_t
constexpr int32_t kBlocksOf16 = 1;               // CUBLASLT_MATMUL_MATRIX_SCALE_VEC16_UE4M3

// Codes [across, along / 2] and block scales, with the sum along the rows.
std::string difference(const char* which, const fake_cuda::GemmOperand& found, const Fp8Copy& copy,
                       int32_t op) {
  if (found.type != kCudaE2M1) return str(which, " has the type ", found.type);
  if (found.op != op) return str(which, " has the operation ", found.op);
  if (found.scale_mode != kBlocksOf16) return str(which, " has the scale mode ", found.scale_mode);
  if (found.data != copy.codes.const_data_ptr()) return str(which, ": other codes");
  if (found.scale != copy.scales.const_data_ptr()) return str(which, ": other scales");
  const int64_t across = copy.codes.size(0), along = 2 * copy.codes.size(1);
  if (found.rows != along || found.cols != across || found.ld != along)
    return str(which, ": ", found.rows, " x ", found.cols, " apart by ", found.ld);
  return "";
}

std::vector<std::string> launched() {
  const fake_cuda::Api& device = *fake_cuda::api();
  std::vector<fake_cuda::Event> events(device.events(nullptr, 0, 0));
  device.events(events.data(), 0, events.size());
  std::vector<std::string> names;
  for (const fake_cuda::Event& event : events)
    if (event.kind == fake_cuda::Kind::kLaunch) names.emplace_back(event.name);
  return names;
}

}  // namespace

void Acceptance::nvfp4_operands(int64_t tokens) {
  const Recipe recipe = named_recipe("nvfp4");
  constexpr auto kFormat = FormatChoice::kE4m3;
  const int64_t inputs = 256, outputs = 384;
  const Fp8Matrix x = quantized(recipe, kFormat, Role::kInput, tokens, inputs),
                  w = quantized(recipe, kFormat, Role::kWeight, outputs, inputs),
                  dy = quantized(recipe, kFormat, Role::kGradient, tokens, outputs);
  Tensor y = bf16({x.rows, outputs}), dx = bf16({x.rows, inputs}), dw = fp32({outputs, inputs});
  auto& linear = *engine_.fp8_linear;
  const auto reads = [&](const char* name, const Fp8Copy& a, const Fp8Copy& b,
                         const std::function<void()>& call) {
    cases_.run(str("nvfp4, ", tokens, " tokens, operands of the ", name), [&]() -> std::string {
      const fake_cuda::Api& device = *fake_cuda::api();
      const uint64_t before = device.gemms(nullptr, 0, 0);
      call();
      fake_cuda::Gemm gemm{};
      if (device.gemms(&gemm, before, 1) != before + 1) return "wanted one GEMM";
      const std::string wrong = difference("a", gemm.a, a, kTransposed);
      return wrong.empty() ? difference("b", gemm.b, b, kAsItIs) : wrong;
    });
  };
  reads("forward GEMM", w.row, x.row, [&] { linear.forward(x, w, {}, y); });
  reads("input gradient", w.column, dy.row, [&] { linear.input_gradient(dy, w, dx); });
  reads("weight gradient", x.column, dy.column,
        [&] { linear.weight_gradient(dy, x, dw, Accumulate::kAdd); });
}

// The kernels that make the copies of each matrix, in their order.
void Acceptance::nvfp4_launches() {
  const auto check = [&](Role role, const std::vector<std::string>& wanted) {
    cases_.run(str("nvfp4, kernels for ", fp8::name_of(role)), [&]() -> std::string {
      quantized(named_recipe("nvfp4"), FormatChoice::kE4m3, role, 128,
                256);  // compiles and allocates
      fake_cuda::api()->reset();
      quantized(named_recipe("nvfp4"), FormatChoice::kE4m3, role, 128, 256);
      const std::vector<std::string> found = launched();
      bool same = found.size() == wanted.size();
      for (size_t i = 0; same && i < found.size(); ++i)
        same = found[i].find(wanted[i]) != std::string::npos;
      std::string all;
      for (const std::string& name : found) all += str("\n    ", name.substr(0, 150));
      return same ? "" : "other kernels:" + all;
    });
  };
  // The first argument of the kernel: whether it rounds at random.
  const std::string nearest = "tuned_1D_kernel<false", random = "tuned_1D_kernel<true";
  check(Role::kInput, {"ZeroAmaxKernel", "HadamardAmaxTmaKernel", nearest,
                       "HadamardTransformKernel", nearest, "swizzle", "swizzle"});
  check(Role::kWeight,
        {"zero_amax", "amax_kernel", "quantize_transpose_nvfp4_2D", "swizzle", "swizzle"});
  // Twice what draws are by: {seed, stream}.
  check(Role::kGradient, {"ZeroAmaxKernel", "HadamardAmaxTmaKernel", "elementwise", random,
                          "HadamardTransformKernel", "elementwise", random, "swizzle", "swizzle"});
}

void Acceptance::nvfp4() {
  if (!has(named_recipe("nvfp4"))) return;
  for (const int64_t tokens : {32, 77, 160, 4096}) nvfp4_operands(tokens);
  nvfp4_launches();
  cases_.refuses("nvfp4 of 48 columns", "multiples of 32", [&] {
    quantized(named_recipe("nvfp4"), FormatChoice::kE4m3, Role::kInput, 64, 48);
  });
  cases_.refuses("nvfp4 of 24 rows", "multiples of 32", [&] {
    engine::without_padding(*engine_.fp8_linear)
        .quantize(
            bf16({24, 64}), named_recipe("nvfp4"),
            order(named_recipe("nvfp4"), FormatChoice::kE4m3, Role::kInput, Direction::kRow, true),
            {});
  });
}

}  // namespace octavo
