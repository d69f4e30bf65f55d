#include <ATen/ATen.h>

#include <cmath>

#include "base/error.h"
#include "base/log.h"
#include "base/progress.h"
#include "dist/sharding.h"
#include "engine/devices.h"
#include "engine/trace.h"
#include "hub/hub.h"
#include "model_config/presets.h"
#include "train/batching/auto_batch.h"
#include "train/dataset.h"
#include "train/device.h"
#include "train/guards/output_check.h"
#include "train/lora_run.h"
#include "train/model_factory.h"
#include "train/run.h"
#include "train/run_length.h"
#include "train/run_schedule.h"
#include "train/state/persist.h"

namespace octavo::train {
namespace {

optim::AdamWOptions optimizer_options(const config::Settings& s) {
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
nn::WeightCopies weight_copies(const Run& run) {
  const auto& s = run.settings;
  // Weights that come and go take their FP8 copies with them.
  if (dist::shards_of(s.sharding_mode, run.world).weights && run.world.size() > 1)
    return nn::WeightCopies::kKeep;
  if (run.engine->target.device.is_cuda() && s.gradient_checkpointing)
    return nn::WeightCopies::kGemm;
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

dist::World connect(config::Settings& s) {
  const launch::RankInfo place = launch::rank_info_from_environment();
  if (place.ranks > 1 && s.sharding_mode == config::ShardingMode::kNone) {
    s.sharding_mode = config::ShardingMode::kDdp;
    log_info(str("sharding_mode: ddp, since there are ", place.ranks, " ranks"));
  }
  if (place.ranks == 1 && s.sharding_mode != config::ShardingMode::kNone)
    log_info(str("sharding_mode ", config::name_of(s.sharding_mode),
                 ": one rank shares with nobody; it keeps everything"));
  // What happens on all ranks is said once; warnings and errors are everybody's own.
  if (place.rank > 0) set_log_level(LogLevel::kWarn);
  return dist::World::connect(
      place, {.timeout = std::chrono::milliseconds(static_cast<int64_t>(s.dist_timeout * 1e3)),
              .interface = s.dist_interface,
              .device = device_of(s),
              .hybrid = s.sharding_mode == config::ShardingMode::kHybrid});
}

}  // namespace

config::Settings with_resolved_names(config::Settings settings) {
  if (!model_config::is_built_in(settings.model_name))
    settings.model_name =
        hub::resolve_model(settings.model_name, hub::model_options(settings)).string();
  const fs::path folder = settings.model_name;
  if (settings.tokenizer.empty() && fs::exists(folder / "tokenizer.json")) {
    settings.tokenizer = settings.model_name;
    log_info(str("tokenizer: of ", settings.model_name));
  }
  return settings;
}

void start_fp8(Run& run) {
  const auto& s = run.settings;
  run.fp8_decision = decide_fp8(s);
  if (!run.fp8_decision) return;
  for (const auto& warning : run.fp8_decision->warnings) log_warn(warning);
  if (run.fp8_decision->runs == fp8::Runs::kBf16) return;
  run.fp8 =
      std::make_unique<nn::Fp8Model>(*run.engine, run.model->linears(),
                                     nn::Fp8ModelOptions{.fp8 = run.fp8_decision->options,
                                                         .skip = s.fp8_skip,
                                                         .tokens = s.batch_size * s.max_seq_length,
                                                         .stats_freq = s.fp8_stats_freq,
                                                         .guard = s.fp8_guard,
                                                         .copies = weight_copies(run),
                                                         .over_ranks = health_over(run.world)});
}

void start_sharding(Run& run) {
  if (run.world.size() == 1) return;
  const auto& s = run.settings;
  run.sharding = std::make_unique<dist::Sharding>(
      run.world, all_params(run), run.model->linears(),
      dist::ShardingOptions{.mode = s.sharding_mode,
                            .reduce_dtype = s.grad_reduce_dtype == config::StateType::kBf16
                                                ? at::kBFloat16
                                                : at::kFloat,
                            .fp8_gather = s.fp8_all_gather,
                            .recompute = s.gradient_checkpointing});
  run.model->set_gatherer(run.sharding.get());
}

int64_t Run::tokens_per_step() const {
  return settings.batch_size * settings.gradient_accumulation_steps * settings.max_seq_length *
         world.size();
}

double Run::uniform_loss() const {
  return std::log(static_cast<double>(model->vocab_size()));
}

std::string Run::precision() const {
  // The guard may have moved every layer to BF16.
  const bool in_fp8 = fp8 != nullptr && fp8->layers_in_fp8() > 0;
  const std::string ran = !in_fp8                                    ? plain_precision()
                          : fp8_decision->runs == fp8::Runs::kNative ? "FP8"
                                                                     : "FP8 rehearsal";
  return engine::is_fake(engine->target.device) ? ran + ", fake CUDA device" : ran;
}

std::string Run::plain_precision() const {
  return engine->target.compute == at::kBFloat16 ? "BF16" : "FP32";
}

namespace {

// The first rank reads the weights again, for their hash, and tells the others.
void describe_base(Run& run, const config::Settings& resolved) {
  if (engine::is_fake(run.engine->target.device)) return;  // it loads none
  Json described = Json::object();
  if (run.world.is_first())
    save_base(base_of(run.settings, resolved, run.model->hugging_face_config()), described);
  const std::string text = run.world.from_first(described.dump(), "the base of the adapters");
  run.base = parse_base(parse_json(text, "the first rank"), "the first rank");
  if (run.base.kind == BaseModel::Kind::kRandom && run.settings.resume.empty() &&
      run.settings.init_from.empty())
    log_warn(str("adapters: the weights beside them are random and stay so (",
                 run.settings.model_name,
                 " names a shape here); give weights with --init_from, or a model that has some, "
                 "such as --model_name openai-community/gpt2"));
}

}  // namespace

void build_model(Run& run, const config::Settings& resolved, int64_t vocab, Weights weights) {
  const config::Settings& s = run.settings;
  nn::Storage storage = storage_of(s);
  storage.shards = dist::shards_of(s.sharding_mode, run.world);
  if (s.lora_rank > 0) weights = Weights::kOfSettings;  // a checkpoint has the adapters alone
  run.model = make_model(resolved, vocab, *run.engine, storage, weights);
  if (s.lora_rank > 0) describe_base(run, resolved);
  start_lora(run);
  run.optimizer =
      std::make_unique<optim::AdamW>(*run.engine, trained_params(run), optimizer_options(s));
  log_info(
      str("bytes per parameter: ", std::round(100 * run.optimizer->bytes_per_parameter()) / 100,
          " (master ", name_of(s.master_dtype), ", moments ", name_of(s.moment_dtype),
          ", gradients ", name_of(s.gradient_dtype), ")"));
  run.probes = std::make_unique<nn::Probes>(run.model->linears());
  start_fp8(run);
  start_sharding(run);
  if (s.cuda_graph) run.graph = std::make_unique<StepGraph>(run);
}

namespace {

// Everything behind the rendezvous of the ranks.
void assemble_run(const std::unique_ptr<Run>& run, config::Settings settings,
                  std::string* resumed_from, Weights weights) {
  // What is downloaded or prepared is so once, while the others wait.
  config::Settings resolved;
  DataSet data;
  run->world.rank_zero_first("names and data", [&] {
    resolved = with_resolved_names(settings);
    settle_tokenizer(resolved);
    data = open_data_set(resolved);
  });
  run->train_data = data.train;
  run->val_data = data.val;
  run->tokenizer = tokenizer::load_tokenizer(data.tokenizer);
  if (run->tokenizer->fingerprint() != data.train->tokenizer_fingerprint())
    fail(ExitCode::kUsage, "train", "the data was made with another tokenizer than '",
         data.tokenizer, "' is now; prepare the data again");

  run->engine = std::make_unique<engine::Engine>(target_of(settings));
  const int64_t vocab = settings.vocab_size > 0 ? settings.vocab_size : data.train->vocab_size();
  if (vocab < data.train->vocab_size())
    fail(ExitCode::kUsage, "train", "vocab_size ", vocab, " is smaller than the data's ",
         data.train->vocab_size());
  run->settings = std::move(settings);
  const config::Settings& s = run->settings;
  build_model(*run, resolved, vocab, s.resume.empty() ? weights : Weights::kLater);
  settle_batch_size(*run);
  if (!s.resume.empty()) *resumed_from = resume(*run);
  if (run->sharding != nullptr) run->sharding->weights_changed();
  open_loader(*run);
  run->schedule = schedule_of(s, steps_asked(*run));
  if (const auto& then = run->resumed.schedule; then && run->world.is_first())
    if (const std::string change = changed_schedule(*then, run->schedule, run->progress.step);
        !change.empty())
      log_warn(change);
}

}  // namespace

std::unique_ptr<Run> assemble(config::Settings settings, std::string* resumed_from, bool writes,
                              Weights weights) {
  auto run = std::make_unique<Run>();
  run->world = connect(settings);
  try {
    if (writes) run->claim = claim_folders(settings, run->world);
    if (!settings.trace.empty()) engine::trace::start(settings.trace, run->world.rank());
    assemble_run(run, std::move(settings), resumed_from, weights);
  } catch (const std::exception& error) {
    remove_empty(run->claim.made);
    run->world.announce_exit(error);
    throw;
  }
  return run;
}

}  // namespace octavo::train
