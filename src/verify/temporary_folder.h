#pragma once

#include <stdlib.h>

#include <vector>

#include "base/error.h"
#include "base/file.h"

namespace octavo::verify {

// A folder that goes away with the object.
class TemporaryFolder {
 public:
  explicit TemporaryFolder(const fs::path& parent = fs::temp_directory_path()) {
    std::string name = (parent / "octavo-verify-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr)
      fail(ExitCode::kEnvironment, "verify", "wanted a folder ", name,
           ", found that it cannot be made; choose a folder that can be written to (TMPDIR, "
           "checkpoint_dir)");
    path_ = name;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

// A folder that is there while the object lives. Of it and its parents, those that were not there
// before go away with it, unless something else was put in.
class ScopedFolder {
 public:
  explicit ScopedFolder(const fs::path& folder) {
    std::error_code ignored;
    for (fs::path place = fs::absolute(folder).lexically_normal(); !fs::exists(place, ignored);
         place = place.parent_path())
      made_.push_back(place);
    fs::create_directories(folder, ignored);  // whoever writes there says what is wrong
  }
  ~ScopedFolder() {
    std::error_code ignored;
    for (const fs::path& place : made_) fs::remove(place, ignored);
  }
  ScopedFolder(const ScopedFolder&) = delete;
  ScopedFolder& operator=(const ScopedFolder&) = delete;

 private:
  std::vector<fs::path> made_;  // the innermost first
};

}  // namespace octavo::verify
