#pragma once
// `octavo verify --before-long-run CONFIG`: what must be right before CONFIG runs for days. As for
// the machine, facts are gathered once and judged by pure functions.

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/file.h"
#include "config/parse.h"
#include "monitor/step_record.h"
#include "plan/forecast.h"
#include "verify/facts.h"
#include "verify/finding.h"

namespace octavo::verify {

struct RunData {
  enum class State : uint8_t {
    kNotGiven,
    kMissing,      // neither a path nor in the Hugging Face cache: `problem` says what
    kOnHub,        // to be downloaded when training begins
    kNotPrepared,  // here, but not yet tokens
    kPrepared,
    kDamaged
  };
  State state = State::kNotGiven;
  std::string place, problem, fingerprint;
  std::string tokenizer_problem;  // why the tokenizer on the hub is not here; "" when it is
  uint64_t tokens = 0, val_tokens = 0, samples = 0, val_samples = 0;
  uint64_t mixture_samples = 0;  // until all sources are used up; 0: they never are
  int64_t vocab = 0;             // of the data, or of its tokenizer while it is not prepared
};

// A run that was made before, from its folder.
struct EarlierRun {
  std::string name;
  bool same_model = false, same_data = false, in_fp8 = false;
  int64_t steps = 0;    // with a loss in metrics.jsonl
  bool finite = false;  // all of those losses
  bool cut = false;     // metrics.jsonl is too long: its first part was read
};

// The same steps in one go and with a stop, a checkpoint and a resumption between.
struct ResumeRehearsal {
  bool ran = false;
  std::string model, precision, problem;  // problem: why it did not run to its end
  int64_t steps = 0;
  bool equal_losses = false, equal_weights = false;
};

struct LongRun {
  config::Settings settings;
  std::string config_file;
  std::string flags;  // " --use_fp8 true": what train is told beside the file
  bool wants_fp8 = false, starts_from_weights = false;
  std::vector<std::string> contradictions;
  std::string model_problem;      // why the model's files cannot be read; "" when they can
  bool may_download = false;      // names on the hub may be asked for
  std::vector<int> secret_lines;  // of the file, that look as if they hold a key or a token
  RunData data;

  int64_t ranks = 1;
  int64_t batch = 0;         // samples of one pass and rank; 0: found when training begins
  int64_t step_samples = 0;  // over all passes and ranks; 0: not known before
  int64_t steps = 0;         // 0: not known before the data is prepared
  int64_t warmup_steps = 0;  // as they will be
  std::vector<monitor::SourceUse> sources;  // of a mixture, at the end of the run

  std::optional<plan::Forecast> forecast;
  std::string forecast_problem;
  bool on_gpu = false;                // the forecast is of a GPU, here or named
  double memory_limit = 0;            // bytes of that GPU, or of this machine
  std::string device;                 // "H100 SXM 80GB", "this machine's CPU"
  double fp8_share = 0;               // of the FLOPs of a step that can run in FP8
  std::vector<std::string> fp8_gaps;  // layers that cannot, and why

  fs::path checkpoint_folder;
  double checkpoint_bytes = 0;
  double disk_free = 0, disk_rate = 0;
  std::string disk_problem;
  int64_t checkpoints_there = 0;
  bool run_folder_there = false;
  std::vector<EarlierRun> earlier;
  int64_t unread_runs = 0;                // of other versions, or too many
  std::optional<ResumeRehearsal> resume;  // none on a device where kernels do not run
  bool has_wandb_key = false, in_slurm = false;
};

// "octavo VERB CONFIG FLAGS" as a command of the line. Without a CONFIG there is none.
void add_command(Finding& line, const LongRun& run, const std::string& verb,
                 const std::string& flags = "");
// A run_name that none of the earlier runs has: `name`, or with a number behind it.
std::string free_run_name(const LongRun& run, const std::string& name);
// What the config is called without its folder and ending.
std::string config_stem(const LongRun& run);

LongRun gather_long_run(const config::Parsed& parsed, const Facts& facts);
// The share of a step's multiply-adds that the recipe takes (linear layers of the blocks whose
// sides and tokens fit and that fp8_skip leaves in, over all of them, the head and attention), and
// the layers that it does not. Wants the forecast.
void share_in_fp8(LongRun& run);
// Trains a few steps of the run in miniature, or of the run itself when it is small; writes beside
// its checkpoints, and takes that away.
ResumeRehearsal rehearse_resume(const LongRun& run);

std::vector<Finding> judge_long_run(const LongRun& run);
// Its parts, in the order of the report.
std::vector<Finding> judge_run_settings(const LongRun& run);
std::vector<Finding> judge_run_data(const LongRun& run);
std::vector<Finding> judge_run_size(const LongRun& run);
std::vector<Finding> judge_run_safety(const LongRun& run);

}  // namespace octavo::verify
