#pragma once

#include <stdlib.h>

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

}  // namespace octavo::verify
