#pragma once
// A fresh folder for a test, removed afterwards.

#include <stdlib.h>

#include <stdexcept>
#include <string>

#include "base/file.h"

namespace octavo {

class Scratch {
 public:
  Scratch() {
    std::string pattern = (fs::temp_directory_path() / "octavo-test-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("mkdtemp " + pattern);
    path_ = pattern;
  }
  ~Scratch() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  fs::path operator/(const fs::path& name) const { return path_ / name; }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

}  // namespace octavo
