#pragma once
// One checkpoint to an object store, and which of those there stay. Private to this module.
//
// Objects of a run, below its address:
//   step-00000250/model.safetensors …   the files of the local folder, by the same names
//   step-00000250/manifest.json         put last and removed first: without it there is no
//                                       checkpoint, only objects
//   best_model                          the name of a step, as the local link

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "object_store/object_store.h"

namespace octavo::checkpoint {

struct UploadJob {
  std::string address;  // of the run
  fs::path folder;      // of the checkpoint
  // Between parts; throws when the upload is to end.
  std::function<void()> check;
  // Kept over attempts: the manifest's text, its files that are there, and bytes that were sent.
  std::string manifest;
  std::set<std::string> done;
  uint64_t sent = 0, bytes = 0;  // bytes: of the checkpoint, known after the manifest was read
  Json extra = Json::object();   // of the manifest, likewise
  std::function<void()> on_progress;
};

enum class Uploaded { kNow, kBefore };

// Every file is compared with the manifest's hash on the way: what the disk damaged is an error
// (kDamaged) and does not become a checkpoint; what cannot be read is one of kEnvironment. kBefore:
// it was there already.
Uploaded upload_checkpoint(object_store::ObjectStore& store, UploadJob& job);

// After a checkpoint was uploaded: of this run's (`extra` says whose) the `keep` saved last stay,
// best_model's and the permanent ones; objects of uploads that were not finished go, but for those
// of `waiting` (names of step folders), which are tried again. keep 0: all stay. Returns how many
// checkpoints were removed.
int64_t keep_uploaded(object_store::ObjectStore& store, const std::string& address, int keep,
                      int64_t permanent_every, const Json& extra,
                      const std::set<std::string>& waiting = {});

// Folders of steps below a run's address, and whether they have a manifest. Names that are not ours
// are left out.
struct RemoteStep {
  int64_t step = 0;
  std::string address;
  bool has_manifest = false;
};
std::vector<RemoteStep> remote_steps(object_store::ObjectStore& store, const std::string& address);

}  // namespace octavo::checkpoint
