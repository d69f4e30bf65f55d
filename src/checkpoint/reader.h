#pragma once
// An opened checkpoint: finds, checks and puts together rows. Files and lists are opened when first
// needed, and each piece is hashed once. Not for several threads at a time. Private to this module.

#include <map>
#include <optional>
#include <set>
#include <string>

#include "checkpoint/manifest.h"
#include "checkpoint/part_list.h"

namespace octavo::checkpoint {

class Reader {
 public:
  Reader(fs::path checkpoint, Manifest manifest);
  const Manifest& manifest() const { return manifest_; }

  // Types and shapes of a group, by name.
  const std::map<std::string, TensorLocation>& outlines(const std::string& group);
  at::Tensor rows(const std::string& group, const std::string& name, int64_t first, int64_t count);

 private:
  struct OpenFile {
    ManifestFile entry;
    std::map<std::string, ListedPiece> pieces;  // of version 2
    std::optional<SafetensorsReader> reader;
    std::set<std::string> checked;
  };
  // The files of a rank, opened or not; by group.
  std::map<std::string, OpenFile>& files_of(int rank);
  SafetensorsReader& opened(OpenFile& file);
  at::Tensor checked_tensor(OpenFile& file, const std::string& name);
  at::Tensor piece(const std::string& group, const std::string& name, const TensorLocation& place,
                   const PlacedPiece& wanted);
  [[noreturn]] void fail_damaged(const std::string& problem) const;

  fs::path folder_;
  Manifest manifest_;
  std::map<int, std::map<std::string, OpenFile>> files_;
};

}  // namespace octavo::checkpoint
