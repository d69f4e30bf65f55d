#pragma once
// What a rank says to its launcher without a message: one page of memory that both have, which
// outlives the rank however it ends. A process that no launcher started has a page of its own.

#include <atomic>
#include <cstdint>
#include <memory>

#include "base/failure.h"

namespace octavo {

struct RankPage {
  std::atomic<uint32_t> layout{0};     // kRankPageLayout once the rank has found the page
  std::atomic<uint32_t> failure{0};    // a Failure: why it leaves, if it said so
  std::atomic<int64_t> step{-1};       // in progress; -1: none yet
  std::atomic<int64_t> pulse{0};       // monotonic ns: when the process last showed that it runs
  std::atomic<int64_t> hang_limit{0};  // ns within which it does so again; 0: it does not
  std::atomic<uint32_t> has_run_folder{0};  // the rank writes into its run's folder
  // The launcher's, before it asks a rank to stop: it starts the ranks again afterwards.
  std::atomic<uint32_t> launcher_continues{0};
  // With Failure::kHang: 1 + the rank that hangs; 0: this one.
  std::atomic<uint32_t> hanging{0};
  std::atomic<uint32_t> makes_no_more_steps{0};  // it saves, uploads and ends
};
inline constexpr uint32_t kRankPageLayout = 0x0c7a0003;
inline constexpr const char* kStatusVariable = "OCTAVO_STATUS_FD";

// Of this process. The first call takes the launcher's page, so make it before other threads run.
RankPage& own_page();
void note_failure(Failure failure);

// The launcher's side: made before a rank starts, handed on as a descriptor.
class SharedPage {
 public:
  SharedPage();
  ~SharedPage();
  SharedPage(const SharedPage&) = delete;
  SharedPage& operator=(const SharedPage&) = delete;
  int descriptor() const { return descriptor_; }
  Failure failure() const;  // kUnknown when the rank said none, or nonsense
  const RankPage& page() const { return *page_; }
  RankPage& page() { return *page_; }

 private:
  int descriptor_ = -1;
  RankPage* page_ = nullptr;
};

}  // namespace octavo
