#include "train/run_schedule.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <vector>

#include "base/checked.h"
#include "base/error.h"
#include "base/log.h"
#include "base/printed.h"
#include "base/text.h"
#include "config/key_makers.h"
#include "config/length_keys.h"
#include "config/parse.h"
#include "data/mixture.h"
#include "train/run.h"

namespace octavo::train {
namespace {

double number_in(const Json& object, const char* name, const std::string& source) {
  const auto found = object.find(name);
  if (found == object.end() || !found->is_number())
    fail(ExitCode::kDamaged, "train", source, ": schedule: wanted a number as ", name, ", found ",
         found == object.end() ? "none" : found->type_name());
  return found->get<double>();
}

// Whether a mixture whose sources are used up one day (max_epochs) has samples for all steps.
void check_mixture_lasts(const config::Settings& s, int ranks, const Progress& progress) {
  const auto& mixture = progress.position.mixture;
  if (mixture == nullptr || mixture->end() == 0 || s.max_steps <= progress.step) return;
  const uint64_t seen = progress.position.samples, per_step = samples_per_step(s, ranks);
  const uint64_t wanted =
      seen + checked_mul(static_cast<uint64_t>(s.max_steps - progress.step), per_step, "max_steps");
  if (wanted <= mixture->end()) return;
  const uint64_t left = mixture->end() - std::min(mixture->end(), seen);
  fail(ExitCode::kUsage, "train", "wanted ", wanted, " samples for max_steps ", s.max_steps,
       ", found ", mixture->end(), " until each source of the mixture was seen max_epochs times; ",
       "give max_steps ", progress.step + static_cast<int64_t>(left / per_step),
       ", or raise max_epochs (0: no bound) of an entry of dataset");
}

std::string rate_text(double rate) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2e", rate);
  return text;
}

}  // namespace

uint64_t samples_per_step(const config::Settings& settings, int ranks) {
  return static_cast<uint64_t>(settings.batch_size * settings.gradient_accumulation_steps * ranks);
}

uint64_t samples_asked(const config::Settings& s, const data::TokenData& train,
                       const data::Position& position) {
  if (s.max_steps > 0) return 0;
  if (position.mixture != nullptr) return position.mixture->end();
  return checked_mul(data::sample_count(train, s.max_seq_length),
                     static_cast<uint64_t>(std::max<int64_t>(s.num_epochs, 1)), "num_epochs");
}

int64_t steps_asked(const config::Settings& settings, int ranks, const data::TokenData& train,
                    const Progress& progress) {
  if (settings.max_steps > 0) {
    if (settings.max_steps < progress.step)
      fail(ExitCode::kUsage, "train", "wanted max_steps of at least ", progress.step,
           ", the step of the checkpoint, found ", settings.max_steps,
           "; raise max_steps, or resume from an earlier checkpoint (--resume step-…)");
    check_mixture_lasts(settings, ranks, progress);
    return settings.max_steps;
  }
  const uint64_t asked = samples_asked(settings, train, progress.position),
                 seen = progress.position.samples;
  const uint64_t per_step = samples_per_step(settings, ranks);
  if (seen == 0 && asked < per_step)
    fail(ExitCode::kUsage, "train", "wanted at least one step in ",
         std::max<int64_t>(settings.num_epochs, 1), " epoch(s) of ",
         data::sample_count(train, settings.max_seq_length), " samples, found steps of ", per_step,
         "; give more data, or lower batch_size, gradient_accumulation_steps or max_seq_length");
  const uint64_t left = asked - std::min(seen, asked);
  return progress.step + static_cast<int64_t>((left + per_step - 1) / per_step);
}

uint64_t schedule_position(double sample, const config::Settings& s, int ranks,
                           const Progress& progress) {
  // Of numbers from a file, which may be anything: what is negative here is beyond 2^63.
  const uint64_t done = static_cast<uint64_t>(progress.step) * samples_per_step(s, ranks);
  const uint64_t at =
      static_cast<uint64_t>(std::llround(sample)) + progress.position.samples - done;
  return at > INT64_MAX ? 0 : at;
}

std::vector<data::LengthStage> length_stages(const config::Settings& s, int ranks,
                                             const Progress& progress) {
  const auto schedule = config::scheduled_lengths(s.length_schedule);
  OCTAVO_ASSERT(schedule.has_value());  // the settings were checked
  std::vector<data::LengthStage> stages;
  for (const config::ScheduledLength& later : *schedule) {
    const auto step = static_cast<uint64_t>(std::llround(later.at * double(s.max_steps)));
    const uint64_t sample = checked_mul(step, samples_per_step(s, ranks), "max_steps");
    const uint64_t at = schedule_position(double(sample), s, ranks, progress);
    if (!stages.empty() && at == stages.back().at) stages.pop_back();  // a run of few steps
    stages.push_back({.at = at, .length = later.length});
  }
  return stages;
}

