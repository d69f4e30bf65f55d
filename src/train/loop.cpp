#include "train/loop.h"

#include <ATen/Parallel.h>

#include <ctime>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "base/progress.h"
#include "base/signals.h"
#include "config/print.h"
#include "engine/allocator.h"
#include "engine/devices.h"
#include "monitor/sinks.h"
#include "train/device.h"
#include "train/evaluate.h"
#include "train/fp8_report.h"
#include "train/generate.h"
#include "train/persist.h"
#include "train/receipt.h"
#include "train/run.h"
#include "train/step.h"

namespace octavo::train {
namespace {

using Sinks = std::vector<std::unique_ptr<monitor::Sink>>;

std::string default_run_name(const Run& run) {
  char when[32];
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  std::strftime(when, sizeof when, "%Y%m%d-%H%M%S", &utc);
  return str(fs::path(run.settings.model_name).filename().string(), "-",
             run.fp8 != nullptr ? "fp8" : config::name_of(run.settings.mixed_precision), "-", when);
}

void announce(const Run& run, const std::string& resumed_from) {
  const auto& s = run.settings;
  log_info(str("model: ", s.model_name, ", ",
               format_count(static_cast<double>(models::parameter_count(*run.model))),
               " parameters, vocabulary ", run.model->vocab_size(), ", ", run.precision(), " on ",
               run.engine->target.device.str(), ", ", at::get_num_threads(), " threads"));
  log_info(str("steps: ", run.schedule.max_steps, " of ", run.tokens_per_step(),
               " tokens, warm-up ", run.schedule.warmup_steps, "; an epoch has ",
               run.loader->samples_per_epoch(), " samples"));
  if (run.fp8_decision) log_info("matrix products:\n" + gemm_table(gemm_lines(run)));
  if (!resumed_from.empty())
    log_info(str("resumed from ", resumed_from, " at step ", run.progress.step));
  if (run.val_data == nullptr && s.eval_freq > 0)
    log_warn(
        "no validation split longer than max_seq_length: no evaluation; give val_fraction or more "
        "data");
}

void write_sample(const Run& run, const fs::path& run_dir) {
  const auto& s = run.settings;
  const GenerateOptions options{.max_new_tokens = s.sample_tokens,
                                .temperature = s.temperature,
                                .top_k = s.top_k,
                                .seed = static_cast<uint64_t>(s.seed + run.progress.step)};
  const auto ids =
      generate(*run.engine, *run.model, *run.tokenizer, s.sample_prompt, options, [](auto) {});
  const std::string text = s.sample_prompt + run.tokenizer->decode(ids);
  fs::create_directories(run_dir / "samples");
  write_file_atomic(run_dir / "samples" / str("step-", run.progress.step, ".txt"), text + "\n");
}

// Runs an evaluation, tells the sinks, and says whether it is the best so far.
monitor::EvalRecord evaluate_and_report(Run& run, const Sinks& sinks) {
  monitor::EvalRecord record = evaluate(run);
  record.best = !run.progress.has_best || record.val_loss < run.progress.best_val_loss;
  if (record.best) {
    run.progress.has_best = true;
    run.progress.best_val_loss = record.val_loss;
  }
  for (const auto& sink : sinks) sink->on_eval(record);
  return record;
}

bool is_due(int64_t step, int64_t every) {
  return every > 0 && step % every == 0;
}

int train_to_the_end(config::Settings settings) {
  std::string resumed_from;
  const auto run = assemble(std::move(settings), &resumed_from);
  auto& s = run->settings;
  if (s.run_name.empty()) s.run_name = default_run_name(*run);
  const fs::path run_dir = fs::path(s.runs_dir) / s.run_name;
  fs::create_directories(run_dir);
  write_file_atomic(run_dir / "config.yaml", config::to_yaml(s));
  write_receipt(*run, run_dir, "running");
  announce(*run, resumed_from);

  Sinks sinks;
  sinks.push_back(
      monitor::make_console_sink(run->progress.step, run->schedule.max_steps, s.log_freq));
  sinks.push_back(monitor::make_jsonl_sink(run_dir / "metrics.jsonl", run->progress.step));

  // What a device that is not there holds is not worth its place on a disk.
  const bool run_saves = !engine::is_absent_device(run->engine->target.device);
  if (!run_saves) log_info("no checkpoints: the device is absent, its memory has no numbers");
  bool saved = !resumed_from.empty() || !run_saves;  // is the present state on disk
  while (run->progress.step < run->schedule.max_steps && !stop_requested()) {
    const monitor::StepRecord record = train_step(*run);
    saved = !run_saves;
    for (const auto& sink : sinks) sink->on_step(record);

    const int64_t step = run->progress.step;
    const bool last = step == run->schedule.max_steps;
    const bool evaluates =
        run->val_data != nullptr && s.eval_freq > 0 && (last || is_due(step, s.eval_freq));
    monitor::EvalRecord eval;
    if (evaluates) eval = evaluate_and_report(*run, sinks);
    if (is_due(step, s.empty_cache_freq)) engine::trim_memory(run->engine->target.device);
    if (is_due(step, s.sample_freq)) {
      write_sample(*run, run_dir);
      if (run->graph != nullptr) run->graph->forget();  // RoPE's tables may have grown
    }
    const bool save_is_due = last || is_due(step, s.checkpoint_freq) ||
                             (evaluates && eval.best && s.checkpoint_freq > 0);
    if (save_is_due && run_saves) {
      save(*run, s.run_name, evaluates && eval.best, evaluates ? &eval.val_loss : nullptr);
      saved = true;
    }
  }

  const bool stopped = run->progress.step < run->schedule.max_steps;
  if (!saved) save(*run, s.run_name, false, nullptr);
  write_receipt(*run, run_dir, stopped ? str("stopped by ", stop_reason()) : "done");
  if (stopped) {
    log_info(str("stopped by ", stop_reason(), " after step ", run->progress.step,
                 "; go on with the same command and --resume latest"));
    return static_cast<int>(ExitCode::kStopped);
  }
  log_info(str("done: ", run->progress.step, " steps; run in ", run_dir.string(),
               run_saves ? ", checkpoint in " + checkpoint_dir(s) : ""));
  return static_cast<int>(ExitCode::kOk);
}

}  // namespace

int train(config::Settings settings) {
  install_stop_handlers();
  prepare_process(settings);
  try {
    return train_to_the_end(std::move(settings));
  } catch (const c10::OutOfMemoryError& error) {
    fail_out_of_memory(error);
  }
}

}  // namespace octavo::train
