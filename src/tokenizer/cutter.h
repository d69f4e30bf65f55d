#pragma once
// Where a pre-tokenizer cuts a text, given the places where its pattern matches.

#include <cstddef>
#include <cstdint>
#include <vector>

namespace octavo::tokenizer {

enum class CutMode {
  kIsolated,    // in front of each match and behind it
  kBefore,      // in front of it: the match belongs to what follows (MergedWithNext)
  kAfter,       // behind it (MergedWithPrevious)
  kContiguous,  // as kIsolated, but matches that touch stay together
};

// Matches come in order and do not overlap; no piece is empty.
class Cutter {
 public:
  Cutter(CutMode mode, uint32_t base, std::vector<uint32_t>& ends)
      : mode_(mode), base_(base), ends_(ends) {}

  void match(size_t begin, size_t end) {
    if (mode_ == CutMode::kContiguous) {
      if (begin != run_end_) {
        cut(run_end_);
        cut(begin);
      }
      run_end_ = end;
      return;
    }
    if (mode_ != CutMode::kAfter) cut(begin);
    if (mode_ != CutMode::kBefore) cut(end);
  }

  void finish(size_t size) {
    if (mode_ == CutMode::kContiguous) cut(run_end_);
    cut(size);
  }

 private:
  void cut(size_t at) {
    if (at <= last_) return;
    ends_.push_back(base_ + static_cast<uint32_t>(at));
    last_ = at;
  }

  CutMode mode_;
  uint32_t base_;
  std::vector<uint32_t>& ends_;
  size_t last_ = 0, run_end_ = 0;
};

}  // namespace octavo::tokenizer
