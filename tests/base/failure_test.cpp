#include "base/failure.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <new>
#include <stdexcept>

#include "base/file.h"
#include "base/rank_status.h"
#include "scratch.h"

namespace octavo {
namespace {

std::filesystem::filesystem_error of_files(int number) {
  return {"for a test", "a/file", std::error_code(number, std::generic_category())};
}

TEST(Failure, OfErrorNumbers) {
  for (const int number : {EIO, ESTALE, ETIMEDOUT, ENOTCONN, EHOSTDOWN})
    EXPECT_EQ(failure_of(of_files(number)), Failure::kStorage) << number;
  for (const int number : {ENOSPC, EDQUOT})
    EXPECT_EQ(failure_of(of_files(number)), Failure::kStorageFull) << number;
  for (const int number : {ENOENT, EACCES, EPERM, EROFS})
    EXPECT_EQ(failure_of(of_files(number)), Failure::kStorageRefused) << number;
  for (const int number : {ENOMEM, EAGAIN, EMFILE})
    EXPECT_EQ(failure_of(of_files(number)), Failure::kHostMemory) << number;
  EXPECT_EQ(failure_of(of_files(ENOTEMPTY)), Failure::kStorage);
}

TEST(Failure, OfExceptions) {
  EXPECT_EQ(failure_of(std::bad_alloc()), Failure::kHostMemory);
  EXPECT_EQ(failure_of(std::runtime_error("a bug")), Failure::kUnknown);
  EXPECT_FALSE(is_environment(std::logic_error("a bug")));
  EXPECT_TRUE(is_environment(of_files(ESTALE)));
  EXPECT_EQ(failure_of(Error(ExitCode::kEnvironment, "base", "something")), Failure::kUnknown);
  try {
    fail_as(Failure::kNetwork, "base", "number ", 7);
  } catch (const Error& error) {
    EXPECT_EQ(failure_of(error), Failure::kNetwork);
    EXPECT_EQ(error.code(), ExitCode::kEnvironment);
    EXPECT_STREQ(error.what(), "[base] number 7");
  }
}

// A file that cannot be opened says which of the three it is.
TEST(Failure, OfFiles) {
  const Scratch folder;
  try {
    read_file(folder / "none", 10);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(failure_of(error), Failure::kStorageRefused);
  }
}

TEST(RankStatus, ThePageIsShared) {
  const SharedPage shared;
  EXPECT_EQ(shared.failure(), Failure::kUnknown);
  const pid_t child = fork();
  if (child == 0) {
    setenv(kStatusVariable, std::to_string(shared.descriptor()).c_str(), 1);
    note_failure(Failure::kStorageFull);
    own_page().step = 41;
    _exit(std::getenv(kStatusVariable) == nullptr ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(shared.failure(), Failure::kStorageFull);
  EXPECT_EQ(shared.page().step, 41);
}

// The variable may hold anything: a file of the user's is not written into.
TEST(RankStatus, AnotherDescriptorIsLeftAlone) {
  const Scratch folder;
  write_file_atomic(folder / "file", std::string(4096, 'x'));
  const int mine = open((folder / "file").c_str(), O_RDWR);
  for (const std::string& text : {std::to_string(mine), std::string("0x3"), std::string("-1"),
                                  std::string("999999"), std::string()}) {
    const pid_t child = fork();
    if (child == 0) {
      setenv(kStatusVariable, text.c_str(), 1);
      note_failure(Failure::kHang);
      _exit(own_page().failure == static_cast<uint32_t>(Failure::kHang) ? 0 : 1);
    }
    int status = 1;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0) << text;
  }
  close(mine);
  EXPECT_EQ(read_file(folder / "file", 5000), std::string(4096, 'x'));
}

}  // namespace
}  // namespace octavo
