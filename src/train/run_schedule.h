#pragma once
// How long a run is, and its learning rate on the way.
//
// With max_steps a run is so many steps. With num_epochs it is so many samples, each of them once
// in every epoch: counted in samples, so that what was seen before a resume counts, whatever a step
// had then. The run ends with the last sample, in a step that may have fewer samples than the
// others.
//
// The learning-rate schedule goes from the settings into checkpoints; a resume with other settings
// is told what it changes.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "config/settings.h"
#include "monitor/step_record.h"
#include "optim/schedule.h"
#include "train/progress.h"

namespace octavo::train {

// Samples that a run of whole epochs sees in all; 0 when max_steps decides. Of a mixture: until all
// its sources are used up (max_epochs).
uint64_t samples_asked(const config::Settings& settings, const data::TokenData& train,
                       const data::Position& position = {});

// Steps of the run in all: those done before a resume, and those that the rest of the samples take.
// Refuses an epoch that is not one whole step.
int64_t steps_asked(const config::Settings& settings, int ranks, const data::TokenData& train,
                    const Progress& progress);

// Of a step on all ranks.
uint64_t samples_per_step(const config::Settings& settings, int ranks);

// Where in the data a schedule reaches `sample`, which counts today's steps from the run's first:
// steps before a resume may have had more samples or fewer.
uint64_t schedule_position(double sample, const config::Settings& settings, int ranks,
                           const Progress& progress);

// Of length_schedule: where sequences become longer or shorter, in whole steps.
std::vector<data::LengthStage> length_stages(const config::Settings& settings, int ranks,
                                             const Progress& progress);
// Of the sample at that position.
int64_t sequence_length(const config::Settings& settings, int ranks, const Progress& progress,
                        uint64_t position);

// Passes over the same text beyond which repeating is known to give little (Muennighoff et al.,
// Scaling Data-Constrained Language Models, 2023).
inline constexpr double kUsefulEpochs = 4;
// "web 6.2 times": the sources of a mixture that come more often.
std::vector<std::string> repeated_sources(const std::vector<monitor::SourceUse>& uses);

struct Run;
// Says what is left of a run of whole epochs.
void announce_epochs(const Run& run);

// Refuses a warm-up that is longer than the run, whose learning_rate would never be reached.
optim::Schedule schedule_of(const config::Settings& settings, int64_t max_steps);

// A checkpoint's part, and back. Checkpoints of older versions have the run's settings alone:
// nothing when its length was in epochs.
Json schedule_json(const optim::Schedule& schedule);
std::optional<optim::Schedule> saved_schedule(const Json& extra, const std::string& source);

// What a run that is at `step` is told when its schedule is not the checkpoint's; "" when it is.
std::string changed_schedule(const optim::Schedule& then, const optim::Schedule& now, int64_t step);

}  // namespace octavo::train
