// The C++ side of fp8_gemm.py. Jobs come as lines on stdin, each is answered by a line "done". IN
// and OUT are safetensors files; T tokens, I inputs, O outputs.
//   gemms RECIPE FORMAT IN OUT
//       IN: x[T,I], w[O,I], dy[T,O] (BF16), bias[O] (FP32, may be missing), and for delayed
//       factor.ROLE.DIRECTION (FP32 [1]). OUT: y, dx (BF16), dw (FP32), and what was quantized, as
//       ROLE.DIRECTION.{codes,scales,values}.
//   train LAYER RECIPE FORMAT IN OUT
//       LAYER: linear or linear_gelu. IN: w.S (FP32) and bias.S of each step S; x.S.M and dy.S.M of
//       each micro-batch M, after each of which delayed scales are updated. OUT: y.S.M, dx.S.M,
//       dw.S, db.S, and the state of delayed scaling after each step as S.NAME.

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <iostream>
#include <span>
#include <sstream>

#include "checkpoint/safetensors.h"
#include "engine/padded_fp8_linear.h"
#include "nn/fp8_model.h"
#include "nn/layers.h"
#include "tool_main.h"

namespace octavo {
namespace {

using at::Tensor;
using checkpoint::NamedTensors;
using checkpoint::SafetensorsReader;
using engine::Fp8Matrix;
using engine::QuantizeSpec;
using fp8::Direction;
using fp8::Role;

template <typename Enum>
Enum named(const std::string& name, std::span<const Enum> choices) {
  for (const Enum choice : choices)
    if (config::name_of(choice) == name) return choice;
  fail(ExitCode::kUsage, "fp8_gemm_tool", "wanted a recipe and a format, found '", name, "'");
}

fp8::Options options_of(const std::string& recipe, const std::string& format) {
  using fp8::FormatChoice;
  constexpr FormatChoice kFormats[] = {FormatChoice::kHybrid, FormatChoice::kE4m3,
                                       FormatChoice::kE5m2};
  return {.recipe = named<fp8::Recipe>(recipe, fp8::kRecipes),
          .format = named<FormatChoice>(format, kFormats)};
}

class Gemms {
 public:
  Gemms(const engine::Engine& engine, const fp8::Options& options, const SafetensorsReader& in)
      : fp8_(engine::without_padding(*engine.fp8_linear)), options_(options), in_(in) {}

  // Ordered as a layer orders them.
  NamedTensors run() {
    const Tensor x_in = in_.tensor("x"), w_in = in_.tensor("w"), dy_in = in_.tensor("dy");
    const Fp8Matrix x = quantize(x_in, Role::kInput, true);
    const Fp8Matrix w = quantize(w_in, Role::kWeight, false);
    const Fp8Matrix dy = quantize(dy_in, Role::kGradient, false);
    Tensor y = at::empty_like(dy_in), dx = at::empty_like(x_in);
    Tensor dw = at::full(w_in.sizes(), NAN, at::kFloat);
    fp8_.forward(x, w, in_.tensors().contains("bias") ? in_.tensor("bias") : Tensor(), y);
    fp8_.input_gradient(dy, w, dx);
    fp8_.weight_gradient(dy, x, dw, engine::Accumulate::kOverwrite);
    out_.insert(out_.end(), {{"y", y}, {"dx", dx}, {"dw", dw}});
    return out_;
  }

 private:
  QuantizeSpec order(Role role, Direction direction, bool keep) const {
    QuantizeSpec made{.side = side_of(options_.recipe, options_.format, role, direction),
                      .wanted = true,
                      .keep = keep,
                      .factor = {},
                      .amax = {}};
    if (fp8::uses_history(options_.recipe))
      made.factor = in_.tensor("factor." + name(role, direction));
    return made;
  }

  Fp8Matrix quantize(const Tensor& values, Role role, bool keep) {
    const Fp8Matrix made =
        fp8_.quantize(values, options_.recipe, order(role, Direction::kRow, false),
                      order(role, Direction::kColumn, keep));
    tell(name(role, Direction::kRow), made.row);
    tell(name(role, Direction::kColumn), made.column);
    return made;
  }

  static std::string name(Role role, Direction direction) {
    static constexpr std::array<const char*, 3> kRoles = {"input", "weight", "gradient"};
    return str(kRoles[static_cast<size_t>(role)],
               direction == Direction::kRow ? ".row" : ".column");
  }

  void tell(const std::string& name, const engine::Fp8Copy& copy) {
    for (const auto& [what, tensor] :
         {std::pair{".codes", copy.codes}, {".scales", copy.scales}, {".values", copy.values}})
      if (tensor.defined()) out_.emplace_back(name + what, tensor);
  }

