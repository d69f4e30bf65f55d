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
#include "engine/trace.h"
#include "monitor/background.h"
#include "monitor/sinks.h"
#include "train/auto_batch.h"
#include "train/device.h"
#include "train/evaluate.h"
#include "train/fp8_report.h"
#include "train/generate.h"
#include "train/peaks.h"
#include "train/persist.h"
#include "train/receipt.h"
#include "train/run.h"

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

// The run's own files, which the first rank writes for all.
struct Outputs {
  fs::path run_dir;
  bool writes = true;
  Sinks sinks;
  monitor::AsyncSink* background = nullptr;  // one of them, before those that may be slow or fail
};

Outputs open_outputs(Run& run, const std::string& resumed_from) {
  auto& s = run.settings;
  if (s.run_name.empty()) s.run_name = default_run_name(run);
  s.run_name = run.world.from_first(s.run_name, "the run's name");
  Outputs outputs{
      .run_dir = fs::path(s.runs_dir) / s.run_name, .writes = run.world.is_first(), .sinks = {}};
  if (!outputs.writes) return outputs;
  fs::create_directories(outputs.run_dir);
  write_file_atomic(outputs.run_dir / "config.yaml", config::to_yaml(s));
  write_receipt(run, outputs.run_dir, "running");
  announce(run, resumed_from);
  outputs.sinks.push_back(
      monitor::make_console_sink(run.progress.step, run.schedule.max_steps, s.log_freq));
  auto background =
      monitor::open_background_sinks(s, outputs.run_dir, run.progress.step, peaks_of(run));
  outputs.background = background.get();
  outputs.sinks.push_back(std::move(background));
  return outputs;
}

void write_sample(const Run& run, const Outputs& outputs) {
  // Where weights come and go all ranks bring them, so all write the same text.
  if (!outputs.writes && !dist::shards_of(run.settings.sharding_mode, run.world).weights) return;
  const auto& s = run.settings;
  const GenerateOptions options{.max_new_tokens = s.sample_tokens,
                                .temperature = s.temperature,
                                .top_k = s.top_k,
                                .seed = static_cast<uint64_t>(s.seed + run.progress.step)};
  const auto ids =
      generate(*run.engine, *run.model, *run.tokenizer, s.sample_prompt, options, [](auto) {});
  const std::string text = s.sample_prompt + run.tokenizer->decode(ids);
  for (const auto& sink : outputs.sinks) sink->on_sample({run.progress.step, text});
}

// Ranks stop together: each says in a step that it was asked to, and all stop after it.
bool stops(const Run& run) {
  return run.world.size() == 1 ? stop_requested() : run.progress.stop_agreed;
}

std::string reason_to_stop() {
  return stop_requested() ? stop_reason() : "another rank's signal";
}

int end_run(const Run& run, const Outputs& outputs, bool run_saves) {
  const auto& s = run.settings;
  const bool stopped = run.progress.step < run.schedule.max_steps;
  if (outputs.writes) {
    outputs.background->on_end(static_cast<int>(stopped ? ExitCode::kStopped : ExitCode::kOk));
    Json sinks = outputs.background->receipt();
    sinks["sinks"]["console"] = {{"failures", outputs.sinks.front()->failures()}};
    write_receipt(run, outputs.run_dir, stopped ? "stopped by " + reason_to_stop() : "done", sinks);
  }
  if (stopped) {
    log_info(str("stopped by ", reason_to_stop(), " after step ", run.progress.step,
                 "; go on with the same command and --resume latest"));
    return static_cast<int>(ExitCode::kStopped);
  }
  log_info(str("done: ", run.progress.step, " steps; run in ", outputs.run_dir.string(),
               run_saves ? ", checkpoint in " + checkpoint_dir(s) : ""));
  return static_cast<int>(ExitCode::kOk);
}

int run_to_the_end(Run& run, const std::string& resumed_from) {
  const Outputs outputs = open_outputs(run, resumed_from);
  const auto& s = run.settings;
  // What a device that is not there holds is not worth its place on a disk.
  const bool run_saves = !engine::is_absent_device(run.engine->target.device);
  if (!run_saves) log_info("no checkpoints: the device is absent, its memory has no numbers");
  bool saved = !resumed_from.empty() || !run_saves;  // is the present state on disk
  while (run.progress.step < run.schedule.max_steps && !stops(run)) {
    const monitor::StepRecord record = train_step_in_memory(run);
    saved = !run_saves;
    for (const auto& sink : outputs.sinks) sink->on_step(record);

    const int64_t step = run.progress.step;
    const bool last = step == run.schedule.max_steps;
    const bool evaluates =
        run.val_data != nullptr && s.eval_freq > 0 && (last || is_due(step, s.eval_freq));
    monitor::EvalRecord eval;
    if (evaluates) eval = evaluate_and_report(run, outputs.sinks);
    if (is_due(step, s.empty_cache_freq)) engine::trim_memory(run.engine->target.device);
    if (is_due(step, s.sample_freq)) {
      write_sample(run, outputs);
      if (run.graph != nullptr) run.graph->forget();  // RoPE's tables may have grown
    }
    const bool save_is_due = last || is_due(step, s.checkpoint_freq) ||
                             (evaluates && eval.best && s.checkpoint_freq > 0);
    if (save_is_due && run_saves) {
      const double* loss = evaluates ? &eval.val_loss : nullptr;
      if (last)
        save(run, s.run_name, evaluates && eval.best, loss);
      else
        start_save(run, s.run_name, evaluates && eval.best, loss);  // while the next steps run
      saved = true;
    }
  }
  if (!finish_saves(run) || !saved) save(run, s.run_name, false, nullptr);
  return end_run(run, outputs, run_saves);
}

int train_to_the_end(config::Settings settings) {
  std::string resumed_from;
  const auto run = assemble(std::move(settings), &resumed_from);
  try {
    return run_to_the_end(*run, resumed_from);
  } catch (const std::exception& error) {
    run->world.say_leaving(error);
    throw;
  }
}

// However the run ends.
struct TraceEnd {
  TraceEnd() = default;
  TraceEnd(const TraceEnd&) = delete;
  TraceEnd& operator=(const TraceEnd&) = delete;
  ~TraceEnd() { engine::trace::finish(); }
};

}  // namespace

int train(config::Settings settings) {
  install_stop_handlers();
  const TraceEnd trace_end;
  prepare_process(settings);
  try {
    return train_to_the_end(std::move(settings));
  } catch (const c10::OutOfMemoryError& error) {
    fail_out_of_memory(error);
  }
}

}  // namespace octavo::train
