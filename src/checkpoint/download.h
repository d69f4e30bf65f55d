#pragma once
// A checkpoint from an object store to the disk, whole and compared with its manifest, before
// anybody reads it. The way there is upload.h's.

#include <string>

#include "base/file.h"
#include "object_store/object_store.h"

namespace octavo::checkpoint {

// `address`: s3://bucket/prefix/<run> for the run's checkpoint that was saved last, or
// s3://bucket/prefix/<run>/step-00000250. Returns the folder, checkpoint_dir/<run>/step-…; what
// is there already and whole is not downloaded again. Where the newest one is damaged or incomplete
// the next older one is taken, with a warning; a named one is an error then.
fs::path download(object_store::ObjectStore& store, const std::string& address,
                  const fs::path& checkpoint_dir);

}  // namespace octavo::checkpoint
