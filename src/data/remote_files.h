#pragma once
// The shards of a data set that lies on an object store: ranges of them are asked for, and kept on
// a local disk once they were checked.

#include <atomic>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "data/bytes.h"
#include "data/part_cache.h"
#include "object_store/object_store.h"

namespace octavo::data {

// Where parts of remote files are kept; no bytes: nowhere.
struct LocalCache {
  fs::path folder;
  uint64_t bytes = 0;
};

class RemoteFiles {
 public:
  RemoteFiles(std::shared_ptr<object_store::ObjectStore> store, const LocalCache& cache);

  // A range of a file; `version` stands for its content: another one is read anew.
  struct Range {
    std::string address;
    std::string version;
    uint64_t begin = 0, end = 0;
    std::string key() const;
  };
  struct Part {
    Bytes bytes;
    bool is_fresh = false;  // from the server: to be kept when it is good
    Fd claim;               // to be held until then
  };
  // From any thread, which has no other claim. Without one, other processes may ask for the same.
  Part read(const Range& range, bool claims);
  void keep(const Range& range, std::span<const std::byte> bytes) const;

  struct Counts {
    uint64_t requests = 0, bytes = 0;  // of ranges, from the server
    uint64_t cached_bytes = 0;         // from the disk instead
  };
  Counts counts() const { return {requests_, bytes_, cached_bytes_}; }

 private:
  using Reader = std::shared_ptr<object_store::ObjectReader>;
  Reader reader_of(const std::string& address);
  std::optional<Bytes> find(const Range& range);  // in the cache

  const std::shared_ptr<object_store::ObjectStore> store_;
  std::optional<PartCache> cache_;
  std::mutex mutex_;
  std::list<std::pair<std::string, Reader>> readers_;  // most recently used first
  std::unordered_map<std::string, decltype(readers_)::iterator> places_;
  std::atomic<uint64_t> requests_{0}, bytes_{0}, cached_bytes_{0};
};

// Of the data set at an address s3://…; none for a folder.
std::shared_ptr<RemoteFiles> remote_files_of(const fs::path& folder, const LocalCache& cache);

}  // namespace octavo::data
