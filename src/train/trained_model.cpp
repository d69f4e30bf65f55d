#include "train/trained_model.h"

#include <ATen/ATen.h>

#include <cmath>

#include "base/error.h"
#include "base/log.h"
#include "engine/devices.h"
#include "train/device.h"
#include "train/lora_run.h"

namespace octavo::train {
namespace {

optim::Options optimizer_options(const config::Settings& s) {
  using config::StateType;
  const auto moments = s.moment_dtype == StateType::kFp32   ? optim::MomentType::kFp32
                       : s.moment_dtype == StateType::kBf16 ? optim::MomentType::kBf16
                                                            : optim::MomentType::kFp8;
  return {.beta1 = s.beta1,
          .beta2 = s.beta2,
          .eps = s.adam_eps,
          .weight_decay = s.weight_decay,
          .max_grad_norm = s.max_grad_norm,
          .moments = moments,
          .seed = static_cast<uint64_t>(s.seed)};
}

// Where memory is short, a weight is quantized for each GEMM: 8B parameters take a GPU some 10
// ms and would fill 16 GB.
nn::WeightCopies weight_copies(const config::Settings& s, const dist::World& world,
                               at::Device device) {
  // Weights that come and go take their FP8 copies with them.
  if (dist::shards_of(s.sharding_mode, world).weights && world.size() > 1)
    return nn::WeightCopies::kKeep;
  if (device.is_cuda() && s.gradient_checkpointing) return nn::WeightCopies::kGemm;
  return s.gradient_accumulation_steps > 1 ? nn::WeightCopies::kKeep : nn::WeightCopies::kStep;
}

// Statistics of all ranks together.
std::function<void(const std::vector<fp8::TensorHealth*>&)> health_over(dist::World& world) {
  if (world.size() == 1) return {};
  return [&world](const std::vector<fp8::TensorHealth*>& all) {
    const auto count = static_cast<int64_t>(all.size());
    if (count == 0) return;
    at::Tensor sums = at::empty({count, 8}, at::kDouble), amaxes = at::empty({count}, at::kFloat);
    auto* sum = sums.mutable_data_ptr<double>();
    auto* amax = amaxes.mutable_data_ptr<float>();
    for (const fp8::TensorHealth* h : all) {
      const auto& i = h->incidents;
      for (const int64_t n : {h->elements, h->nonzero, i.nan, i.inf, i.saturated, i.underflowed})
        *sum++ = static_cast<double>(n);
      *sum++ = h->signal;
      *sum++ = h->noise;
      *amax++ = h->amax;
    }
    world.sum(sums, "FP8 statistics");
    world.max(amaxes, "FP8 statistics");
    sum = sums.mutable_data_ptr<double>();
    amax = amaxes.mutable_data_ptr<float>();
    for (fp8::TensorHealth* h : all) {
      auto& i = h->incidents;
      for (int64_t* n : {&h->elements, &h->nonzero, &i.nan, &i.inf, &i.saturated, &i.underflowed})
        *n = static_cast<int64_t>(*sum++);
      h->signal = *sum++;
      h->noise = *sum++;
      h->amax = *amax++;
    }
  };
}

}  // namespace

double TrainedModel::uniform_loss() const {
  return std::log(static_cast<double>(model->vocab_size()));
}

std::string TrainedModel::precision() const {
  // The guard may have moved every layer to BF16.
  const bool in_fp8 = fp8 != nullptr && fp8->layers_in_fp8() > 0;
  const std::string ran = !in_fp8                                    ? plain_precision()
                          : fp8_decision->runs == fp8::Runs::kNative ? "FP8"
                                                                     : "FP8 rehearsal";
  return has_numbers ? ran : ran + ", fake CUDA device";
}

std::string TrainedModel::plain_precision() const {
  return engine->target.compute == at::kBFloat16 ? "BF16" : "FP32";
}

TrainedModel on_device(const config::Settings& settings) {
  prepare_gpu_kernels(settings);
  TrainedModel trained;
  trained.engine = std::make_unique<engine::Engine>(target_of(settings));
  trained.has_numbers = !engine::is_fake(trained.device());
  return trained;
}

namespace {

// A cast that saturates can hide an infinity; delayed scaling finds it among its magnitudes.
nn::ProbeUse probe_use(const TrainedModel& trained, const std::optional<fp8::Decision>& decision) {
  const bool hides = decision && decision->runs != fp8::Runs::kBf16 &&
                     !fp8::uses_history(decision->options.recipe);
  return trained.device().is_cpu() || hides ? nn::ProbeUse::kEveryStep
                                            : nn::ProbeUse::kRepeatedSteps;
}

}  // namespace

void start_fp8(const config::Settings& s, dist::World& world, TrainedModel& trained) {
  trained.fp8_decision = decide_fp8(s);
  trained.probes.reset();  // before there are others: they are known to the layers
  trained.probes = std::make_unique<nn::Probes>(trained.model->linears(),
                                                probe_use(trained, trained.fp8_decision));
  if (!trained.fp8_decision) return;
  for (const auto& warning : trained.fp8_decision->warnings) log_warn(warning);
  if (trained.fp8_decision->runs == fp8::Runs::kBf16) return;
  trained.fp8 = std::make_unique<nn::Fp8Model>(
      *trained.engine, trained.model->linears(),
      nn::Fp8ModelOptions{.fp8 = trained.fp8_decision->options,
                          .skip = s.fp8_skip,
                          .tokens = s.batch_size * s.max_seq_length,
                          .passes = s.gradient_accumulation_steps,
                          .stats_freq = s.fp8_stats_freq,
                          .guard = s.fp8_guard,
                          .copies = weight_copies(s, world, trained.device()),
                          .seed = static_cast<uint64_t>(s.seed),
                          .over_ranks = health_over(world)});
}

namespace {

void start_sharding(const config::Settings& s, dist::World& world, TrainedModel& trained) {
  if (world.size() == 1) return;
  trained.sharding = std::make_unique<dist::Sharding>(
      world, all_params(trained), trained.model->linears(),
      dist::ShardingOptions{.mode = s.sharding_mode,
                            .reduce_dtype = s.grad_reduce_dtype == config::StateType::kBf16
                                                ? at::kBFloat16
                                                : at::kFloat,
                            .fp8_gather = s.fp8_all_gather,
                            .recompute = s.gradient_checkpointing});
  trained.model->set_gatherer(trained.sharding.get());
}

// The first rank reads the weights again, for their hash, and tells the others.
BaseModel describe_base(const config::Settings& s, const config::Settings& resolved,
                        dist::World& world, const models::Model& model) {
  Json described = Json::object();
  if (world.is_first()) save_base(base_of(s, resolved, model.hugging_face_config()), described);
  const std::string text = world.from_first(described.dump(), "the base of the adapters");
  BaseModel base = parse_base(parse_json(text, "the first rank"), "the first rank");
  if (base.kind == BaseModel::Kind::kRandom && s.resume.empty() && s.init_from.empty())
    log_warn(str("adapters: the weights beside them are random and stay so (", s.model_name,
                 " names a shape here); give weights with --init_from, or a model that has some, "
                 "such as --model_name openai-community/gpt2"));
  return base;
}

void check_router_keys(const config::Settings& s, const models::Model& model) {
  if (model.routing() != nullptr) return;
  for (const auto& [key, asked] : {std::pair{"router_aux_loss_coef", s.router_aux_loss_coef >= 0},
                                   std::pair{"router_z_loss_coef", s.router_z_loss_coef > 0}})
    if (asked)
      fail(ExitCode::kUsage, "train", key, ": wanted a model with experts, found ", s.model_name,
           ", which has no routers; leave the key out");
}

}  // namespace

TrainedModel build_model(const config::Settings& s, const config::Settings& resolved,
                         dist::World& world, int64_t vocab, Weights weights) {
  TrainedModel trained = on_device(s);
  nn::Storage storage = storage_of(s);
  storage.shards = dist::shards_of(s.sharding_mode, world);
  if (s.lora_rank > 0) weights = Weights::kOfSettings;  // a checkpoint has the adapters alone
  if (!trained.has_numbers) weights = Weights::kNone;
  trained.model = make_model(resolved, vocab, *trained.engine, storage, weights);
  check_router_keys(s, *trained.model);
  if (s.lora_rank > 0 && trained.has_numbers)
    trained.base = describe_base(s, resolved, world, *trained.model);
  start_lora(s, trained);
  trained.optimizer =
      optim::make("adamw", *trained.engine, trained_params(trained), optimizer_options(s));
  log_info(
      str("bytes per parameter: ", std::round(100 * trained.optimizer->bytes_per_parameter()) / 100,
          " (master ", name_of(s.master_dtype), ", moments ", name_of(s.moment_dtype),
          ", gradients ", name_of(s.gradient_dtype), ")"));
  start_fp8(s, world, trained);
  start_sharding(s, world, trained);
  return trained;
}

}  // namespace octavo::train
