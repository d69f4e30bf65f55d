#pragma once
// Checkpoints of a run in an object store: to it in the background (checkpoint_upload), and from it
// before anything else (resume: s3://…).

#include <functional>
#include <string>
#include <vector>

#include "train/run.h"

namespace octavo::train {

// Refuses a checkpoint_upload, or a server, that could never be used. Asks nobody.
void check_upload(const config::Settings& settings);

// settings.resume, or the local folder that what it names was downloaded to. All ranks together;
// the first one downloads, into the folder that they share.
std::string local_resume(const config::Settings& settings, dist::World& world);

// The permanent checkpoints of this run up to the step that it resumed from: later ones are of a
// branch that was given up.
std::vector<fs::path> permanent_to_upload(const Run& run);
// On the first rank, when checkpoint_upload is given. The checkpoint that the run resumes from and
// its permanent ones are uploaded too, unless they are there: the run before may have been killed
// before they were.
void start_uploads(Run& run);
// After the last save: waits for the uploads, as long as a stop leaves time; `on_progress` is
// called while bytes are sent. Whether all are there.
bool finish_uploads(Run& run, const std::function<void()>& on_progress);
// A run that is done and whose last checkpoint is on one machine only has not done what was asked.
[[noreturn]] void fail_not_uploaded(const Run& run);

}  // namespace octavo::train