int64_t sequence_length(const config::Settings& s, int ranks, const Progress& progress,
                        uint64_t position) {
  int64_t length = s.max_seq_length;
  for (const data::LengthStage& stage : length_stages(s, ranks, progress))
    if (stage.at <= position) length = stage.length;
  return length;
}

std::vector<std::string> repeated_sources(const std::vector<monitor::SourceUse>& uses) {
  std::vector<std::string> often;
  for (const monitor::SourceUse& use : uses)
    if (use.epochs > kUsefulEpochs) often.push_back(use.name + printed(" %.3g times", use.epochs));
  return often;
}

void announce_epochs(const Run& run) {
  const uint64_t per_step = samples_per_step(run.settings, run.world.size());
  const uint64_t asked = samples_asked(run.settings, *run.data.train, run.progress.position),
                 seen = run.progress.position.samples;
  if (asked == 0) return;
  if (run.progress.position.mixture != nullptr) {
    log_info(str("the mixture has ", asked, " samples until every source was seen max_epochs ",
                 "times; ", asked - std::min(seen, asked), " are left, in ",
                 run.schedule.max_steps - run.progress.step, " steps of ", per_step));
    return;
  }
  const int64_t epochs = std::max<int64_t>(run.settings.num_epochs, 1);
  if (seen >= asked) {
    log_warn(str("num_epochs ", epochs, " asks for ", asked, " samples, and ", seen,
                 " were seen before: nothing is left to train; raise num_epochs to continue"));
    return;
  }
  const uint64_t last = (asked - seen) % per_step;
  log_info(str("epochs: ", epochs, " of ", asked / static_cast<uint64_t>(epochs), " samples; ",
               seen > 0 ? str(seen, " were seen, ") : "", asked - seen, " are left, in ",
               run.schedule.max_steps - run.progress.step, " steps of ", per_step,
               last > 0 ? str(", the last one of ", last) : ""));
}

optim::Schedule schedule_of(const config::Settings& s, int64_t max_steps) {
  const int64_t automatic = optim::automatic_warmup(max_steps);
  if (s.warmup_steps > max_steps)
    fail(ExitCode::kUsage, "train", "wanted a warm-up of at most the run's ", max_steps,
         " steps, found warmup_steps ", s.warmup_steps,
         ", so that learning_rate would never be reached; lower it, or give --warmup_steps -1 (",
         automatic, " here)");
  return {.max_lr = s.learning_rate,
          .min_lr_ratio = s.min_lr_ratio,
          .warmup_steps = s.warmup_steps >= 0 ? s.warmup_steps : automatic,
          .max_steps = max_steps};
}

Json schedule_json(const optim::Schedule& schedule) {
  return {{"learning_rate", schedule.max_lr},
          {"min_lr_ratio", schedule.min_lr_ratio},
          {"warmup_steps", schedule.warmup_steps},
          {"max_steps", schedule.max_steps}};
}

std::optional<optim::Schedule> saved_schedule(const Json& extra, const std::string& source) {
  if (extra.contains("schedule")) {
    const Json& saved = json_field(extra, "schedule", Json::value_t::object, source);
    return optim::Schedule{.max_lr = number_in(saved, "learning_rate", source),
                           .min_lr_ratio = number_in(saved, "min_lr_ratio", source),
                           .warmup_steps = json_int(saved, "warmup_steps", source),
                           .max_steps = json_int(saved, "max_steps", source)};
  }
  if (!extra.contains("config")) return std::nullopt;
  try {
    const config::Settings s =
        config::parse_text(json_string(extra, "config", source), source).settings;
    if (s.max_steps == 0) return std::nullopt;
    return schedule_of(s, s.max_steps);
  } catch (const Error&) {
    return std::nullopt;  // settings of another version: the run does not depend on them
  }
}

std::string changed_schedule(const optim::Schedule& then, const optim::Schedule& now,
                             int64_t step) {
  std::vector<std::string> changes;
  const auto compare = [&](const char* name, auto before, auto after) {
    if (before != after)
      changes.push_back(
          str(name, " ", config::print_number(before), " -> ", config::print_number(after)));
  };
  compare("max_steps", then.max_steps, now.max_steps);
  compare("warmup_steps", then.warmup_steps, now.warmup_steps);
  compare("learning_rate", then.max_lr, now.max_lr);
  compare("min_lr_ratio", then.min_lr_ratio, now.min_lr_ratio);
  if (changes.empty()) return "";
  std::string text =
      str("resume: the learning-rate schedule is another one: ", join(changes, ", "), ". At step ",
          step, " the rate is ", rate_text(optim::learning_rate(step, now)), ", and was ",
          rate_text(optim::learning_rate(step, then)));
  if (step >= now.max_steps)
    text += str("; nothing is left to train: the checkpoint is at step ", step, " of ",
                now.max_steps, ", raise max_steps to continue");
  return text;
}

}  // namespace octavo::train
