#pragma once
// Files of a repository into the cache: resumed, verified, one process at a time per file.

#include <string>
#include <vector>

#include "base/progress.h"
#include "hub/cache.h"
#include "hub/http.h"
#include "hub/listing.h"

namespace octavo::hub {

// What the server says of the repository at its revision. Fails with what to do when it cannot.
Listing fetch_listing(Http& http, const RepoCache& cache);

// Fetches what is not there yet into blobs and links it into the snapshot. The ref is not written.
void fetch_files(Http& http, const RepoCache& cache, const std::string& commit,
                 const std::vector<RemoteFile>& files);

// An exclusive lock that huggingface_hub honours, too: flock on a file that stays.
class BlobLock {
 public:
  explicit BlobLock(const fs::path& path);
  ~BlobLock();
  BlobLock(const BlobLock&) = delete;
  BlobLock& operator=(const BlobLock&) = delete;

 private:
  int fd_ = -1;
};

}  // namespace octavo::hub
