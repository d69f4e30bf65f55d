#include "train/state/remote.h"

#include "base/error.h"
#include "base/log.h"
#include "base/progress.h"
#include "base/signals.h"
#include "checkpoint/download.h"
#include "checkpoint/manifest.h"
#include "object_store/address.h"
#include "train/state/persist.h"

namespace octavo::train {

void check_upload(const config::Settings& settings) {
  try {
    if (!settings.checkpoint_upload.empty()) object_store::path_of(settings.checkpoint_upload);
  } catch (const Error& error) {
    fail(error.code(), "train", "checkpoint_upload: ", error.what());
  }
  if (!settings.checkpoint_upload.empty() || object_store::is_s3_address(settings.resume))
    object_store::endpoint_from_environment();
}

std::string local_resume(const config::Settings& settings, dist::World& world) {
  if (!object_store::is_s3_address(settings.resume)) return settings.resume;
  std::string folder;
  world.rank_zero_first("the checkpoint from " + settings.resume, [&] {
    if (!world.is_first()) return;
    folder = checkpoint::download(*object_store::s3(), settings.resume, checkpoint_dir(settings))
                 .string();
  });
  return world.from_first(folder, "the checkpoint that was downloaded");
}

std::vector<fs::path> permanent_to_upload(const Run& run) {
  const config::Settings& s = run.settings;
  Json own = {{"run_name", s.run_name}};
  if (!run.claim.run_id.empty()) own["run_id"] = run.claim.run_id;
  std::vector<fs::path> found;
  for (const checkpoint::Summary& saved :
       checkpoint::list(checkpoint_folder(s), s.permanent_checkpoint_freq)) {
    if (!saved.is_permanent || checkpoint::is_of_another_run(saved.run, saved.run_id, own))
      continue;
    if (saved.step <= run.resumed.step)
      found.push_back(saved.path);
    else
      log_info(str("checkpoint: ", saved.path.string(),
                   " is not uploaded: the run resumes from step ", run.resumed.step,
                   ", before it"));
  }
  return found;
}

void start_uploads(Run& run) {
  const config::Settings& s = run.settings;
  if (s.checkpoint_upload.empty() || !run.world.is_first()) return;
  const std::string address = object_store::join(s.checkpoint_upload, s.run_name);
  run.uploader = std::make_unique<checkpoint::Uploader>(
      address, object_store::s3(),
      checkpoint::UploaderOptions{.keep = static_cast<int>(s.keep_checkpoints),
                                  .permanent_every = s.permanent_checkpoint_freq});
  log_info(str("checkpoints are uploaded to ", address));
  const fs::path from = run.resumed.from;
  std::error_code none;
  bool is_added = false;
  for (const fs::path& saved : permanent_to_upload(run)) {
    run.uploader->add(saved, /*permanent=*/true);
    is_added |= fs::equivalent(saved, from, none);
  }
  if (!from.empty() && !is_added && fs::equivalent(from.parent_path(), checkpoint_folder(s), none))
    run.uploader->add(from);
}

bool finish_uploads(Run& run, const std::function<void()>& on_progress) {
  if (run.uploader == nullptr) return true;
  // Of a notice of 30 s; a run that was not asked to stop waits as long as uploads get on.
  constexpr double kStopSeconds = 27;
  constexpr int64_t kAttempts = 5;
  const bool all = run.uploader->wait(
      kAttempts, [] { return stop_requested() && seconds_since_stop_request() > kStopSeconds; },
      on_progress);
  const checkpoint::Uploader::Counts counts = run.uploader->counts();
  log_info(str("uploaded ", counts.uploads - counts.there_before, " checkpoints (",
               format_bytes(static_cast<double>(counts.bytes)), ") to ", run.uploader->address(),
               counts.there_before > 0 ? str(", ", counts.there_before, " were there") : "",
               counts.passed_over > 0 ? str(", passed over ", counts.passed_over) : "",
               counts.given_up > 0 ? str(", gave up ", counts.given_up) : "",
               counts.failed > 0 ? str(", ", counts.failed, " attempts failed") : ""));
  if (all) remove_old_checkpoints(run);  // what waited for its upload
  return all;
}

void fail_not_uploaded(const Run& run) {
  // kEnvironment would have launchers start the run again, which finds the same folder.
  if (run.uploader->only_given_up_is_missing())
    fail(ExitCode::kDamaged, "train", "the run is done and its checkpoints are in ",
         checkpoint_folder(run.settings).string(), ", but wanted the permanent ones in ",
         run.uploader->address(), ", found ", run.uploader->counts().given_up,
         " that can never be uploaded (damaged, or gone from the disk); remove or move the folder "
         "that the line CHECKPOINT NOT UPLOADED names");
  fail(ExitCode::kEnvironment, "train", "the run is done and its checkpoints are in ",
       checkpoint_folder(run.settings).string(), ", but not all that belong there in ",
       run.uploader->address(),
       "; the lines CHECKPOINT NOT UPLOADED say why: give the same command with --resume latest "
       "to upload it");
}

}  // namespace octavo::train
