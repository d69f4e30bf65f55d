#include "base/rank_status.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <new>

#include "base/error.h"

namespace octavo {
namespace {

constexpr size_t kBytes = 4096;
static_assert(sizeof(RankPage) <= kBytes);
static_assert(std::atomic<int64_t>::is_always_lock_free);

RankPage* mapped(int descriptor) {
  void* found = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  return found == MAP_FAILED ? nullptr : static_cast<RankPage*>(found);
}

// The variable may be anybody's: a descriptor that is not such a page is left alone.
RankPage* inherited() {
  const char* text = std::getenv(kStatusVariable);
  if (text == nullptr) return nullptr;
  int descriptor = -1;
  const char* end = text + std::strlen(text);
  const auto [stop, error] = std::from_chars(text, end, descriptor);
  ::unsetenv(kStatusVariable);  // programs that this one starts are no ranks
  struct stat status {};
  if (error != std::errc{} || stop != end || descriptor < 0 || ::fstat(descriptor, &status) != 0 ||
      !S_ISREG(status.st_mode) || status.st_size != static_cast<off_t>(kBytes) ||
      ::fcntl(descriptor, F_GET_SEALS) != (F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW))
    return nullptr;
  RankPage* page = mapped(descriptor);
  ::close(descriptor);
  return page;
}

}  // namespace

RankPage& own_page() {
  static RankPage* const page = [] {
    RankPage* found = inherited();
    if (found == nullptr) found = new RankPage;  // for as long as the process lives
    found->layout = kRankPageLayout;
    return found;
  }();
  return *page;
}

void note_failure(Failure failure) {
  own_page().failure = static_cast<uint32_t>(failure);
}

SharedPage::SharedPage() {
  descriptor_ = ::memfd_create("octavo-rank", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  const bool sized =
      descriptor_ >= 0 && ::ftruncate(descriptor_, kBytes) == 0 &&
      ::fcntl(descriptor_, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW) == 0;
  page_ = sized ? mapped(descriptor_) : nullptr;
  if (page_ == nullptr) {
    const int problem = errno;
    if (descriptor_ >= 0) ::close(descriptor_);
    fail_as(Failure::kHostMemory, "base",
            "wanted a page of memory for a rank's status, found: ", std::strerror(problem));
  }
  new (page_) RankPage;
}

SharedPage::~SharedPage() {
  ::munmap(page_, kBytes);
  ::close(descriptor_);
}

Failure SharedPage::failure() const {
  const uint32_t value = page_->failure;
  return page_->layout == kRankPageLayout && value < kFailures ? static_cast<Failure>(value)
                                                               : Failure::kUnknown;
}

}  // namespace octavo
