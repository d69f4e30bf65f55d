#include "checkpoint/stream_file.h"

#include <signal.h>
#include <sys/resource.h>

#include <vector>

#include "checkpoint/test_util.h"

namespace octavo::checkpoint {
namespace {

constexpr size_t kBlock = size_t{8} << 20;

std::vector<std::byte> some_bytes(size_t count) {
  std::vector<std::byte> bytes(count);
  for (size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>(i * 7 + i / 251);
  return bytes;
}

TEST(StreamFile, EverySizeAroundABlockIsWrittenAndHashed) {
  Scratch folder;
  for (size_t size :
       {size_t{0}, size_t{1}, kBlock - 1, kBlock, kBlock + 1, 2 * kBlock, 3 * kBlock + 4097}) {
    const auto bytes = some_bytes(size);
    StreamFile file(folder / "x");
    std::span<const std::byte> rest(bytes);
    for (size_t piece = 1; !rest.empty(); piece = piece * 3 + 1) {
      file.write(rest.first(std::min(piece, rest.size())));
      rest = rest.subspan(std::min(piece, rest.size()));
    }
    EXPECT_EQ(file.size(), size);
    EXPECT_EQ(file.close(), hash_bytes(bytes)) << size;
    EXPECT_EQ(fs::file_size(folder / "x"), size);
    EXPECT_EQ(hash_file(folder / "x"), hash_bytes(bytes)) << size;
  }
}

TEST(StreamFile, AFullDiskIsAnErrorOfTheWriter) {
  Scratch folder;
  rlimit old{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &old), 0);
  const auto handler = ::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{kBlock + 12288, old.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const auto bytes = some_bytes(kBlock);
  const std::string message = error_of(ExitCode::kEnvironment, [&] {
    StreamFile file(folder / "x");
    for (int i = 0; i < 4; ++i) file.write(bytes);
    file.close();
  });
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &old), 0);
  ::signal(SIGXFSZ, handler);
  EXPECT_NE(message.find("cannot write"), std::string::npos) << message;
}

}  // namespace
}  // namespace octavo::checkpoint
