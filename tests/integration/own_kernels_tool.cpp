// Our own CUDA kernels through the engine, in a process on the fake CUDA device.
//   launches: AdamW of Llama-3.1-8B with low-bit state, and a cross-entropy; what the device
//   counted values: small ones, computed by the kernels' host bodies in the device's memory,
//   against the
//           reference; the device must have been told to compute

#include <ATen/ATen.h>

#include <cstdio>
#include <limits>
#include <string>
#include <vector>

#include "engine/aten/fp8_quantize.h"
#include "engine/devices.h"
#include "engine/own/own.h"
#include "engine/reference/reference.h"
#include "kernels/adamw_storage.h"
#include "own_kernels.h"

namespace octavo {
namespace {

using at::Tensor;
using engine::AdamW;
using engine::CrossEntropy;

AdamW::Moment moment_of(int64_t n, at::ScalarType type, at::Device device) {
  const at::TensorOptions options(device);
  return {
      at::zeros({n}, options.dtype(type)),
      type == at::kByte ? at::zeros({adamw::block_count(n)}, options.dtype(at::kFloat)) : Tensor()};
}

// The parameters of Llama-3.1-8B: matrices in the fewest bits, vectors with moments in FP32.
std::vector<AdamW::Update> updates_of_8b() {
  constexpr int64_t kWidth = 4096, kKeys = 1024, kInner = 14336, kTokens = 128256;
  std::vector<int64_t> matrices = {kTokens * kWidth, kTokens * kWidth}, vectors = {kWidth};
  for (int layer = 0; layer < 32; ++layer) {
    for (const int64_t n :
         {kWidth * (kWidth + 2 * kKeys), kWidth * kWidth, 2 * kInner * kWidth, kInner * kWidth})
      matrices.push_back(n);
    for (int norm = 0; norm < 2; ++norm) vectors.push_back(kWidth);
  }
  std::vector<AdamW::Update> updates;
  const auto add = [&](int64_t n, at::ScalarType type) {
    updates.push_back({empty_on_gpu({n}, at::kBFloat16),
                       moment_of(n, type, at::kCUDA),
                       moment_of(n, type, at::kCUDA),
                       empty_on_gpu({n}, at::kBFloat16),
                       Tensor(),
                       {.lr = 1e-3f}});
  };
  for (const int64_t n : matrices) add(n, at::kByte);
  for (const int64_t n : vectors) add(n, at::kFloat);
  return updates;
}

void count_launches() {
  const auto op = engine::own::make_adamw();
  std::vector<AdamW::Update> updates = updates_of_8b();
  print_counts("adamw_8b", [&] { op->step_all(updates); });
  const auto loss = engine::own::make_cross_entropy();
  Tensor logits = empty_on_gpu({512, 128256}, at::kBFloat16);
  const Tensor targets = empty_on_gpu({512}, at::kInt);
  print_counts("cross_entropy", [&] { loss->run(logits, targets, {.classes = 128256}); });
  const Tensor x = empty_on_gpu({8192, 4096}, at::kBFloat16);
  const Tensor codes = empty_on_gpu({8192, 4096}, at::kByte),
               decode = empty_on_gpu({1, 1}, at::kFloat);
  print_counts("fp8_stats", [&] {
    engine::aten::measure_plain(x, {codes, decode}, {.format = fp8::Format::kE4M3},
                                {8192, 4096, 1, 1});
  });
  count_layer_launches();
}

AdamW::Update update_on_gpu(const AdamW::Update& u) {
  return {on_gpu_copy(u.master),
          {on_gpu_copy(u.m.values), on_gpu_copy(u.m.scales)},
          {on_gpu_copy(u.v.values), on_gpu_copy(u.v.scales)},
          on_gpu_copy(u.grad),
          on_gpu_copy(u.compute),
          u.hyper};
}

// Three steps of parameters of every storage in one call.
void compare_adamw(Differences& differences) {
  std::vector<AdamW::Update> wanted, found;
  for (const auto master : {at::kFloat, at::kBFloat16})
    for (const auto moments : {at::kFloat, at::kBFloat16, at::kByte})
      for (const auto gradient : {at::kFloat, at::kBFloat16})
        for (const int64_t n : {1, 130, 17000}) {
          wanted.push_back({at::randn({n}).to(master),
                            moment_of(n, moments, at::kCPU),
                            moment_of(n, moments, at::kCPU),
                            (at::randn({n}) * 0.1).to(gradient),
                            master == at::kFloat ? at::zeros({n}, at::kBFloat16) : Tensor(),
                            {.lr = 1e-2f,
                             .weight_decay = 0.1f,
                             .grad_scale = 0.5f,
                             .seed = 3,
                             .stream = static_cast<uint64_t>(n),
                             .first = 128 * n}});
          found.push_back(update_on_gpu(wanted.back()));
        }
  const auto reference = engine::reference::make_adamw(), own = engine::own::make_adamw();
  for (int64_t step = 1; step <= 3; ++step) {
    for (auto* list : {&wanted, &found})
      for (AdamW::Update& u : *list) u.hyper.step = step;
    reference->step_all(wanted);
    own->step_all(found);
  }
  for (size_t i = 0; i < wanted.size(); ++i) {
    const AdamW::Update &a = found[i], &b = wanted[i];
    differences.check(same_bytes(a.master, b.master) && same_bytes(a.compute, b.compute) &&
                          same_bytes(a.m.values, b.m.values) &&
                          same_bytes(a.v.values, b.v.values) &&
                          same_bytes(a.m.scales, b.m.scales) && same_bytes(a.v.scales, b.v.scales),
                      str("AdamW, case ", i));
  }
}

void compare_cross_entropy(Differences& differences) {
  for (const int64_t classes : {int64_t{37}, int64_t{2500}}) {
    const CrossEntropy::Options options{
        .classes = classes, .grad_scale = 0.25f, .z_weight = 1e-3f, .want_gradient = true};
    Tensor wanted = (at::randn({9, classes + 5}) * 3).to(at::kBFloat16),
           found = wanted.to(at::kCUDA);
    Tensor targets = at::randint(classes, {9}, at::kInt);
    targets[4] = -1;
    const Tensor sums = engine::reference::make_cross_entropy()->run(wanted, targets, options);
    const Tensor own =
        engine::own::make_cross_entropy()->run(found, targets.to(at::kCUDA), options).cpu();
    differences.check(at::allclose(own, sums, 1e-6, 1e-6), str("cross-entropy of ", classes));
    differences.check(at::allclose(found.cpu().to(at::kFloat), wanted.to(at::kFloat), 0x1p-8, 1e-6),
                      str("its gradient of ", classes));
  }
}

// Of every kind of grid. The reference is libtorch's composition on the CPU.
void compare_fp8_stats(Differences& differences) {
  const int64_t rows = 130, columns = 264;
  Tensor x =
      (at::randn({rows, columns}) * at::pow(2.0, at::randn({rows, columns}) * 8)).to(at::kBFloat16);
  x[3][5] = std::numeric_limits<float>::quiet_NaN();
  x[7].fill_(0);
  for (const fp8::Format format : {fp8::Format::kE4M3, fp8::Format::kE5M2})
    for (const fp8::Grid& grid : {fp8::Grid{rows, columns, 1, 1}, fp8::Grid{1, 128, rows, 3},
                                  fp8::Grid{128, 128, 2, 3}, fp8::Grid{32, 1, 5, columns}}) {
      const Tensor decode =
          at::pow(2.0, at::randint(-3, 4, {grid.grid_rows, grid.grid_columns})).to(at::kFloat);
      const Tensor factors = engine::aten::spread(decode, grid, rows, columns);
      const Tensor codes = (x.to(at::kFloat) / factors)
                               .clamp(-448, 448)
                               .to(engine::aten::dtype_of(format))
                               .view(at::kByte);
      const fp8::Side side{.format = format};
      const Tensor wanted = engine::aten::measure_plain(x, {codes, decode}, side, grid);
      const Tensor found =
          engine::aten::measure_plain(on_gpu_copy(x), {on_gpu_copy(codes), on_gpu_copy(decode)},
                                      side, grid)
              .cpu();
      differences.check(at::equal(found.narrow(0, 0, 8), wanted.narrow(0, 0, 8)) &&
                            at::allclose(found.narrow(0, 8, 2), wanted.narrow(0, 8, 2), 1e-6, 0),
                        str("FP8 statistics, blocks of ", grid.block_rows, " x ",
                            grid.block_columns, ": ", found, " for ", wanted));
    }
}

int compare_values() {
  at::manual_seed(1);
  Differences differences;
  compare_adamw(differences);
  compare_cross_entropy(differences);
  compare_fp8_stats(differences);
  compare_layers(differences);
  std::printf("cases=%d failed=%d\n", differences.cases, differences.failed);
  return differences.failed == 0 && differences.cases > 0 ? 0 : 1;
}

int run_tool(const std::string& mode) {
  if (!fake_cuda::is_active())
    fail(ExitCode::kUsage, "own_kernels", "wanted a process on the fake CUDA device");
  const at::NoGradGuard no_grad;
  if (engine::gpus().gpus.empty())
    fail(ExitCode::kEnvironment, "own_kernels", engine::gpus().reason);
  const engine::Target target{.device = at::Device(at::kCUDA, 0), .capability = 90};
  if (const std::string reason = engine::own::refusal(target); !reason.empty()) {
    std::printf("skipped: %s\n", reason.c_str());
    return 0;
  }
  if (mode == "values") return compare_values();
  count_launches();
  return 0;
}

}  // namespace
}  // namespace octavo

int main(int argc, char** argv) {
  try {
    return octavo::run_tool(argc > 1 ? argv[1] : "launches");
  } catch (const std::exception& error) {
    std::fprintf(stderr, "own_kernels_tool: %s\n", error.what());
    return 1;
  }
}
