#pragma once
// A log that a test writes and reads.

#include <gtest/gtest.h>

#include <string>

#include "base/error.h"
#include "foreign_logs/log.h"
#include "scratch.h"

namespace octavo::foreign_logs {

class LogTest : public testing::Test {
 protected:
  fs::path write(const fs::path& name, std::string_view content) {
    const fs::path path = scratch_ / name;
    fs::create_directories(path.parent_path());
    write_file_atomic(path, content);
    return path;
  }
  Log read(std::string_view content, const Options& options = {}) {
    return read_log(write("log", content), options);
  }
  Scratch scratch_;
};

inline bool has_remark(const Log& log, std::string_view part) {
  for (const std::string& remark : log.remarks)
    if (remark.find(part) != remark.npos) return true;
  return false;
}

}  // namespace octavo::foreign_logs
