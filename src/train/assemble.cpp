#include <cmath>

#include "base/error.h"
#include "base/log.h"
#include "base/progress.h"
#include "engine/devices.h"
#include "hub/hub.h"
#include "train/dataset.h"
#include "train/device.h"
#include "train/lora_run.h"
#include "train/model_factory.h"
#include "train/persist.h"
#include "train/run.h"

namespace octavo::train {
namespace {

int64_t steps_of(const config::Settings& s, uint64_t samples_per_epoch, int world) {
  if (s.max_steps > 0) return s.max_steps;
  const auto per_step = static_cast<uint64_t>(s.batch_size * s.gradient_accumulation_steps * world);
  const auto epochs = static_cast<uint64_t>(std::max<int64_t>(s.num_epochs, 1));
  const auto steps = static_cast<int64_t>(samples_per_epoch * epochs / per_step);
  if (steps == 0)
    fail(ExitCode::kUsage, "train", "an epoch has ", samples_per_epoch,
         " samples and a step takes ", per_step,
         ": not one step; give more data, or lower batch_size, gradient_accumulation_steps or "
         "max_seq_length");
  return steps;
}

optim::Schedule schedule_of(const config::Settings& s, int64_t max_steps) {
  return {.max_lr = s.learning_rate,
          .min_lr_ratio = s.min_lr_ratio,
          .warmup_steps = s.warmup_steps >= 0 ? s.warmup_steps : optim::automatic_warmup(max_steps),
          .max_steps = max_steps};
}

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

// Where memory is short, a weight is quantized for each product: 8B parameters take a GPU some 10
// ms and would fill 16 GB.
nn::WeightCopies weight_copies(const Run& run) {
  const auto& s = run.settings;
  if (run.engine->target.device.is_cuda() && s.gradient_checkpointing)
    return nn::WeightCopies::kProduct;
  return s.gradient_accumulation_steps > 1 ? nn::WeightCopies::kKeep : nn::WeightCopies::kStep;
}

}  // namespace

config::Settings with_resolved_names(config::Settings settings) {
  if (!is_preset(settings.model_name))
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
                                                         .copies = weight_copies(run)});
}

int64_t Run::tokens_per_step() const {
  return settings.batch_size * settings.gradient_accumulation_steps * settings.max_seq_length *
         world.size();
}

std::string Run::precision() const {
  // The guard may have moved every layer to BF16.
  const bool in_fp8 = fp8 != nullptr && fp8->layers_in_fp8() > 0;
  const std::string ran = !in_fp8                                    ? plain_precision()
                          : fp8_decision->runs == fp8::Runs::kNative ? "FP8"
                                                                     : "FP8 rehearsal";
  return engine::is_absent_device(engine->target.device) ? ran + ", absent device" : ran;
}

std::string Run::plain_precision() const {
  return engine->target.compute == at::kBFloat16 ? "BF16" : "FP32";
}

void build_model(Run& run, const config::Settings& resolved, int64_t vocab) {
  const config::Settings& s = run.settings;
  run.model = make_model(resolved, vocab, *run.engine, storage_of(s));
  start_lora(run);
  run.optimizer =
      std::make_unique<optim::AdamW>(*run.engine, trained_params(run), optimizer_options(s));
  log_info(
      str("bytes per parameter: ", std::round(100 * run.optimizer->bytes_per_parameter()) / 100,
          " (master ", name_of(s.master_dtype), ", moments ", name_of(s.moment_dtype),
          ", gradients ", name_of(s.gradient_dtype), ")"));
  start_fp8(run);
  if (s.cuda_graph) run.graph = std::make_unique<StepGraph>(run);
}

std::unique_ptr<Run> assemble(config::Settings settings, std::string* resumed_from) {
  auto run = std::make_unique<Run>();
  run->world = dist::World::from_environment();
  const config::Settings resolved = with_resolved_names(settings);
  const DataSet data = open_data_set(resolved);
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
  build_model(*run, resolved, vocab);
  if (!s.resume.empty()) *resumed_from = resume(*run);
  const data::Loader::Options options{.rows = s.batch_size,
                                      .length = s.max_seq_length,
                                      .seed = static_cast<uint64_t>(s.seed),
                                      .shuffle = s.shuffle,
                                      .rank = run->world.rank(),
                                      .world = run->world.size()};
  run->loader = std::make_unique<data::Loader>(run->train_data, options, run->progress.position);
  run->schedule = schedule_of(s, steps_of(s, run->loader->samples_per_epoch(), run->world.size()));
  return run;
}

}  // namespace octavo::train
