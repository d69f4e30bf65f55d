#pragma once
// Parts of remote files on a local disk, within a limit that holds whatever processes do: a part
// has four places, by the hash of its key, and takes that of the oldest part. So ranks of a node
// share a cache without speaking to each other, nothing has to be counted, and a process that is
// killed leaves nothing behind but a temporary file, which the next one removes.
//
// It helps or does nothing: what cannot be written, or is not what was written, is not there.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/fd.h"
#include "data/bytes.h"

namespace octavo::data {

namespace fs = std::filesystem;

class PartCache {
 public:
  // Of a place. Larger parts, of samples or old shards, take several.
  static constexpr uint64_t kLargePart = uint64_t{5} << 18, kSmallPart = uint64_t{1} << 14;

  // Files take `limit` bytes at most, a twentieth of them for small parts. Too little for one part
  // of each kind: nothing is kept.
  PartCache(fs::path folder, uint64_t limit);

  // From any thread, and beside other processes.
  std::optional<Bytes> find(std::string_view key, uint64_t size) const;
  void keep(std::string_view key, std::span<const std::byte> content) const;
  // Held by who reads a part from its server until it is kept: ranks of a machine often need the
  // same one at once. Waits for another holder, but not long; closed: go on without.
  Fd claim(std::string_view key) const;

 private:
  bool find_piece(std::string_view key, std::span<std::byte> content) const;
  void keep_piece(std::string_view key, std::span<const std::byte> content) const;
  std::vector<fs::path> places_of(std::string_view key, uint64_t size) const;
  static fs::path place_for(const std::vector<fs::path>& places);
  void clean() const;

  fs::path folder_;
  uint64_t large_ = 0, small_ = 0;  // places
};

}  // namespace octavo::data
