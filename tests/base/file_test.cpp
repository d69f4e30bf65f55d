#include "base/file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <thread>
#include <vector>

#include "expect_failure.h"
#include "scratch.h"

namespace octavo {
namespace {

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

TEST(WriteFileAtomic, ReplacesWholeAndLeavesNothingElse) {
  const Scratch scratch;
  write_file_atomic(scratch / "a", "first");
  write_file_atomic(scratch / "a", std::string("sec\0nd", 6));
  EXPECT_EQ(read_file(scratch / "a", 100), std::string("sec\0nd", 6));
  EXPECT_EQ(std::distance(fs::directory_iterator(scratch.path()), {}), 1);
}

TEST(WriteFileAtomic, AFailureKeepsTheOldFile) {
  const Scratch scratch;
  expect_failure(ExitCode::kEnvironment, "cannot create",
                 [&] { write_file_atomic(scratch / "none/a", "x"); });
  // By the name that was typed, and not by that of the file which becomes it.
  expect_failure(ExitCode::kEnvironment, "none/a: No such file or directory",
                 [&] { write_file_atomic(scratch / "none/a", "x"); });
  // A folder in the target's place: the rename fails, and what is there stays.
  fs::create_directory(scratch / "folder");
  write_file_atomic(scratch / "folder/kept", "x");
  expect_failure(ExitCode::kEnvironment, "rename",
                 [&] { write_file_atomic(scratch / "folder", "y"); });
  EXPECT_EQ(read_file(scratch / "folder/kept", 10), "x");
}

// As the first rank of a save does when the last rank's list is there.
TEST(WriteFileAtomic, TheFolderMayBeRenamedAsSoonAsTheFileIsSeen) {
  const Scratch scratch;
  for (int round = 0; round < 300; ++round) {
    const fs::path folder = scratch / std::to_string(round), renamed = folder.string() + "-done";
    fs::create_directory(folder);
    std::thread waiting([&] {
      while (::access((folder / "list").c_str(), F_OK) != 0) {
      }
      fs::rename(folder, renamed);
    });
    EXPECT_NO_THROW(write_file_atomic(folder / "list", "x"));
    waiting.join();
    ASSERT_EQ(read_file(renamed / "list", 10), "x");
    if (HasFailure()) break;
  }
}

TEST(ReadFile, IsBoundedAndRefusesWhatIsNoFile) {
  const Scratch scratch;
  write_file_atomic(scratch / "a", "12345");
  EXPECT_EQ(read_file(scratch / "a", 5), "12345");
  expect_failure(ExitCode::kDamaged, "at most 4", [&] { read_file(scratch / "a", 4); });
  expect_failure(ExitCode::kEnvironment, "cannot open", [&] { read_file(scratch / "b", 4); });
  expect_failure(ExitCode::kUsage, "regular file", [&] { read_file(scratch.path(), 4); });
  // A pipe without a writer must be refused, not waited for.
  ASSERT_EQ(::mkfifo((scratch / "pipe").c_str(), 0600), 0);
  expect_failure(ExitCode::kUsage, "regular file", [&] { read_file(scratch / "pipe", 4); });
  expect_failure(ExitCode::kUsage, "regular file", [&] { MappedFile map(scratch / "pipe"); });
}

TEST(FileWriter, HashSizeAndPadding) {
  const Scratch scratch;
  FileWriter writer(scratch / "a");
  writer.write("abc");
  writer.pad_to(8);
  EXPECT_EQ(writer.size(), 8u);
  writer.pad_to(8);
  EXPECT_EQ(writer.size(), 8u);
  writer.write(bytes_of("d"));
  writer.pad_to(10'000);
  const std::string hash = writer.close();
  const std::string content = read_file(scratch / "a", 1 << 20);
  EXPECT_EQ(content, std::string("abc\0\0\0\0\0d", 9) + std::string(9'991, '\0'));
  EXPECT_EQ(hash, hash_file(scratch / "a"));
  EXPECT_EQ(hash, hash_bytes(bytes_of(content)));
  EXPECT_THROW(hash_file(scratch / "a", [] { throw std::runtime_error("enough"); }),
               std::runtime_error);
  EXPECT_EQ(hash.size(), 32u);
}

// XXH3-128 of nothing, as `xxhsum -H2 /dev/null` prints it.
TEST(Hash, KnownAnswer) {
  EXPECT_EQ(hash_bytes({}), "99aa06d3014798d86001c324468d497f");
  EXPECT_NE(hash_bytes(bytes_of("a")), hash_bytes(bytes_of("b")));
  EXPECT_EQ(hash_text("a"), hash_bytes(bytes_of("a")));
}

TEST(MappedFile, SeesTheBytes) {
  const Scratch scratch;
  write_file_atomic(scratch / "a", "hello");
  write_file_atomic(scratch / "empty", "");
  const MappedFile map(scratch / "a"), empty(scratch / "empty");
  EXPECT_EQ(hash_bytes(map.bytes()), hash_bytes(bytes_of("hello")));
  EXPECT_TRUE(empty.bytes().empty());
  expect_failure(ExitCode::kEnvironment, "cannot open", [&] { MappedFile none(scratch / "b"); });
}

TEST(JoinInside, RefusesWhatCouldLeave) {
  const fs::path folder = "some/folder";
  EXPECT_EQ(join_inside(folder, "a.bin"), folder / "a.bin");
  EXPECT_EQ(join_inside(folder, "sub/a..b"), folder / "sub/a..b");
  for (const std::string name :
       {"", "/etc/passwd", "..", "../a", "a/../../b", "a/..", "a\nb", "a\x7f", "//a"})
    expect_failure(ExitCode::kDamaged, "refused", [&] { join_inside(folder, name); });
  expect_failure(ExitCode::kDamaged, "file name",
                 [&] { join_inside(folder, std::string_view("a\0b", 3)); });
  expect_failure(ExitCode::kDamaged, "refused",
                 [&] { join_inside(folder, std::string(1025, 'a')); });
}

}  // namespace
}  // namespace octavo
