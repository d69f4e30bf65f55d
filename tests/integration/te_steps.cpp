// Whole training steps through src/engine/te with the stand-in for its library, against the same
// steps of the CPU's rehearsal: every gradient, weight, moment, scaling factor and statistic in
// every bit.

#include <ATen/ATen.h>
#include <dlfcn.h>

#include <cmath>
#include <map>

#include "base/log.h"
#include "base/random.h"
#include "engine/te/te.h"
#include "fp8/execution.h"
#include "model_config/presets.h"
#include "te_cases.h"
#include "te_conventions.h"
#include "te_double/te_double_counts.h"
#include "train/lora_run.h"
#include "train/run.h"
#include "train/step.h"

namespace octavo {
namespace {

using config::Fp8Format;
using config::Fp8Recipe;

constexpr int64_t kVocabulary = 256;

class HashedTokens final : public data::TokenData {
 public:
  uint64_t tokens() const override { return uint64_t{1} << 30; }
  int64_t vocab_size() const override { return kVocabulary; }
  std::string tokenizer_name() const override { return "hashed"; }
  std::string tokenizer_fingerprint() const override { return "hashed"; }
  std::string fingerprint() const override { return "hashed"; }
  void read(uint64_t begin, std::span<int32_t> out) const override {
    for (size_t i = 0; i < out.size(); ++i)
      out[i] = static_cast<int32_t>(mix64(begin + i + 1) % kVocabulary);
  }
};

enum class Trains { kAll, kAdapters, kRecomputed };
constexpr Trains kWays[] = {Trains::kAll, Trains::kAdapters, Trains::kRecomputed};

struct Step {
  std::string model;  // "gpt2", "llama", "qwen2"
  Fp8Recipe recipe = {};
  Fp8Format format = {};
  Trains trains = Trains::kAll;
  int64_t length = 80;
  bool fp8 = true;  // false: in BF16, with the library's norms, activations and RoPE
  // Of nvfp4: what its keys turn off.
  bool hadamard = true, stochastic_rounding = true, weight_blocks = true;
  std::string name() const {
    if (!fp8) return model + ", BF16";
    return str(model, ", ", config::name_of(recipe), ", ", config::name_of(format), ", ",
               2 * length, " tokens",
               trains == Trains::kAdapters     ? ", adapters"
               : trains == Trains::kRecomputed ? ", recomputed"
                                               : "",
               hadamard ? "" : ", no Hadamard transform", stochastic_rounding ? "" : ", to nearest",
               weight_blocks ? "" : ", 1 x 16 weights");
  }
};

void start_fp8(const Step& step, bool te, train::Run& run) {
  run.trained.fp8_decision =
      fp8::Decision{.runs = fp8::Runs::kRehearsal,
                    .backend = te ? "te" : "rehearsal",
                    .options = {.recipe = step.recipe,
                                .format = step.format,
                                .history = 4,
                                .hadamard = step.hadamard,
                                .stochastic_rounding = step.stochastic_rounding,
                                .weight_blocks = step.weight_blocks}};
  run.trained.fp8 = std::make_unique<nn::Fp8Model>(
      *run.trained.engine, run.trained.model->linears(),
      nn::Fp8ModelOptions{.fp8 = run.trained.fp8_decision->options,
                          .skip = {"none"},
                          .tokens = run.settings.batch_size * run.settings.max_seq_length,
                          .stats_freq = 2,
                          .guard = config::Fp8Guard::kLog,
                          .copies = run.settings.gradient_accumulation_steps > 1
                                        ? nn::WeightCopies::kKeep
                                        : nn::WeightCopies::kStep});
}

std::unique_ptr<models::Model> make_model(const Step& step, const engine::Engine& engine) {
  const nn::Storage storage{.trainable = step.trains != Trains::kAdapters};
  if (step.model == "gpt2")
    return models::make(
        model_config::gpt2(
            {.layers = 2, .heads = 4, .width = 128, .vocab = kVocabulary, .context = 128}),
        engine, storage);
  const bool qwen = step.model == "qwen2";
  model_config::ModelConfig sizes{
      .family = qwen ? &model_config::kQwen2Family : &model_config::kLlamaFamily,
      .layers = 2,
      .width = 128,
      .mlp = 384,
      .heads = 4,
      .kv_heads = 2,
      .head_dim = 32,
      .vocab = kVocabulary,
      .context = 128,
      .rope = {.theta = 500000, .scaling = {}}};
  sizes.qkv_bias = sizes.tied = qwen;
  return models::make(sizes, engine, storage);
}

// 160 tokens: five blocks of 32, and one and a quarter of 128. 154: none is full without padding.
std::unique_ptr<train::Run> make_run(const Step& step, bool te) {
  auto run = std::make_unique<train::Run>();
  auto& s = run->settings;
  s.batch_size = 2;
  s.max_seq_length = step.length;
  // Two micro-batches add gradients up; GPT-2 has one, because bias gradients add up in another
  // order when they come out of a fused pass.
  s.gradient_accumulation_steps = step.model == "llama" ? 2 : 1;
  s.learning_rate = 1e-2;
  engine::Target target;
  if (te && step.fp8) target.fp8 = engine::Fp8Kernels::kTransformerEngine;
  target.te_operations = te;
  run->trained.engine = std::make_unique<engine::Engine>(target);
  if (!te) take_conventions(*run->trained.engine);
  run->trained.model = make_model(step, *run->trained.engine);
  run->trained.model->set_gradient_checkpointing(step.trains == Trains::kRecomputed);
  run->trained.model->initialize(1);
  run->trained.probes = std::make_unique<nn::Probes>(run->trained.model->linears());
  if (step.trains == Trains::kAdapters) {
    s.lora_rank = 16;
    train::start_lora(s, run->trained);
  }
  run->trained.optimizer = optim::make("adamw", *run->trained.engine, trained_params(run->trained),
                                       optim::Options{.max_grad_norm = 1});
  run->data.train = std::make_shared<HashedTokens>();
  run->data.loader = std::make_unique<data::Loader>(
      run->data.train, data::Loader::Options{.rows = s.batch_size, .length = s.max_seq_length},
      data::Position{});
  run->schedule = {
      .max_lr = s.learning_rate, .min_lr_ratio = 1, .warmup_steps = 0, .max_steps = 100};
  if (step.fp8) start_fp8(step, te, *run);
  return run;
}

// Everything that a step leaves behind, by name.
std::map<std::string, at::Tensor> state_of(const train::Run& run) {
  std::map<std::string, at::Tensor> all;
  for (const auto& p : all_params(run.trained)) {
    all[p->name] = p->master;
    all["gradient of " + p->name] = p->grad;
    all["compute copy of " + p->name] = p->compute;
  }
  for (const auto& [name, tensor] : run.trained.optimizer->state()) all[name] = tensor;
  if (run.trained.fp8 != nullptr)
    for (const auto& [name, tensor] : run.trained.fp8->state()) all[name] = tensor;
  return all;
}

std::string difference(const train::Run& te, const train::Run& rehearsal) {
  const auto a = state_of(te), b = state_of(rehearsal);
  if (a.size() != b.size()) return str(a.size(), " tensors, wanted ", b.size());
  int64_t compared = 0;
  for (const auto& [name, tensor] : a) {
    const auto other = b.find(name);
    if (other == b.end()) return "no " + name;
    if (!tensor.defined() && !other->second.defined()) continue;
    if (tensor.scalar_type() != other->second.scalar_type() || !at::equal(tensor, other->second))
      return str(
          name, " differs: by ",
          (tensor.to(at::kDouble) - other->second.to(at::kDouble)).abs().max().item<double>());
    ++compared;
  }
  return compared > 0 ? "" : "nothing was compared";
}

std::string health_difference(const monitor::StepRecord& a, const monitor::StepRecord& b) {
  if (a.loss != b.loss) return str("loss ", a.loss, ", wanted ", b.loss);
  if (a.fp8_tensors.size() != b.fp8_tensors.size())
    return str(a.fp8_tensors.size(), " statistics, wanted ", b.fp8_tensors.size());
  for (size_t i = 0; i < a.fp8_tensors.size(); ++i) {
    const auto &x = a.fp8_tensors[i], &y = b.fp8_tensors[i];
    if (x.layer != y.layer || x.tensor != y.tensor) return "statistics of another tensor";
    // By other kernels, which do not round the product of code and scale to FP32, and sum in
    // another order.
    const auto near = [](double a, double b, double slack) { return std::abs(a - b) <= slack; };
    const double noise = 1e-4 * y.health.noise + 0x1p-40 * y.health.signal;
    if (x.health.amax != y.health.amax || x.health.factor != y.health.factor ||
        x.health.incidents != y.health.incidents || x.health.nonzero != y.health.nonzero ||
        !near(x.health.noise, y.health.noise, noise) ||
        !near(x.health.signal, y.health.signal, 1e-9 * y.health.signal))
      return str("statistics of ", x.layer, " ", x.tensor);
  }
  return "";
}

// The stand-in's own counts.
struct Counts {
  decltype(&octavo_te_double_calls) calls;
  decltype(&octavo_te_double_handles) handles;
};
Counts counts() {
  void* library = dlopen(std::getenv("OCTAVO_TE_LIBRARY"), RTLD_NOW | RTLD_NOLOAD);
  return {reinterpret_cast<decltype(Counts::calls)>(dlsym(library, "octavo_te_double_calls")),
          reinterpret_cast<decltype(Counts::handles)>(dlsym(library, "octavo_te_double_handles"))};
}

std::string compare(const Step& step) {
  const auto te = make_run(step, true), rehearsal = make_run(step, false);
  for (const engine::Choice& choice : te->trained.engine->choices) {
    const bool theirs = choice.op == "layer_norm" || choice.op == "rms_norm" ||
                        choice.op == "gelu" || choice.op == "swiglu" || choice.op == "rope" ||
                        (choice.op == "fp8_linear" && step.fp8);
    if ((choice.implementation == "te") != theirs)
      return str(choice.op, " runs by ", choice.implementation);
  }
  if (step.fp8 &&
      te->trained.fp8->layers_in_fp8() != static_cast<int64_t>(te->trained.model->linears().size()))
    return "not every layer is in FP8";
  const auto before = counts().calls("nvte_cublas_gemm_v2");
  for (int i = 1; i <= 3; ++i) {
    const auto a = train::train_step(*te), b = train::train_step(*rehearsal);
    std::string wrong = health_difference(a, b);
    if (wrong.empty()) wrong = difference(*te, *rehearsal);
    if (!wrong.empty()) return str("step ", i, ": ", wrong);
  }
  // Forward, input gradient and weight gradient of each layer. Passes that are done again have
  // another forward; frozen weights have no gradient, and the first layer's input needs none.
  const auto layers = static_cast<int64_t>(te->trained.model->linears().size());
  const int64_t of_pass = step.trains == Trains::kAll          ? 3 * layers
                          : step.trains == Trains::kRecomputed ? 4 * layers
                                                               : 2 * layers - 1;
  const auto wanted = static_cast<unsigned long>(
      step.fp8 ? 3 * of_pass * te->settings.gradient_accumulation_steps : 0);
  const auto gemms = counts().calls("nvte_cublas_gemm_v2") - before;
  if (gemms != wanted) return str(gemms, " GEMMs, wanted ", wanted);
  return "";
}

// The copies that come of a row copy that travelled are those that quantizing makes.
std::string adopted() {
  engine::Target target;
  target.fp8 = engine::Fp8Kernels::kTransformerEngine;
  const engine::Engine engine(target);
  const Fp8Recipe recipe = fp8::recipe_with(fp8::ScaleRule::kTe);
  const auto order = [&](fp8::Direction direction) {
    return engine::QuantizeSpec{
        .side = side_of(recipe, Fp8Format::kE4m3, fp8::Role::kWeight, direction), .wanted = true};
  };
  const at::Tensor w = at::randn({96, 160}).to(at::kBFloat16);
  const engine::Fp8Matrix made = engine.fp8_linear->quantize(w, recipe, order(fp8::Direction::kRow),
                                                             order(fp8::Direction::kColumn));
  engine::Fp8Matrix found = made;
  found.row = found.column = {};
  engine.fp8_linear->adopt_part(made.row, fp8::Direction::kRow, /*both=*/true, found);
  for (const fp8::Direction d : {fp8::Direction::kRow, fp8::Direction::kColumn})
    if (!at::equal(found.copy(d).codes, made.copy(d).codes) ||
        !at::equal(found.copy(d).scales, made.copy(d).scales))
      return "they differ";
  return "";
}

}  // namespace

int check_steps(bool all) {
  set_log_level(LogLevel::kError);
  const auto info = engine::te::library_info();
  if (!info.problem.empty()) fail(ExitCode::kEnvironment, "te_calls", info.problem);
  const char* text = std::getenv("OCTAVO_TE_DOUBLE_CAPABILITY");
  const int capability = text != nullptr ? std::atoi(text) : 90;
  const fp8::Device device{.is_gpu = true,
                           .major = capability / 10,
                           .minor = capability % 10,
                           .has_te = true,
                           .name = {}};
  Cases cases(str("stand-in of capability ", capability));
  const std::string models[] = {"gpt2", "llama", "qwen2"};
  for (size_t m = 0; m < std::size(models); ++m) {
    const Step in_bf16{.model = models[m], .fp8 = false};
    cases.run(in_bf16.name(), [&] { return compare(in_bf16); });
    for (const fp8::RecipeTraits& row : fp8::kRecipeTraits)
      for (const Trains trains : kWays)
        for (const Fp8Format format : {Fp8Format::kHybrid, Fp8Format::kE4m3, Fp8Format::kE5m2}) {
          const bool usual =
              format == fp8::default_format(row.recipe) && (all || trains == kWays[m]);
          if (!row.in_transformer_engine || !fp8::has_native(device, row.recipe) ||
              !(usual || (all && row.chooses_format && trains == Trains::kAll)))
            continue;
          for (const int64_t length : {80, 77}) {
            const Step step{models[m], row.recipe, format, trains, length};
            cases.run(step.name(), [&] { return compare(step); });
          }
        }
  }
  const Fp8Recipe fp4 = fp8::recipe_with(fp8::ScaleRule::kNvfp4);
  const bool has_fp4 = fp8::has_native(device, fp4);
  for (const int off : {1, 2, 4, 7}) {  // one by one, and all of them
    if (!has_fp4) break;
    const Step step{.model = "llama",
                    .recipe = fp4,
                    .format = fp8::default_format(fp4),
                    .hadamard = (off & 1) == 0,
                    .stochastic_rounding = (off & 2) == 0,
                    .weight_blocks = (off & 4) == 0};
    cases.run(step.name(), [&] { return compare(step); });
  }
  cases.run("codes that were gathered", [&] { return adopted(); });
  std::vector<const char*> called = {"nvte_quantize_v2",
                                     "nvte_compute_amax_with_config",
                                     "nvte_compute_scale_from_amax",
                                     "nvte_delayed_scaling_recipe_amax_and_scale_update",
                                     "nvte_layernorm_fwd",
                                     "nvte_layernorm_bwd",
                                     "nvte_rmsnorm_fwd",
                                     "nvte_rmsnorm_bwd",
                                     "nvte_rmsnorm_bwd_add",
                                     "nvte_gelu",
                                     "nvte_dgelu",
                                     "nvte_swiglu",
                                     "nvte_dswiglu",
                                     "nvte_quantize_dbias_dgelu",
                                     "nvte_fused_rope_forward",
                                     "nvte_fused_rope_backward"};
  if (has_fp4)
    called.insert(called.end(), {"nvte_hadamard_transform", "nvte_hadamard_transform_amax",
                                 "nvte_swizzle_scaling_factors"});
  // Where GEMMs want transposed copies.
  if (capability < 100 || capability >= 120)
    called.insert(called.end(), {"nvte_multi_cast_transpose", "nvte_transpose"});
  for (const char* function : called)
    cases.run(str("calls of ", function), [&] {
      return counts().calls(function) > 0 ? std::string() : std::string("there were none");
    });
  if (capability < 100)
    cases.run("SwiGLU's gradient and both its copies in one pass", [&] {
      return counts().calls("nvte_dswiglu_cast_transpose") > 0 ? std::string() : "there were none";
    });
  if (capability >= 100 && capability < 120)
    cases.run("blocks of 128 as blocks of 32", [] {
      const auto count = counts().calls("nvte_swizzle_block_scaling_to_mxfp8_scaling_factors");
      return count > 0 ? std::string() : std::string("there were none");
    });
  cases.run("handles that are left", [] {
    const auto left = counts().handles();
    return left == 0 ? std::string() : str(left, " of them");
  });
  return cases.finish();
}

}  // namespace octavo
