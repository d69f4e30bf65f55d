#pragma once
// Who may change a folder of prepared data; the kernel lets go of a lock when its process dies.

#include <filesystem>

#include "base/fd.h"

namespace octavo::data {

namespace fs = std::filesystem;

class FolderLock {
 public:
  enum Kind {
    kAlone,         // who comes second waits: trials of a sweep all want the same data at once
    kTogether,      // with all that share a preparation
    kAloneIfItCan,  // as kAlone; on a file system without locks, which is said, with others
  };
  FolderLock(const fs::path& folder, Kind kind);

 private:
  Fd file_;
};

}  // namespace octavo::data
