#pragma once
// One save of one process: all of it, or a rank's part in it. Private to this module.
//
// The ranks of a run meet in the file system and nowhere else. Each writes its files into one
// hidden folder whose name they agree on beforehand, and its list when they are durable. The first
// rank waits for all lists, writes the manifest, and continues as if it had written everything
// itself. The others wait until the folder has got its name, or is gone.

#include <functional>

#include "checkpoint/manifest.h"

namespace octavo::checkpoint {

struct SaveJob {
  fs::path directory;
  State state;
  SaveOptions options;
  Part part;
  int number = 0;                           // of the save in its run, the same on all ranks
  double timeout = 600;                     // seconds to wait for the other ranks
  std::map<std::string, NamedTensors> own;  // what this process writes, by group
  // Bytes of a tensor of `own`; not set: straight from the tensors.
  std::function<void(const std::string& group, const std::string& name, const ByteConsumer& take)>
      feed;
  std::function<void()> check;  // throws when other ranks are not to be waited for any longer
  void stage(std::string_view name) const {
    if (options.on_stage) options.on_stage(name);
  }
};

// Refuses what could not be loaded.
void check_job(const SaveJob& job);
// Returns the checkpoint's folder, which has its name.
fs::path run_save(const SaveJob& job);

// The steps of a save that one process and many ranks have in common.
void check_space(const SaveJob& job);
Manifest begin_manifest(const SaveJob& job);
ManifestFile write_group(const SaveJob& job, const fs::path& folder, const std::string& group,
                         const std::string& file_name);
void write_manifest(const Manifest& manifest, const fs::path& folder);
// The name: from then on it is a checkpoint.
fs::path install(const SaveJob& job, const fs::path& folder);
// The links and the retention, once it has its name.
void move_links(const SaveJob& job);

// With more than one rank.
fs::path save_as_rank(const SaveJob& job);

}  // namespace octavo::checkpoint
