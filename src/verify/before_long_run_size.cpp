// The part of the list that is about bytes, hours and accidents.

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/progress.h"
#include "base/text.h"
#include "launch/scripts.h"
#include "train/state/checkpoint_clock.h"
#include "verify/before_long_run.h"
#include "verify/long_run_line.h"

namespace octavo::verify {
namespace {

constexpr double kLongHours = 1;      // from here on a run without checkpoints is careless
constexpr double kMostLostHours = 2;  // of work, when the machine stops
constexpr double kMuchSaving = 0.05;  // of the time, in writing checkpoints
constexpr double kFullDisk = 0.8, kFullMemory = 0.95;
constexpr int64_t kProvenSteps = 100, kBaselineSteps = 500;

std::string long_run_tenths(double value) {
  return str(std::round(10 * value) / 10);
}

// The GPUs of the forecast, for plan.
std::string gpu_flags(const LongRun& run) {
  if (!run.on_gpu || !run.forecast || run.forecast->gpu == nullptr) return "";
  return str("--gpu ", run.forecast->gpu->name,
             run.ranks > 1 ? str(" --num_gpus ", run.ranks) : "");
}

double long_run_step_seconds(const LongRun& run) {
  return run.forecast && run.on_gpu ? run.forecast->chosen().time.total : 0;
}

double long_run_hours(const LongRun& run) {
  return long_run_step_seconds(run) * static_cast<double>(run.steps) / 3600;
}

// Of two distances, of which 0 is none.
template <typename T>
T sooner(T a, T b) {
  return a > 0 && b > 0 ? std::min(a, b) : std::max(a, b);
}

// Steps between two checkpoints, whether they are kept for good or not. 0: none are asked for.
int64_t long_run_save_steps(const config::Settings& s) {
  return sooner(s.checkpoint_freq, s.permanent_checkpoint_freq);
}

int64_t long_run_permanent(const LongRun& run) {
  const int64_t freq = run.settings.permanent_checkpoint_freq;
  return freq > 0 ? run.steps / freq : 0;
}

// Between two such checkpoints. 0: not known, or none are asked for.
double long_run_freq_hours(const LongRun& run) {
  return long_run_step_seconds(run) * static_cast<double>(long_run_save_steps(run.settings)) / 3600;
}

// The same of checkpoint_minutes, as train decides it.
double long_run_clock_hours(const LongRun& run) {
  const double save = run.disk_rate > 0 ? run.checkpoint_bytes / run.disk_rate : 0;
  const auto clock = train::save_clock_of(run.settings, run.ranks, {});
  return clock ? clock->interval(save) / 3600 : 0;
}

double long_run_save_hours(const LongRun& run) {
  return sooner(long_run_freq_hours(run), long_run_clock_hours(run));
}

// How many checkpoints the run makes; what is not known is more than are kept.
int64_t long_run_checkpoints(const LongRun& run) {
  const config::Settings& s = run.settings;
  const double hours = long_run_hours(run), clock = long_run_clock_hours(run);
  const int64_t permanent = long_run_permanent(run);
  const int64_t unknown = s.keep_checkpoints + permanent + 2;
  if (s.checkpoint_freq > 0 && run.steps == 0) return unknown;
  const int64_t by_steps =
      permanent + (s.checkpoint_freq > 0 ? run.steps / s.checkpoint_freq : 0) + 1;
  if (clock == 0) return by_steps;
  if (hours == 0) return std::max(by_steps, unknown);
  return std::max(by_steps, static_cast<int64_t>(hours / clock) + 1);
}

Finding long_run_memory(const LongRun& run) {
  if (!run.forecast) return unchecked_line(Section::kRunSize, "memory", run.forecast_problem);
  const double peak = run.forecast->memory().total;
  const bool searched = run.settings.auto_batch_size;
  Finding f =
      long_run_line(Section::kRunSize, "memory",
                    str("forecast ", format_bytes(peak), " of ", format_bytes(run.memory_limit),
                        " on ", run.device, run.ranks > 1 ? str(", ", run.ranks, " ranks") : "",
                        searched ? ", at max_batch_size; the search takes what fits" : ""));
  std::string fix = run.forecast->advice.lines.empty()
                        ? "the forecast says what to change"
                        : "first: " + run.forecast->advice.lines.front();
  if (peak > run.memory_limit && !searched) {
    worsen(f, Status::kFail, "a run that fits", std::move(fix));
    add_command(f, run, "plan", gpu_flags(run));
  } else if (peak > run.memory_limit) {
    worsen(f, Status::kWarn, "a batch that fits", "auto_batch_size will take a smaller one");
  } else if (peak > kFullMemory * run.memory_limit) {
    const bool can_measure = run.on_gpu && run.ranks == 1;
    worsen(f, Status::kWarn, "a twentieth of the memory to spare",
           (can_measure ? "the forecast is within 5 %; a dry run measures. "
                        : "the forecast is within 5 %. ") +
               fix);
    add_command(f, run, "plan", gpu_flags(run) + (can_measure ? " --dry_run" : ""));
  }
  return f;
}

Finding long_run_time(const LongRun& run) {
  if (long_run_step_seconds(run) == 0) {
    Finding f =
        unchecked_line(Section::kRunSize, "time", "no GPU here; plan forecasts one that is not");
    add_command(f, run, "plan", "--gpu h100 --num_gpus 8");
    return f;
  }
  const double hours = long_run_hours(run);
  Finding f = long_run_line(
      Section::kRunSize, "time",
      str("forecast ", long_run_tenths(hours), " hours: ", run.steps, " steps of ",
          format_duration(long_run_step_seconds(run)), " on ", run.ranks, " x ", run.device));
  if (run.steps == 0) f = unchecked_line(Section::kRunSize, "time", "the steps are not known yet");
  return f;
}

Finding long_run_gain(const LongRun& run) {
  if (long_run_step_seconds(run) == 0)
    return unchecked_line(Section::kRunSize, "FP8's gain", "no GPU here; that forecast has it");
  const plan::RecipeForecast& chosen = run.forecast->chosen();
  Finding f =
      long_run_line(Section::kRunSize, "FP8's gain",
                    str("forecast ", std::round(100 * chosen.gain) / 100, "x of BF16's speed",
                        chosen.refusal.empty() ? "" : "; " + chosen.refusal));
  if (!chosen.refusal.empty() || chosen.gain < 1.05)
    worsen(f, Status::kWarn, "1.05x or more",
           run.forecast->reasons.empty()
               ? "BF16 is as fast here"
               : run.forecast->reasons.front() + "; BF16 would do as well, or a larger batch");
  return f;
}

Finding long_run_disk(const LongRun& run) {
  if (!run.disk_problem.empty()) {
    Finding f = long_run_line(Section::kRunSize, "disk", run.disk_problem);
    worsen(f, Status::kFail, "a checkpoint folder that can be written to",
           "give another checkpoint_dir");
    return f;
  }
  if (run.checkpoint_bytes == 0)
    return unchecked_line(Section::kRunSize, "disk", run.forecast_problem);
  const config::Settings& s = run.settings;
  // The kept ones, the best, and the one being written; no more than the run makes.
  const int64_t made = long_run_checkpoints(run);
  const int64_t permanent = long_run_permanent(run);
  const int64_t kept =
      s.keep_checkpoints == 0 ? made : std::min(made, s.keep_checkpoints + permanent + 2);
  const std::string_view fewer = permanent > s.keep_checkpoints && s.keep_checkpoints > 0
                                     ? "a higher permanent_checkpoint_freq"
                                     : "a smaller keep_checkpoints (0 keeps all)";
  const bool at_most = s.keep_checkpoints > 0 && long_run_hours(run) == 0 && kept > 1;
  const double wanted = run.checkpoint_bytes * static_cast<double>(kept);
  Finding f = long_run_line(
      Section::kRunSize, "disk",
      str(at_most ? "at most " : "", kept, kept == 1 ? " checkpoint of " : " checkpoints of ",
          format_bytes(run.checkpoint_bytes), kept == 1 ? " is " : " are ", format_bytes(wanted),
          "; ", run.checkpoint_folder.string(), " has ", format_bytes(run.disk_free), " free"));
  if (wanted > run.disk_free)
    worsen(f, Status::kFail, "room for them", str("another checkpoint_dir, or ", fewer));
  else if (wanted > kFullDisk * run.disk_free)
    worsen(f, Status::kWarn, "a fifth of the disk to spare",
           str("others write there too; ", fewer));
  return f;
}

// "every 250 steps or 60 minutes (Young and Daly)".
std::string long_run_save_words(const LongRun& run) {
  const config::Settings& s = run.settings;
  const int64_t steps = long_run_save_steps(s);
  std::string words = steps > 0 ? str("every ", steps, " steps") : "";
  const double clock = long_run_clock_hours(run);
  if (clock == 0) return words.empty() ? "only at the end, and when it is stopped" : words;
  words += str(words.empty() ? "every " : " or ", long_run_tenths(60 * clock), " minutes");
  return words + (s.checkpoint_minutes < 0 ? " (Young and Daly)" : "");
}

// Of checkpoints that are `apart` hours apart, on a step time that is known or by the clock.
void judge_apart(Finding& f, const LongRun& run, double apart) {
  const config::Settings& s = run.settings;
  const bool by_clock = long_run_clock_hours(run) == apart;
  const double writing =
      run.disk_rate > 0 ? run.checkpoint_bytes / run.disk_rate / (3600 * apart) : 0;
  const double freq = long_run_freq_hours(run);
  if (apart > kMostLostHours)
    worsen(f, Status::kWarn, str("at most ", kMostLostHours, " hours apart"),
           by_clock
               ? "checkpoint_minutes 60 is an hour"
               : str("checkpoint_freq ",
                     std::max<int64_t>(1, static_cast<int64_t>(
                                              static_cast<double>(long_run_save_steps(s)) / freq)),
                     " is an hour"));
  else if (writing > kMuchSaving)
    worsen(f, Status::kWarn, "less than 5 % of the time in writing",
           str("this disk would write ", long_run_tenths(100 * writing), " % of the time; raise ",
               by_clock ? "checkpoint_minutes" : "it"));
}

Finding long_run_frequency(const LongRun& run) {
  const config::Settings& s = run.settings;
  const double hours = long_run_hours(run), clock = long_run_clock_hours(run);
  Finding f = long_run_line(Section::kRunSafety, "checkpoint_freq", long_run_save_words(run));
  const int64_t steps = long_run_save_steps(s);
  const bool clock_is_late = clock == 0 || (hours > 0 && hours <= clock);
  if (steps == 0 && clock_is_late) {
    if (hours == 0 || hours > kLongHours)
      worsen(f, Status::kWarn, "checkpoints on the way",
             "a machine that stops takes all of it; set checkpoint_freq or checkpoint_minutes");
    return f;
  }
  if (run.steps > 0 && steps > run.steps && clock_is_late)
    worsen(f, Status::kWarn, "a checkpoint before the end", "lower checkpoint_freq");
  // Without a step time the steps may be sooner than the clock.
  if (steps > 0 && long_run_step_seconds(run) == 0) return f;
  const double apart = long_run_save_hours(run);
  f.found += str(": ", long_run_tenths(60 * apart), " minutes apart; a failure costs half of that");
  judge_apart(f, run, apart);
  return f;
}

Finding long_run_resume(const LongRun& run) {
  if (!run.resume)
    return unchecked_line(Section::kRunSafety, "resume", "fake CUDA device: kernels do not run");
  const ResumeRehearsal& r = *run.resume;
  Finding f = long_run_line(Section::kRunSafety, "resume",
                            str(r.steps, " steps of ", r.model, " (", r.precision,
                                "), stopped, saved and resumed: the same, bit for bit"));
  const std::string fix = "do not start; report it with the file that this writes";
  if (!r.ran || !r.equal_losses || !r.equal_weights)
    add_command(f, run, "verify", "--before_long_run --output verify.json");
  if (!r.ran) {
    f.found = "the rehearsal stopped: " + r.problem;
    worsen(f, Status::kFail, "a rehearsal of a few steps, a checkpoint and a resumption", fix);
  } else if (!r.equal_losses || !r.equal_weights) {
    f.found = str(r.equal_losses ? "weights" : "losses", " differ after a stop");
    worsen(f, Status::kFail, "the bits of a run that was never stopped", fix);
  }
  return f;
}

Finding long_run_folders(const LongRun& run) {
  const std::string folder = run.checkpoint_folder.string();
  const bool is_named = !run.settings.run_name.empty();
  Finding f = long_run_line(Section::kRunSafety, "folders",
                            is_named ? folder + " has no checkpoints yet"
                                     : "a new one in " + folder + ", named when the run starts");
  const bool taken = run.checkpoints_there > 0 || run.run_folder_there;
  if (taken && run.settings.resume.empty() && !run.settings.overwrite) {
    f.found = run.checkpoints_there > 0
                  ? str(folder, " has ", run.checkpoints_there, " checkpoint",
                        run.checkpoints_there == 1 ? "" : "s", " of an earlier run")
                  : str(run.settings.runs_dir, "/", run.settings.run_name, " has an earlier run");
    worsen(f, Status::kFail, "a run_name of its own",
           "train would refuse it: give another run_name, --resume latest, or --overwrite");
    if (run.checkpoints_there > 0) add_command(f, run, "train", "--resume latest");
    add_command(f, run, "train",
                "--run_name " + launch::shell_quoted(free_run_name(run, run.settings.run_name)));
  } else if (!run.settings.resume.empty()) {
    f.found = str("resumes from ", run.settings.resume, " of ", folder);
  }
  return f;
}

Finding long_run_stops(const LongRun& run) {
  Finding f = long_run_line(Section::kRunSafety, "stops and requeueing", "");
  f.status = Status::kNote;
  f.found =
      str("SIGTERM, SIGINT and SIGUSR1 save and leave with 75. A job that is run again continues "
          "only with --resume latest: launch --auto_resume adds it where there is a checkpoint",
          run.in_slurm ? "" : ", and --slurm writes such a job");
  // Which run it continues, launch wants to be told.
  const bool is_named = !run.settings.run_name.empty() || !run.settings.resume.empty();
  add_command(
      f, run, "launch --auto_resume -- train",
      is_named ? "" : "--run_name " + launch::shell_quoted(free_run_name(run, config_stem(run))));
  if (!run.in_slurm) add_command(f, run, "launch --slurm job.sh -- train");
  return f;
}

Finding long_run_watching(const LongRun& run) {
  const config::Settings& s = run.settings;
  std::vector<std::string> on;
  if (s.use_tensorboard) on.emplace_back("TensorBoard");
  if (s.use_wandb)
    on.emplace_back(run.has_wandb_key ? "W&B, live" : "W&B, offline (no wandb login)");
  if (!s.metrics_address.empty()) on.emplace_back("Prometheus at " + s.metrics_address);
  Finding f = long_run_line(Section::kRunSafety, "watching", join(on, ", "));
  if (on.empty()) {
    f.found = "metrics.jsonl alone";
    worsen(f, Status::kWarn, "somewhere to look while it runs",
           "use_tensorboard, use_wandb or metrics_address");
  }
  return f;
}

// A run before this one that shows it works.
const EarlierRun* best_of(const LongRun& run, bool in_fp8) {
  const EarlierRun* best = nullptr;
  for (const EarlierRun& e : run.earlier)
    if (e.same_model && e.same_data && e.in_fp8 == in_fp8 && e.finite &&
        (best == nullptr || e.steps > best->steps))
      best = &e;
  return best;
}

Finding long_run_trial(const LongRun& run) {
  const EarlierRun* trial = best_of(run, run.wants_fp8);
  Finding f = long_run_line(Section::kRunSafety, "short run", "");
  if (trial != nullptr)
    f.found = str(run.settings.runs_dir, "/", trial->name, ": ", trial->steps,
                  " steps, every loss finite",
                  trial->cut ? "; the rest of its metrics.jsonl was not read" : "");
  else
    f.found = str("none of this model and data in ", run.settings.runs_dir);
  if (run.unread_runs > 0) f.found += str("; ", run.unread_runs, " others there were not read");
  const int64_t wanted = run.steps > 0 ? std::min(run.steps, kProvenSteps) : kProvenSteps;
  if (trial == nullptr || trial->steps < wanted) {
    worsen(f, Status::kWarn, str(wanted, " steps of the same model, data and precision"),
           "train so many first");
    add_command(f, run, "train",
                str("--max_steps ", wanted, " --run_name ", free_run_name(run, "trial")));
  }
  return f;
}

Finding long_run_baseline(const LongRun& run) {
  const EarlierRun* baseline = best_of(run, false);
  Finding f = long_run_line(Section::kRunSafety, "BF16 baseline", "");
  if (baseline != nullptr)
    f.found = str(run.settings.runs_dir, "/", baseline->name, ": ", baseline->steps, " steps");
  else
    f.found = str("no BF16 run of this model and data in ", run.settings.runs_dir);
  const int64_t wanted = run.steps > 0 ? std::min(run.steps, kBaselineSteps) : kBaselineSteps;
  if (baseline == nullptr || baseline->steps < wanted) {
    worsen(f, Status::kWarn, str(wanted, " steps in BF16 to compare with"),
           "compare runs both on the same batches; to go back to BF16 later, resume with "
           "--mixed_precision bf16");
    add_command(f, run, "compare",
                str("--max_steps ", wanted, " --run_name ",
                    launch::shell_quoted(free_run_name(run, "compare-" + config_stem(run)))));
  }
  return f;
}

Finding long_run_spares(const LongRun& run) {
  const int64_t kept = run.settings.keep_checkpoints;
  Finding f = long_run_line(Section::kRunSafety, "keep_checkpoints",
                            kept == 0 ? "all" : str("the newest ", kept, ", and the best"));
  if (kept == 1)
    worsen(f, Status::kWarn, "at least two to go back to",
           "a loss that goes wrong is often seen late; keep 3");
  return f;
}

}  // namespace

std::vector<Finding> judge_run_size(const LongRun& run) {
  std::vector<Finding> out = {long_run_memory(run), long_run_time(run)};
  if (run.wants_fp8) out.push_back(long_run_gain(run));
  out.push_back(long_run_disk(run));
  return out;
}

std::vector<Finding> judge_run_safety(const LongRun& run) {
  std::vector<Finding> out = {
      long_run_resume(run), long_run_frequency(run), long_run_spares(run), long_run_folders(run),
      long_run_stops(run),  long_run_watching(run),  long_run_trial(run)};
  if (run.wants_fp8) out.push_back(long_run_baseline(run));
  return out;
}

}  // namespace octavo::verify
