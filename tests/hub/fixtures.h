#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "base/error.h"
#include "base/file.h"
#include "expect_failure.h"
#include "hub/cache.h"

namespace octavo::hub {

// A Hugging Face home of its own; the network is off.
class HubTest : public testing::Test {
 protected:
  void SetUp() override {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    home_ = fs::temp_directory_path() / str("octavo-hub-", info->name(), "-", ::getpid());
    fs::remove_all(home_);
    fs::create_directories(home_);
    for (const char* name : {"HF_HUB_CACHE", "HF_TOKEN", "HF_TOKEN_PATH"}) ::unsetenv(name);
    ::setenv("HF_HOME", home_.c_str(), 1);
    ::setenv("HF_HUB_OFFLINE", "1", 1);
    ::setenv("HF_ENDPOINT", "http://127.0.0.1:9", 1);  // the discard port: nobody answers
  }
  void TearDown() override { fs::remove_all(home_); }

  fs::path cache() const { return home_ / "hub"; }

  static void write(const fs::path& path, const std::string& text) {
    fs::create_directories(path.parent_path());
    write_file_atomic(path, text);
  }
  // A file as the tools put it: a blob, and a link to it.
  void put(const RepoCache& repo, const std::string& commit, const std::string& name,
           const std::string& text) const {
    const std::string hash(40, static_cast<char>('a' + next_++ % 6));
    const std::string unique = hash + std::to_string(next_);
    write(repo.blob(unique), text);
    repo.link(unique, commit, name);
  }

  fs::path home_;
  mutable int next_ = 0;
};

inline const std::string kCommit = "0123456789abcdef0123456789abcdef01234567";

}  // namespace octavo::hub
