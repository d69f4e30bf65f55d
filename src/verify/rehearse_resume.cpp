// Does this run, as it is set, continue bit for bit after a stop? Tried, not believed.

#include <ATen/ATen.h>

#include <algorithm>

#include "base/error.h"
#include "base/first_line.h"
#include "base/log.h"
#include "model_config/config_file.h"
#include "model_config/presets.h"
#include "train/device.h"
#include "train/lora_run.h"
#include "train/model_factory.h"
#include "train/run.h"
#include "train/state/persist.h"
#include "train/step.h"
#include "verify/before_long_run.h"
#include "verify/temporary_folder.h"
#include "verify/training.h"

namespace octavo::verify {
namespace {

constexpr int64_t kRehearsedSteps = 6, kStopAfter = 3;
constexpr int64_t kSmallModel = 5'000'000;  // parameters: then the run itself is rehearsed

// A model of the same architecture, two layers of width 128 (which blockwise wants).
void write_miniature(const plan::Shape& shape, const fs::path& folder) {
  model_config::ModelConfig model =
      model_config::gpt2({.layers = 2, .heads = 2, .width = 128, .vocab = 512, .context = 128});
  if (shape.gated) {
    model.family = shape.family;
    model.mlp = 256;
    model.tied = shape.tied;
    model.qkv_bias = shape.qkv_bias, model.out_bias = shape.out_bias;
    model.mlp_bias = shape.mlp_bias;
  }
  fs::create_directories(folder);
  write_file_atomic(folder / "config.json", model_config::to_json(model).dump());
}

// What only the size and the data of the run decide goes; everything else stays as it is set.
config::Settings in_miniature(const LongRun& run, const fs::path& folder) {
  config::Settings s = run.settings;
  write_file_atomic(folder / "text.txt", synthetic_text());
  if (run.forecast) {
    write_miniature(run.forecast->shape, folder / "model");
    s.model_name = (folder / "model").string();
    s.n_layer = s.n_head = s.n_embd = s.vocab_size = 0;
  } else {
    s.model_name = "custom";
    s.n_layer = s.n_head = 2;
    s.n_embd = 128;
    s.vocab_size = 0;
  }
  s.init_from = "random";
  s.dataset = {(folder / "text.txt").string()};
  s.dataset_weights.clear();
  s.dataset_max_epochs.clear();
  s.mixture_schedule.clear();
  s.length_schedule.clear();
  s.dataset_config = s.split_name = "";
  s.text_field = "text";
  s.data_cache = (folder / "data").string();
  s.tokenizer = "bytes";
  s.max_seq_length = std::min<int64_t>(s.max_seq_length, 64);
  s.gradient_accumulation_steps = std::min<int64_t>(s.gradient_accumulation_steps, 2);
  s.batch_size = std::min<int64_t>(s.batch_size, 4);
  // Names of layers that the miniature does not have.
  std::erase_if(s.fp8_skip, [](const auto& word) { return word != "first" && word != "last"; });
  return s;
}

config::Settings rehearsal_settings(const LongRun& run, const fs::path& folder, bool whole) {
  config::Settings s = whole ? run.settings : in_miniature(run, folder);
  s.auto_batch_size = false;
  if (whole && run.batch > 0) s.batch_size = run.batch;
  s.max_batch_size = s.target_effective_batch_size = 0;
  s.max_steps = kRehearsedSteps;
  s.num_epochs = 0;
  s.warmup_steps = std::min<int64_t>(run.warmup_steps, 2);
  s.resume = s.trace = s.run_name = "";
  s.sharding_mode = config::ShardingMode::kNone;
  s.num_gpus = 1;
  s.checkpoint_dir = (folder / "checkpoints").string();
  s.fp8_stats_freq = std::min<int64_t>(s.fp8_stats_freq, 2);
  s.deterministic = config::Deterministic::kTrue;  // otherwise no two runs on a GPU are equal
  return s;
}

std::vector<double> rehearsed_losses(train::Run& run, int64_t steps) {
  std::vector<double> losses;
  for (int64_t i = 0; i < steps; ++i) losses.push_back(train::train_step(run).loss);
  return losses;
}

bool same_rehearsed_weights(const train::TrainedModel& a, const train::TrainedModel& b) {
  const nn::ParamList first = train::all_params(a), second = train::all_params(b);
  if (first.size() != second.size()) return false;
  for (size_t i = 0; i < first.size(); ++i)
    if (!at::equal(first[i]->master, second[i]->master)) return false;
  return true;
}

void rehearse_both(config::Settings s, ResumeRehearsal& result) {
  const auto in_one_go = train::assemble(s);
  result.precision = in_one_go->trained.precision();
  std::vector<double> wanted = rehearsed_losses(*in_one_go, kRehearsedSteps);
  {
    const auto stopped = train::assemble(s);
    rehearsed_losses(*stopped, kStopAfter);
    train::save(*stopped, "before-long-run", false, nullptr);
  }
  s.resume = "latest";
  const auto resumed = train::assemble(s);
  const std::vector<double> found = rehearsed_losses(*resumed, kRehearsedSteps - kStopAfter);
  wanted.erase(wanted.begin(), wanted.begin() + kStopAfter);
  result.equal_losses = wanted == found;
  result.equal_weights = same_rehearsed_weights(in_one_go->trained, resumed->trained);
  result.steps = kRehearsedSteps;
}

}  // namespace

ResumeRehearsal rehearse_resume(const LongRun& run) {
  ResumeRehearsal result;
  const bool small = run.forecast && plan::parameters(run.forecast->shape) <= kSmallModel;
  const bool whole = small && model_config::is_built_in(run.settings.model_name) &&
                     run.data.state == RunData::State::kPrepared &&
                     run.data.tokenizer_problem.empty();  // or training would download it
  set_log_level(LogLevel::kWarn);  // each of the three would tell its whole story
  try {
    const ScopedFolder place(run.checkpoint_folder);
    const TemporaryFolder folder(run.checkpoint_folder);
    result.model = whole ? run.settings.model_name + " itself, with its data"
                         : "the same settings on a miniature of the model";
    if (train::device_of(run.settings).is_cuda()) result.model += ", with deterministic true";
    rehearse_both(rehearsal_settings(run, folder.path(), whole), result);
    result.ran = true;
  } catch (const std::exception& error) {
    result.problem = first_line(error.what());
  }
  set_log_level(LogLevel::kInfo);
  return result;
}

}  // namespace octavo::verify
