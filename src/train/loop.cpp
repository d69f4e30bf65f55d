#include "train/loop.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/heartbeat.h"
#include "base/log.h"
#include "base/log_file.h"
#include "base/log_merge.h"
#include "base/rank_status.h"
#include "base/signals.h"
#include "base/text.h"
#include "engine/allocator.h"
#include "engine/trace.h"
#include "eval/generate.h"
#include "train/batching/auto_batch.h"
#include "train/device.h"
#include "train/evaluate.h"
#include "train/guards/bad_step.h"
#include "train/guards/failures.h"
#include "train/guards/hang_watch.h"
#include "train/guards/output_check.h"
#include "train/guards/replica_check.h"
#include "train/reporting/outputs.h"
#include "train/reporting/start_lines.h"
#include "train/run.h"
#include "train/run_schedule.h"
#include "train/state/mixture_order.h"
#include "train/state/persist.h"
#include "train/state/remote.h"

namespace octavo::train {
namespace {

void announce_mixture(const Run& run) {
  const data::Position& now = run.progress.position;
  const data::MixedTokens* mixed = run.data.train->mixed();
  if (mixed == nullptr || now.mixture == nullptr) return;
  const uint64_t left = static_cast<uint64_t>(run.schedule.max_steps - run.progress.step);
  const uint64_t end = now.samples + left * samples_per_step(run.settings, run.world.size());
  log_info(describe_shares(*mixed, *now.mixture, now.samples));
  for (const std::string& line : describe_changes(*mixed, *now.mixture, now.samples, end - 1))
    log_info(line);
  for (const std::string& line : describe_orders(*mixed, *now.mixture, run.settings.max_seq_length))
    log_info(line);
  data::Position last = now;
  last.samples = now.mixture->end() > 0 ? std::min(end, now.mixture->end()) : end;
  const std::vector<std::string> often =
      repeated_sources(source_uses(*mixed, last, run.settings.max_seq_length));
  if (!often.empty())
    log_warn(str("mixture: by the end of the run these sources come often: ", join(often, ", "),
                 "; text that is seen more than ", kUsefulEpochs, " times teaches little: lower ",
                 "the weight, set max_epochs, or add data"));
}

void announce_lengths(const Run& run) {
  const uint64_t per_step = samples_per_step(run.settings, run.world.size());
  std::vector<std::string> stages;
  const uint64_t now = run.progress.position.samples;
  for (const data::LengthStage& stage :
       length_stages(run.settings, run.world.size(), run.progress)) {
    if (stage.at <= now) stages.clear();  // before a resume
    const uint64_t step =
        static_cast<uint64_t>(run.progress.step) + (std::max(stage.at, now) - now) / per_step + 1;
    stages.push_back(str(stage.length, " tokens from step ", step, " on"));
  }
  if (!stages.empty()) log_info("length_schedule: sequences of " + join(stages, ", "));
}

void announce(const Run& run) {
  const auto& s = run.settings;
  for (const std::string& line : start_lines(run)) log_info(line);
  if (run.trained.device().is_cpu()) log_info(threads_line(s));
  announce_epochs(run);
  announce_mixture(run);
  announce_lengths(run);
  if (!run.resumed.from.empty())
    log_info(str("resumed from ", run.resumed.from, " at step ", run.progress.step));
  if (run.data.val == nullptr && s.eval_freq > 0)
    log_warn(
        "no validation split longer than max_seq_length: no evaluation; give val_fraction or more "
        "data");
}

struct Evaluation {
  double val_loss = 0;
  bool may_be_best = false;     // the save decides, when it is known what best_model names by then
  bool makes_save_due = false;  // better than what best_model names, or is about to
};

// Runs an evaluation, tells the sinks, and says whether best_model may name its checkpoint. None
// when the run was asked to stop meanwhile.
std::optional<Evaluation> evaluate_and_report(Run& run, Outputs& outputs) {
  const std::optional<monitor::EvalRecord> found = evaluate_unless_stopped(run);
  run.progress.evaluation_left_out = !found;
  if (!found) {
    run.progress.stop_agreed = true;  // all ranks know, and none takes another step
    log_info("the evaluation waits for the resume: the run was asked to stop");
    return std::nullopt;
  }
  monitor::EvalRecord record = *found;
  // A model in doubt is not saved, so it cannot be the best one; nor can one that is worse than
  // guessing, or whose loss is no number.
  const bool may_be_best = !is_suspect(run.settings.bad_steps, run.progress) &&
                           record.val_loss <= run.trained.uniform_loss();
  record.best =
      may_be_best && (!run.progress.has_best || record.val_loss < run.progress.best_val_loss);
  if (record.best) {
    run.progress.has_best = true;
    run.progress.best_val_loss = record.val_loss;
  }
  outputs.on_eval(record);
  // A better one that could not be saved is not there to be taken.
  const std::optional<double> named = best_model_loss(run);
  return Evaluation{.val_loss = record.val_loss,
                    .may_be_best = may_be_best,
                    .makes_save_due = may_be_best && (!named || record.val_loss < *named)};
}

bool is_due(int64_t step, int64_t every) {
  return every > 0 && step % every == 0;
}

// Every eval_hellaswag_freq steps, or with the evaluations, and after the last step.
bool hellaswag_is_due(const Run& run, bool last) {
  const auto& s = run.settings;
  if (s.eval_hellaswag.empty() || !run.trained.has_numbers) return false;
  const int64_t every = s.eval_hellaswag_freq > 0 ? s.eval_hellaswag_freq : s.eval_freq;
  return last || is_due(run.progress.step, every);
}

std::string sample_text(const Run& run) {
  const auto& s = run.settings;
  const eval::GenerateOptions options{.max_new_tokens = s.sample_tokens,
                                      .temperature = s.temperature,
                                      .top_k = s.top_k,
                                      .top_p = s.top_p,
                                      .seed = static_cast<uint64_t>(s.seed + run.progress.step)};
  const auto ids = eval::generate(*run.trained.engine, *run.trained.model, *run.data.tokenizer,
                                  s.sample_prompt, options, [](auto) {});
  return s.sample_prompt + run.data.tokenizer->decode_more(ids);
}

void write_sample(const Run& run, Outputs& outputs) {
  // Where weights come and go all ranks bring them, so all write the same text.
  if (!outputs.writes() && !dist::shards_of(run.settings.sharding_mode, run.world).weights) return;
  try {
    outputs.on_sample({run.progress.step, sample_text(run)});
  } catch (const Error& error) {
    // A text to look at is not worth a run. All ranks fail alike: on the prompt or the tokenizer.
    if (error.code() != ExitCode::kUsage && error.code() != ExitCode::kDamaged) throw;
    log_warn_once(str("no samples: ", error.what(), "; change sample_prompt"));
  }
}

monitor::StepRecord guarded_step(Run& run, Outputs& outputs) {
  try {
    monitor::StepRecord record = train_step_in_memory(run);
    if (rollback_is_due(run.settings.bad_steps, run.progress)) {
      const heartbeat::Exempt exempt("a checkpoint is loaded");
      roll_back(run);
    }
    return record;
  } catch (const Error& error) {
    if (error.code() == ExitCode::kGuard) outputs.on_guard(error);
    if (error.code() == ExitCode::kDamaged)  // data, found in the middle of the run
      outputs.end(octavo::str("ended: ", error.what()), error.code());
    throw;
  }
}

// Ranks that should be alike and are not, and checkpoints that cannot be saved, end the run.
void under_guard(Outputs& outputs, const std::function<void()>& check) {
  try {
    check();
  } catch (const Error& error) {
    if (error.code() == ExitCode::kGuard)
      outputs.end(str("ended by a guard: ", error.what()), error.code());
    throw;
  }
}

// Ranks stop together: each says in a step that it was asked to, and all stop after it.
bool stops(const Run& run) {
  return run.world.size() == 1 ? stop_requested() : run.progress.stop_agreed;
}

// The first rank is beside the launcher that decides; the others' pages say nothing of it.
bool launcher_continues() {
  return own_page().launcher_continues != 0;
}

std::string reason_to_stop() {
  if (launcher_continues()) return "octavo launch, for more ranks";
  return stop_requested() ? stop_reason() : "another rank's signal";
}

// The first rank alone has a page and says it.
void say_summary(const Run& run, const Outputs& outputs, bool stopped, bool run_saves) {
  RunSummary summary = outputs.summary();
  const bool continues = stopped && launcher_continues();
  if (run_saves) summary.checkpoints = checkpoint_folder(run.settings);
  if (run_saves && !continues)
    summary.next =
        next_commands(summary.folder, summary.checkpoints, run.world.rank_info(), stopped);
  const bool resumed = !run.resumed.from.empty();
  if (stopped) log_info(stop_words(reason_to_stop(), run.progress.step, continues));
  log_info(str(stopped ? str("made ", summary.steps) : str("done: ", run.progress.step), " steps",
               resumed && !stopped ? str(", ", summary.steps, " of them since the resume,") : "",
               " ", summary_text(summary)));
}

// After the last step. A save that was in progress when a stop was asked for may have used up the
// notice: then it is the one that counts, and the steps since it began are done again.
void save_the_rest(Run& run, Outputs& outputs, bool saved) {
  const bool was_saving = stops(run) && save_in_progress(run);
  const bool succeeded = finish_saves(run);
  if (succeeded && saved) return;
  if (succeeded && was_saving && !has_time_to_save(run, seconds_since_stop_request())) {
    log_warn(
        "stopped with the checkpoint that was being saved: the notice (30 s) leaves no time for "
        "another; the steps since it are done again");
    return;
  }
  under_guard(outputs, [&] { check_replicas(run, true); });
  // Asked to stop, a run resumes from the checkpoint before.
  if (stops(run) && refuses_save(run, run.settings.run_name)) return;
  under_guard(outputs, [&] { save(run, run.settings.run_name, false, nullptr); });
}

int end_run(const Run& run, Outputs& outputs, bool run_saves) {
  const bool stopped =
      run.progress.step < run.schedule.max_steps || run.progress.evaluation_left_out;
  const ExitCode code = stopped ? ExitCode::kStopped : ExitCode::kOk;
  outputs.end(stopped ? "stopped by " + reason_to_stop() : "done", code);
  if (outputs.writes()) say_summary(run, outputs, stopped, run_saves);
  return static_cast<int>(code);
}

// What the loop knows between two steps.
struct LoopState {
  bool run_saves = true;
  bool saved = false;       // is the present state on disk
  bool save_waits = false;  // until the model is no longer in doubt
  bool said_by_time = false;
};

// Samples and HellaSwag, where they are due.
void ask_model(Run& run, Outputs& outputs, bool last) {
  const bool asks_hellaswag = hellaswag_is_due(run, last);
  const bool samples = is_due(run.progress.step, run.settings.sample_freq);
  if (asks_hellaswag)
    if (const auto record = evaluate_hellaswag(run)) outputs.on_task(*record);
  if (samples) write_sample(run, outputs);
  if ((samples || asks_hellaswag) && run.trained.graph != nullptr)
    run.trained.graph->forget();  // RoPE's tables may have grown
}

// Kernels are loaded and ranks connected: nobody knows how long that takes.
monitor::StepRecord next_step(Run& run, Outputs& outputs, bool first) {
  if (!first) return guarded_step(run, outputs);
  const heartbeat::Exempt exempt("the first step loads kernels and connects ranks");
  return guarded_step(run, outputs);
}

// What is due once a step is done: evaluation, samples, a checkpoint.
void after_step(Run& run, Outputs& outputs, LoopState& state) {
  const auto& s = run.settings;
  const int64_t step = run.progress.step;
  const bool last = step == run.schedule.max_steps;
  std::optional<Evaluation> eval;
  if (run.data.val != nullptr && s.eval_freq > 0 && (last || is_due(step, s.eval_freq)))
    eval = evaluate_and_report(run, outputs);
  const bool may_be_best = eval && eval->may_be_best;
  if (is_due(step, s.empty_cache_freq)) engine::trim_memory(run.trained.device());
  if (!run.progress.evaluation_left_out) ask_model(run, outputs, last);
  if (is_due(step, s.permanent_checkpoint_freq)) run.progress.permanent_due = step;
  const bool save_is_due = last || state.save_waits || is_due(step, s.checkpoint_freq) ||
                           run.progress.permanent_due == step || run.progress.save_agreed ||
                           (eval && eval->makes_save_due && s.checkpoint_freq > 0);
  state.save_waits = save_is_due && !last && is_suspect(s.bad_steps, run.progress);
  if (state.save_waits) log_info("the checkpoint waits for a step that is not skipped (bad_steps)");
  const bool saves = save_is_due && !state.save_waits && state.run_saves;
  if (saves && run.progress.save_agreed && run.world.is_first() && run.save_clock &&
      run.save_clock->interval(0) > 0 && !std::exchange(state.said_by_time, true))
    log_info("checkpoints by time: " + saves_by_time(run));
  under_guard(outputs, [&] { check_replicas(run, saves); });
  if (!saves) return;
  const double* loss = eval ? &eval->val_loss : nullptr;
  if (last)
    under_guard(outputs, [&] { save(run, s.run_name, may_be_best, loss); });
  else
    start_save(run, s.run_name, may_be_best, loss);  // while the next steps run
  state.saved = true;
}

int run_to_the_end(Run& run) {
  // What a device that is not there holds is not worth its place on a disk.
  const bool run_saves = run.trained.has_numbers;
  if (run.world.is_first()) {
    remove_overwritten(run.settings, run.claim);
    if (run_saves && run.progress.step < run.schedule.max_steps) check_room(run);
  }
  Outputs outputs(run);
  open_log_file(run_folder(run.settings) / "logs" / log_file_name(run.world.rank()));
  own_page().has_run_folder = 1;
  if (outputs.writes()) announce(run);
  under_guard(outputs, [&] { start_replica_checks(run); });
  if (run_saves)  // of this start: from here on checkpoint_minutes counts
    run.save_clock = save_clock_of(run.settings, run.world.size(), CheckpointClock::Clock::now());
  if (run_saves) start_uploads(run);
  if (!run_saves) log_info("no checkpoints: the device is fake, its memory has no numbers");
  LoopState state{.run_saves = run_saves, .saved = !run.resumed.from.empty() || !run_saves};
  // The checkpoint was saved by a run that was asked to stop while it evaluated. An evaluation that
  // eval_freq no longer asks for is not waited for.
  if (std::exchange(run.progress.evaluation_left_out, false)) after_step(run, outputs, state);
  std::unique_ptr<HangWatch> hang_watch =
      watch_over_hangs(run.settings.hang_timeout, run.world, run.trained);
  for (bool first = true; run.progress.step < run.schedule.max_steps && !stops(run);
       first = false) {
    outputs.on_step(next_step(run, outputs, first));
    state.saved = !run_saves;
    under_guard(outputs, [&] {
      if (run.progress.saves_fail) fail_unsaved(run);
    });
    after_step(run, outputs, state);
  }
  hang_watch.reset();
  own_page().makes_no_more_steps = 1;
  if (run_saves) save_the_rest(run, outputs, state.saved);
  run.world.needs_no_others();  // an upload may take hours, and the nodes that are done go
  const bool uploaded = finish_uploads(run, [&] { outputs.on_alive(); });
  const int code = end_run(run, outputs, run_saves);
  if (!uploaded && code == static_cast<int>(ExitCode::kOk)) fail_not_uploaded(run);
  return code;
}

// What this process does after the run is not the run's.
struct LogFileEnd {
  LogFileEnd() = default;
  LogFileEnd(const LogFileEnd&) = delete;
  LogFileEnd& operator=(const LogFileEnd&) = delete;
  ~LogFileEnd() { close_log_file(); }
};

int train_to_the_end(config::Settings settings) {
  const auto run = assemble(std::move(settings), /*writes=*/true);
  const LogFileEnd log_file_end;
  try {
    return run_to_the_end(*run);
  } catch (const std::exception& error) {
    keep_in_log_file(LogLevel::kError, error.what());
    note_failure(failure_of_run(error));  // now: the watch may end this process before main does
    remove_empty(run->claim.made);
    run->world.announce_exit(error);
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
  } catch (const c10::Error& error) {
    fail_if_environment(error);
    throw;
  }
}

}  // namespace octavo::train