  engine::Fp8Linear& fp8_;
  fp8::Options options_;
  const SafetensorsReader& in_;
  NamedTensors out_;
};

class Training {
 public:
  Training(const engine::Engine& engine, const std::string& kind, const fp8::Options& options,
           const SafetensorsReader& in)
      : engine_(engine), with_gelu_(kind == "linear_gelu"), in_(in) {
    const Tensor w = in.tensor("w.1");
    weight_ = nn::make_param("layer.weight", w.sizes(), at::kBFloat16, true, at::kCPU);
    bias_ = nn::make_param("layer.bias", {w.size(0)}, at::kBFloat16, false, at::kCPU);
    layer_ = nn::make_linear("layer", 0, weight_, bias_);
    model_ =
        std::make_unique<nn::Fp8Model>(engine, nn::LinearList{layer_},
                                       nn::Fp8ModelOptions{.fp8 = options,
                                                           .skip = {},
                                                           .tokens = in.tensor("x.1.1").size(0),
                                                           .stats_freq = 0,
                                                           .guard = config::Fp8Guard::kOff});
  }

  NamedTensors run() {
    for (int64_t s = 1; in_.tensors().contains(str("w.", s)); ++s) step(s);
    for (const nn::Gemm gemm : nn::kGemms)
      if (layer_->gemm_counts[static_cast<size_t>(gemm)].other != 0)
        fail(ExitCode::kGuard, "fp8_gemm_tool", "the ", name_of(gemm), " did not run in FP8");
    return out_;
  }

 private:
  void step(int64_t s) {
    {
      const at::NoGradGuard no_grad;
      weight_->master.copy_(in_.tensor(str("w.", s)));
      bias_->master.copy_(in_.tensor(str("bias.", s)));
    }
    nn::refresh_compute({weight_, bias_});
    for (const auto& p : {weight_, bias_}) {
      p->grad.fill_(NAN);  // a fresh gradient must be overwritten
      p->grad_fresh = true;
    }
    model_->begin_step(s);
    for (int64_t m = 1; in_.tensors().contains(str("x.", s, ".", m)); ++m) {
      if (m > 1) model_->finish_pass();
      micro_batch(str(s, ".", m));
    }
    model_->finish_step();
    out_.emplace_back(str("dw.", s), weight_->grad.clone());
    out_.emplace_back(str("db.", s), bias_->grad.clone());
    for (const auto& [name, tensor] : model_->state()) out_.emplace_back(str(s, ".", name), tensor);
  }

  void micro_batch(const std::string& number) {
    const Tensor x = in_.tensor("x." + number).clone().set_requires_grad(true);
    const Tensor y =
        with_gelu_ ? nn::linear_gelu(engine_, x, layer_) : nn::linear(engine_, x, layer_);
    out_.emplace_back("y." + number, y.detach().clone());
    // A copy, because a node may overwrite the gradient it is given.
    torch::autograd::backward({y}, {in_.tensor("dy." + number).clone()});
    out_.emplace_back("dx." + number, x.grad());
  }

  const engine::Engine& engine_;
  bool with_gelu_;
  const SafetensorsReader& in_;
  nn::ParamPtr weight_, bias_;
  nn::LinearPtr layer_;
  std::unique_ptr<nn::Fp8Model> model_;
  NamedTensors out_;
};

NamedTensors run(const engine::Engine& engine, const std::vector<std::string>& job) {
  const std::string verb = job.empty() ? "" : job[0];
  if (verb == "gemms" && job.size() == 5)
    return Gemms(engine, options_of(job[1], job[2]), SafetensorsReader(job[3])).run();
  if (verb == "train" && job.size() == 6)
    return Training(engine, job[1], options_of(job[2], job[3]), SafetensorsReader(job[4])).run();
  fail(ExitCode::kUsage, "fp8_gemm_tool",
       "wanted gemms RECIPE FORMAT IN OUT | train LAYER RECIPE FORMAT IN OUT, found '", verb,
       "' and ", job.size(), " words");
}

void run_all() {
  const engine::Engine engine({.device = at::kCPU, .compute = at::kBFloat16});
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    const std::vector<std::string> job{std::istream_iterator<std::string>(words), {}};
    checkpoint::write_safetensors(job.empty() ? "" : job.back(), run(engine, job), {});
    std::cout << "done" << std::endl;
  }
}

}  // namespace
}  // namespace octavo

int main() {
  return octavo::tool_main([&] { octavo::run_all(); });
}
