#pragma once
// The files of a repository at one commit, as a server or a cached tree tells them, and which of a
// model's are needed.

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"
#include "hub/hub.h"

namespace octavo::hub {

struct RemoteFile {
  std::string name;
  uint64_t size = 0;
  std::string hash;     // what the blob is called: SHA-256 of an LFS file, else git's blob hash
  std::string blob_id;  // git's hash: of the content, or of the LFS pointer
  bool lfs = false;
};

struct Listing {
  std::string commit;
  std::vector<RemoteFile> files;  // sorted by name
};

constexpr size_t kMaxListingBytes = size_t{64} << 20;

// Of /api/models/{id}/revision/{revision}?blobs=true. Hostile names, sizes and hashes are refused.
Listing parse_listing(const Json& answer, const std::string& source);
// trees/<commit>.json, in and out.
Listing parse_tree(const Json& tree, const std::string& commit, const std::string& source);
Json tree_of(const Listing& listing);

// Top-level JSON files and the chat template; with Parts::kModel the safetensors files, too.
// Fails when the weights are there in other formats only.
std::vector<RemoteFile> model_files(const Listing& listing, Parts parts, const std::string& id);

}  // namespace octavo::hub
