#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <stdexcept>
#include <string>

#include "base/error.h"
#include "base/file.h"

namespace octavo {

// A fresh folder, removed afterwards.
class Scratch {
 public:
  Scratch() {
    std::string pattern = (fs::temp_directory_path() / "octavo-base-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("mkdtemp " + pattern);
    path_ = pattern;
  }
  ~Scratch() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  fs::path operator/(const std::string& name) const { return path_ / name; }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

// `action` must fail with `code` and a message that holds `part`.
template <typename Action>
void expect_failure(ExitCode code, const std::string& part, Action&& action) {
  try {
    action();
    ADD_FAILURE() << "was not refused; wanted a message with: " << part;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos)
        << "wanted '" << part << "' in: " << error.what();
  }
}

}  // namespace octavo
