// A disk that gets full in the middle of a save, at many places: the last good checkpoint stays.
#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <thread>

#include "base/log.h"
#include "checkpoint_faults.h"

namespace octavo::checkpoint::faults {
namespace {

constexpr PlannedSave kGood{1, 10, false, 0, 2000, 3};

// Takes all of the file system but `leave` bytes, for as long as it lives.
class Ballast {
 public:
  Ballast(fs::path path, uint64_t leave) : path_(std::move(path)) {
    const int fd = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0) fail(ExitCode::kEnvironment, "faults", "cannot create ", path_.string());
    // Other ranks write at the same time, so what was free may no longer be.
    for (off_t size = 0; fs::space(path_).available > leave;) {
      const auto more = static_cast<off_t>(fs::space(path_).available - leave);
      if (::posix_fallocate(fd, size, more) == 0) size += more;
    }
    ::close(fd);
  }
  ~Ballast() { fs::remove(path_); }
  Ballast(const Ballast&) = delete;
  Ballast& operator=(const Ballast&) = delete;

 private:
  fs::path path_;
};

// The disk gets full when the save has begun, so that the check of free space does not help.
std::string save_on_full_disk(const fs::path& root, int number, uint64_t leave) {
  const fs::path directory = root / "checkpoints";
  const int ranks = number % 3 == 2 ? 3 : 1;
  if (ranks > 1) leave /= 4;  // the other ranks may have written their parts by then
  PlannedSave next = kGood;
  next.step = 2;
  next.mark = 20;
  std::unique_ptr<Ballast> ballast;
  const uint64_t before = fs::space(root).available;
  const int64_t warnings = warning_count();
  const std::string error = save_planned(
      directory, next, ranks, number % 3 == 1, str("full", number), [&](std::string_view stage) {
        if (stage == "folder") ballast = std::make_unique<Ballast>(root / "ballast", leave);
      });
  if (error.empty()) return "the save did not fail";
  if (number % 3 == 1 && warning_count() == warnings) return "the background save said nothing";
  if (resolved_mark(directory, "latest") != kGood.mark) return "latest is not the good one";
  if (list(directory).size() != 1) return "a save that failed is listed";
  ballast.reset();
  constexpr uint64_t kSlack = 64 << 10;  // a note to the other ranks may stay
  // On a busy machine another rank removes its part a moment after this one has failed.
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (fs::space(root).available + kSlack < before) {
    if (std::chrono::steady_clock::now() > deadline) return "the space was not given back";
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return problem_of(directory / "step-00000001", {kGood.mark});
}

// Less is free than a save needs: nothing is begun.
std::string refuse_before(const fs::path& root, int number) {
  const fs::path directory = root / "checkpoints";
  const Ballast ballast(root / "ballast", 1 << 20);
  PlannedSave next = kGood;
  next.step = 2;
  const std::string error = save_planned(directory, next, 1, false, str("before", number));
  if (!has(error, "free in")) return "wanted a refusal for want of space, found: " + error;
  return hidden_names(directory).empty() ? "" : "something was begun";
}

}  // namespace

int fill_disk(const fs::path& root, int offsets) {
  const fs::path directory = root / "checkpoints";
  const uint64_t empty = fs::space(root).available;
  std::string error = save_planned(directory, kGood, 1, false, "good");
  if (!error.empty()) fail(ExitCode::kEnvironment, "faults", error);
  const uint64_t needed = empty - fs::space(root).available;
  int intact = 0;
  for (int i = 0; i < offsets; ++i) {
    const uint64_t leave = needed * static_cast<uint64_t>(i) / static_cast<uint64_t>(offsets);
    std::string problem = save_on_full_disk(root, i, leave);
    if (problem.empty() && i % 10 == 0) problem = refuse_before(root, i);
    intact += problem.empty() ? 1 : 0;
    if (!problem.empty())
      std::fprintf(stderr, "%llu bytes left: %s\n", static_cast<unsigned long long>(leave),
                   problem.c_str());
  }
  PlannedSave last = kGood;
  last.step = 3;
  last.mark = 30;
  error = save_planned(directory, last, 1, false, "last");
  const bool resumes = error.empty() && resolved_mark(directory, "latest") == last.mark &&
                       hidden_names(directory).empty();
  if (!resumes) std::fprintf(stderr, "with space again, the next save: %s\n", error.c_str());
  std::printf("%s\n",
              Json{{"tried", offsets}, {"intact", intact}, {"needed", needed}}.dump().c_str());
  return intact == offsets && resumes ? 0 : 1;
}

}  // namespace octavo::checkpoint::faults
