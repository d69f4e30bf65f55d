#include "train/run_length.h"

#include <algorithm>

#include "base/checked.h"
#include "base/error.h"
#include "base/log.h"

namespace octavo::train {

uint64_t samples_per_step(const Run& run) {
  return static_cast<uint64_t>(run.settings.batch_size * run.settings.gradient_accumulation_steps *
                               run.world.size());
}

uint64_t samples_asked(const Run& run) {
  const auto& s = run.settings;
  if (s.max_steps > 0) return 0;
  return checked_mul(data::sample_count(*run.train_data, s.max_seq_length),
                     static_cast<uint64_t>(std::max<int64_t>(s.num_epochs, 1)), "num_epochs");
}

int64_t steps_asked(const Run& run) {
  if (run.settings.max_steps > 0) return run.settings.max_steps;
  const uint64_t asked = samples_asked(run), seen = run.progress.position.samples;
  const uint64_t per_step = samples_per_step(run);
  if (seen == 0 && asked < per_step)
    fail(ExitCode::kUsage, "train", "wanted at least one step in ",
         std::max<int64_t>(run.settings.num_epochs, 1), " epoch(s) of ",
         data::sample_count(*run.train_data, run.settings.max_seq_length),
         " samples, found steps of ", per_step,
         "; give more data, or lower batch_size, gradient_accumulation_steps or max_seq_length");
  const uint64_t left = asked - std::min(seen, asked);
  return run.progress.step + static_cast<int64_t>((left + per_step - 1) / per_step);
}

void announce_epochs(const Run& run) {
  const uint64_t asked = samples_asked(run), seen = run.progress.position.samples;
  if (asked == 0) return;
  const int64_t epochs = std::max<int64_t>(run.settings.num_epochs, 1);
  if (seen >= asked) {
    log_warn(str("num_epochs ", epochs, " asks for ", asked, " samples, and ", seen,
                 " were seen before: nothing is left to train; raise num_epochs to continue"));
    return;
  }
  const uint64_t last = (asked - seen) % samples_per_step(run);
  log_info(str("epochs: ", epochs, " of ", asked / static_cast<uint64_t>(epochs), " samples; ",
               seen > 0 ? str(seen, " were seen, ") : "", asked - seen, " are left, in ",
               run.schedule.max_steps - run.progress.step, " steps of ", samples_per_step(run),
               last > 0 ? str(", the last one of ", last) : ""));
}

}  // namespace octavo::train
