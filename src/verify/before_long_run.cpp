#include "verify/before_long_run.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "base/error.h"
#include "base/progress.h"
#include "base/text.h"
#include "hub/hub.h"
#include "launch/scripts.h"
#include "train/run_schedule.h"
#include "verify/long_run_line.h"

namespace octavo::verify {
namespace {

// Of a full fine-tuning and of a training from nothing: what papers and guides use ends here.
constexpr double kHighTuningRate = 1e-4, kHighRate = 2e-3;
constexpr double kMuchWarmup = 0.25, kMuchEvaluation = 0.1;
constexpr int64_t kFewEvalTokens = 16'384;

std::string long_run_number(double value, double unit = 100) {
  return str(std::round(value * unit) / unit);
}

Finding long_run_config(const LongRun& run) {
  Finding f = long_run_line(
      Section::kRunSettings, "config",
      str(run.config_file.empty() ? "defaults" : run.config_file, ": no contradictions"));
  if (!run.contradictions.empty()) {
    f.found = join(run.contradictions, " | ");
    worsen(f, Status::kFail, "keys that do not contradict each other", "change them in the file");
    add_command(f, run, "config check");
  }
  return f;
}

Finding long_run_secrets(const LongRun& run) {
  Finding f = long_run_line(Section::kRunSettings, "secrets", "none in the file");
  if (run.secret_lines.empty()) return f;
  std::vector<std::string> lines;
  for (const int line : run.secret_lines) lines.push_back(std::to_string(line));
  f.found = str("line ", join(lines, ", "), " looks like a key or a token");
  worsen(f, Status::kFail, "no secret in a file that is copied into every run",
         "take it out; octavo reads HF_TOKEN, WANDB_API_KEY and AWS' variables from the "
         "environment");
  return f;
}

Finding long_run_rate(const LongRun& run) {
  const config::Settings& s = run.settings;
  Finding f = long_run_line(Section::kRunSettings, "learning_rate",
                            str(s.learning_rate, ", down to ", s.learning_rate * s.min_lr_ratio));
  const bool tunes_all = run.starts_from_weights && s.lora_rank == 0;
  if (s.learning_rate <= 0)
    worsen(f, Status::kFail, "a learning rate above 0", "nothing would be learned; set it");
  else if (tunes_all && s.learning_rate > kHighTuningRate)
    worsen(f, Status::kWarn, str("at most ", kHighTuningRate, " where all pretrained weights move"),
           "fine-tuning usually takes 1e-5 to 5e-5; the default of 6e-4 is for training from "
           "nothing");
  else if (s.learning_rate > kHighRate)
    worsen(f, Status::kWarn, str("at most ", kHighRate, ", or a sweep that shows more is stable"),
           "GPT-3's table has 6e-4 for 125M parameters at 0.5M tokens a step; try 500 steps of "
           "each");
  return f;
}

Finding long_run_schedule(const LongRun& run) {
  Finding f = long_run_line(Section::kRunSettings, "schedule", "");
  if (run.steps == 0) {
    f.status = Status::kNotChecked;
    f.found = "the number of steps follows from data that is not prepared yet";
    return f;
  }
  const auto share = static_cast<double>(run.warmup_steps) / static_cast<double>(run.steps);
  f.found = str("warm-up ", run.warmup_steps, " of ", run.steps, " steps (",
                long_run_number(100 * share, 10), " %)");
  const std::string fix = "lower warmup_steps, or give -1 for a twentieth";
  const bool is_long = run.warmup_steps >= run.steps || share > kMuchWarmup;
  if (is_long)
    add_command(f, run, "schedule", str("--max_steps ", run.steps, " --warmup_steps -1"));
  if (run.warmup_steps >= run.steps)
    worsen(f, Status::kFail, "a warm-up that ends before the run does", fix);
  else if (is_long)
    worsen(f, Status::kWarn, "a warm-up of at most a quarter of the run", fix);
  else if (run.settings.min_lr_ratio >= 1)
    worsen(f, Status::kWarn, "a rate that decays (min_lr_ratio below 1)",
           "0.1 is usual; the last part of a decay is where much of the loss comes down");
  return f;
}

Finding long_run_clip(const LongRun& run) {
  Finding f =
      long_run_line(Section::kRunSettings, "max_grad_norm", str(run.settings.max_grad_norm));
  if (run.settings.max_grad_norm == 0)
    worsen(f, Status::kWarn, "gradients that are clipped",
           "one bad batch can end a run of days; 1.0 is usual");
  return f;
}

Finding long_run_seed(const LongRun& run) {
  return long_run_line(Section::kRunSettings, "seed",
                       str(run.settings.seed,
                           ": weights, data order and samples follow from it, so that "
                           "the run can be done again"));
}

Finding long_run_precision(const LongRun& run) {
  Finding f = long_run_line(Section::kRunSettings, "FP8 share", "");
  if (!run.wants_fp8) {
    f.status = Status::kNote;
    f.found = str(name_of(run.settings.mixed_precision), ": no FP8 is asked for");
    return f;
  }
  if (!run.forecast) {
    f.status = Status::kNotChecked;
    f.found = run.forecast_problem;
    return f;
  }
  f.found =
      str(long_run_number(100 * run.fp8_share, 10), " % of the FLOPs of a step can run in FP8",
          run.fp8_gaps.empty() ? "" : "; not ", join(run.fp8_gaps, ", "));
  if (run.fp8_share == 0)
    worsen(f, Status::kFail, "some layers in FP8",
           "no layer fits the recipe; change fp8_recipe, fp8_skip or batch_size x max_seq_length, "
           "or take mixed_precision bf16");
  else if (run.fp8_share < 0.5)
    worsen(f, Status::kWarn, "half of the FLOPs in FP8 or more",
           "the head and attention are most of this model: FP8 will give little");
  return f;
}

Finding long_run_guard(const LongRun& run) {
  const config::Settings& s = run.settings;
  Finding f =
      long_run_line(Section::kRunSettings, "fp8_guard",
                    str(name_of(s.fp8_guard), ", statistics every ", s.fp8_stats_freq, " steps"));
  if (s.fp8_guard == config::Fp8Guard::kOff || s.fp8_stats_freq == 0)
    worsen(f, Status::kWarn, "a guard that looks (log or fallback, and fp8_stats_freq above 0)",
           "without it a gradient that is not finite ends the run, and nobody sees a layer go bad");
  return f;
}

Finding long_run_model(const LongRun& run) {
  Finding f = long_run_line(Section::kRunData, "model", run.settings.model_name);
  if (run.model_problem.empty()) return f;
  if (run.may_download && hub::is_hub_name(run.settings.model_name)) {
    f.found = str(run.settings.model_name, " is not in the Hugging Face cache");
    worsen(f, Status::kWarn, "the model's files, here",
           "it would be downloaded when training begins, while GPUs wait; do it before, on any "
           "machine with this cache");
    add_command(f, run, "train", "--max_steps 1 --run_name " + free_run_name(run, "first-step"));
  } else {
    f.found = run.model_problem;
    worsen(f, Status::kFail, "the model's files, here",
           "give the path of a folder, or a name on the hub that is in the cache");
  }
  return f;
}

struct DataVerdict {
  RunData::State state;
  Status status;
  const char *wanted, *fix;
};
constexpr DataVerdict kDataVerdicts[] = {
    {RunData::State::kNotGiven, Status::kFail, "a dataset", "name one in the file"},
    {RunData::State::kMissing, Status::kFail, "the data, here", "check its path or name"},
    {RunData::State::kOnHub, Status::kWarn, "prepared tokens, so that no GPU waits for them",
     "it would be downloaded and prepared when training begins; do it before, and name the folder "
     "as dataset"},
    {RunData::State::kNotPrepared, Status::kWarn, "prepared tokens, so that no GPU waits for them",
     "prepare it on a machine without GPUs, and name the folder as dataset"},
    {RunData::State::kDamaged, Status::kFail, "data that is whole",
     "prepare it again; data inspect names the shard"}};

void add_data_command(Finding& line, const LongRun& run) {
  using State = RunData::State;
  if (run.data.state == State::kOnHub || run.data.state == State::kNotPrepared)
    add_command(line, run, "data prepare",
                "--output " + launch::shell_quoted(config_stem(run) + "-data"));
  if (run.data.state == State::kDamaged && !run.data.place.empty())
    line.commands.push_back("octavo data inspect " + launch::shell_quoted(run.data.place) +
                            " --verify_hashes");
}

Finding long_run_dataset(const LongRun& run) {
  const RunData& d = run.data;
  const std::string names = join(run.settings.dataset, ", ");
  Finding f = long_run_line(Section::kRunData, "data",
                            str(format_count(static_cast<double>(d.tokens)), " tokens in ", d.place,
                                ", fingerprint ", d.fingerprint.substr(0, 12)));
  for (const DataVerdict& v : kDataVerdicts)
    if (v.state == d.state) {
      f.found = !d.problem.empty() && d.state != RunData::State::kOnHub ? d.problem
                : names.empty()                                         ? "none"
                : d.state == RunData::State::kOnHub ? names + " is not in the Hugging Face cache"
                                                    : "not prepared yet: " + names;
      worsen(f, v.status, v.wanted, v.fix);
    }
  add_data_command(f, run);
  return f;
}

Finding long_run_tokenizer(const LongRun& run) {
  const config::Settings& s = run.settings;
  const std::string name = s.tokenizer.empty() ? "the tokenizer of " + s.model_name : s.tokenizer;
  Finding f = long_run_line(Section::kRunData, "tokenizer", run.data.tokenizer_problem);
  if (run.may_download) {
    f.found = name + " is not in the Hugging Face cache";
    worsen(f, Status::kWarn, "the tokenizer's file, here",
           "it would be downloaded when training begins; do it before, on any machine with this "
           "cache");
    add_command(f, run, "train", "--max_steps 1 --run_name " + free_run_name(run, "first-step"));
  } else {
    worsen(f, Status::kFail, "the tokenizer's file, here",
           "give the path of a tokenizer.json, or a name on the hub that is in the cache");
  }
  return f;
}

Finding long_run_amount(const LongRun& run) {
  Finding f = long_run_line(Section::kRunData, "enough of it", "");
  if (run.data.samples == 0 || run.step_samples == 0) {
    f.status = Status::kNotChecked;
    f.found = run.step_samples == 0 ? "the batch is found when training begins"
                                    : "the data is not prepared";
    if (run.data.state == RunData::State::kPrepared && run.data.samples == 0)
      worsen(f, Status::kFail, "at least one sample of max_seq_length tokens",
             "more data, or a smaller max_seq_length");
    return f;
  }
  const double epochs = static_cast<double>(run.steps) * static_cast<double>(run.step_samples) /
                        static_cast<double>(run.data.samples);
  f.found = str(run.steps, " steps of ", run.step_samples, " samples: ", long_run_number(epochs),
                " epochs of ", run.data.samples, " samples");
  if (run.steps == 0)
    worsen(f, Status::kFail, "at least one step", "more data, or fewer samples in a step");
  else if (const auto end = static_cast<int64_t>(run.data.mixture_samples);
           end > 0 && run.settings.max_steps > 0 && run.steps > end / run.step_samples)
    worsen(f, Status::kFail,
           str(end, " samples at most, when each source was seen max_epochs times"),
           str("set max_steps to ", end / run.step_samples,
               ", or raise max_epochs (0: no bound) of an entry of dataset"));
  else if (const auto often = train::repeated_sources(run.sources); !often.empty()) {
    f.found += "; samples of " + join(often, ", ");
    worsen(f, Status::kWarn, str("at most ", train::kUsefulEpochs, " epochs of each source"),
           "text that is seen more often teaches little; lower its weight in dataset, give it "
           "max_epochs, or more data");
  } else if (epochs > train::kUsefulEpochs)
    worsen(f, Status::kWarn, str("at most ", train::kUsefulEpochs, " epochs"),
           "text that is seen more often teaches little; more data, or fewer steps");
  return f;
}

Finding long_run_vocabulary(const LongRun& run) {
  Finding f = long_run_line(Section::kRunData, "vocabulary", "");
  if (run.data.vocab == 0 || !run.forecast) {
    f.status = Status::kNotChecked;
    f.found = run.data.vocab == 0 ? "the data's tokenizer is not known" : run.forecast_problem;
    return f;
  }
  const int64_t rows =
      run.settings.vocab_size > 0 ? run.settings.vocab_size : run.forecast->shape.tokens;
  f.found = str("the data has ids below ", run.data.vocab, ", the model has ", rows, " rows");
  if (run.data.vocab > rows)
    worsen(f, Status::kFail, "a row for every id",
           "prepare the data with the model's own tokenizer");
  return f;
}

Finding long_run_evaluation(const LongRun& run) {
  const config::Settings& s = run.settings;
  Finding f = long_run_line(Section::kRunData, "validation", "");
  const int64_t eval_tokens = s.eval_batches * std::max<int64_t>(run.batch, 1) * s.max_seq_length;
  f.found = str("every ", s.eval_freq, " steps, ", s.eval_batches, " batches");
  const bool prepared = run.data.state == RunData::State::kPrepared;
  if (prepared) f.found += str(", of ", run.data.val_samples, " samples");
  // A pass forward is a third of a trained one.
  const double share = s.eval_freq == 0 || run.step_samples == 0
                           ? 0
                           : static_cast<double>(s.eval_batches) *
                                 static_cast<double>(std::max<int64_t>(run.batch, 1)) /
                                 (3.0 * static_cast<double>(s.eval_freq * run.step_samples) /
                                  static_cast<double>(run.ranks));
  if (s.eval_freq == 0)
    worsen(f, Status::kWarn, "evaluations (eval_freq above 0)",
           "the training loss alone does not show overfitting, and there is no best_model");
  else if (prepared && run.data.val_samples == 0)
    worsen(f, Status::kWarn, "a validation split of at least one sample",
           "prepare the data with a val_fraction");
  else if (run.steps > 0 && s.eval_freq > run.steps)
    worsen(f, Status::kWarn, "an evaluation before the end", "lower eval_freq");
  else if (share > kMuchEvaluation)
    worsen(f, Status::kWarn, "less than a tenth of the time in evaluations",
           str("about ", long_run_number(100 * share, 1), " % would go there; raise eval_freq"));
  else if (eval_tokens < kFewEvalTokens && prepared &&
           run.data.val_tokens > static_cast<uint64_t>(eval_tokens))
    worsen(f, Status::kWarn, str("at least ", kFewEvalTokens, " tokens in an evaluation"),
           "a loss of so few tokens jumps by itself; raise eval_batches");
  return f;
}

}  // namespace

std::string config_stem(const LongRun& run) {
  return fs::path(run.config_file).stem().string();
}

std::string free_run_name(const LongRun& run, const std::string& name) {
  const auto taken = [&](const std::string& wanted) {
    return wanted == run.settings.run_name ||
           std::ranges::any_of(run.earlier, [&](const EarlierRun& e) { return e.name == wanted; });
  };
  std::string chosen = name;
  for (int number = 2; taken(chosen); ++number) chosen = str(name, "-", number);
  return chosen;
}

void add_command(Finding& line, const LongRun& run, const std::string& verb,
                 const std::string& flags) {
  if (run.config_file.empty()) return;
  // Only what trains reads all that the run was told by flags.
  const bool trains = verb.ends_with("train") || verb == "compare";
  line.commands.push_back(str("octavo ", verb, " ", launch::shell_quoted(run.config_file),
                              trains ? run.flags : "", flags.empty() ? "" : " " + flags));
}

std::vector<Finding> judge_run_settings(const LongRun& run) {
  std::vector<Finding> out = {long_run_config(run), long_run_secrets(run),
                              long_run_rate(run),   long_run_schedule(run),
                              long_run_clip(run),   long_run_precision(run)};
  if (run.wants_fp8) out.push_back(long_run_guard(run));
  out.push_back(long_run_seed(run));
  return out;
}

std::vector<Finding> judge_run_data(const LongRun& run) {
  std::vector<Finding> out = {long_run_model(run), long_run_dataset(run)};
  if (!run.data.tokenizer_problem.empty()) out.push_back(long_run_tokenizer(run));
  for (const auto judge : {long_run_amount, long_run_vocabulary, long_run_evaluation})
    out.push_back(judge(run));
  return out;
}

std::vector<Finding> judge_long_run(const LongRun& run) {
  std::vector<Finding> all;
  for (auto part :
       {judge_run_settings(run), judge_run_data(run), judge_run_size(run), judge_run_safety(run)})
    all.insert(all.end(), std::make_move_iterator(part.begin()),
               std::make_move_iterator(part.end()));
  return all;
}

}  // namespace octavo::verify
