#include "engine/allocator.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/checked.h"

namespace octavo::engine {
namespace {

constexpr size_t kHugePage = size_t{2} << 20, kKeepFrom = size_t{256} << 10, kAlignment = 64;

// Size classes waste at most an eighth and make the blocks of one step fit the next.
size_t class_of(size_t bytes) {
  if (bytes < kKeepFrom) return bytes;
  if (bytes < kHugePage) return round_up(bytes, size_t{64} << 10);
  return round_up(round_up(bytes, std::bit_floor(bytes) >> 3), kHugePage);
}

class CachingAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    if (bytes == 0) return {nullptr, nullptr, &release, c10::Device(c10::kCPU)};
    const size_t size = class_of(bytes);
    const std::lock_guard lock(mutex_);
    void* block = take_kept(size);
    if (block == nullptr) {
      make_room(size);
      block = take_new(size);
    }
    live_[block] = size;
    use_.in_use += size;
    use_.peak = std::max(use_.peak, use_.in_use);
    return {block, block, &release, c10::Device(c10::kCPU)};
  }

  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }

  MemoryUse use() {
    const std::lock_guard lock(mutex_);
    return use_;
  }
  void reset_peak() {
    const std::lock_guard lock(mutex_);
    use_.peak = use_.in_use;
  }
  void trim() {
    const std::lock_guard lock(mutex_);
    trim_locked();
  }
  void set_limit(size_t bytes) {
    const std::lock_guard lock(mutex_);
    limit_ = bytes;
    if (limit_ > 0 && use_.reserved > limit_) trim_locked();
  }
  size_t limit() {
    const std::lock_guard lock(mutex_);
    return limit_;
  }

  // One per process: c10's deleter carries no context. Never destroyed, because tensors may outlive
  // main().
  static CachingAllocator& instance() {
    static auto* allocator = new CachingAllocator;
    return *allocator;
  }

 private:
  static void release(void* block) {
    if (block != nullptr) instance().give_back(block);
  }

  void give_back(void* block) {
    const std::lock_guard lock(mutex_);
    const auto found = live_.find(block);
    OCTAVO_ASSERT(found != live_.end());
    const size_t size = found->second;
    live_.erase(found);
    use_.in_use -= size;
    if (size >= kKeepFrom) {
      kept_[size].push_back(block);
    } else {
      use_.reserved -= size;
      std::free(block);
    }
  }

  void* take_kept(size_t size) {
    const auto found = kept_.find(size);
    if (found == kept_.end() || found->second.empty()) return nullptr;
    void* block = found->second.back();
    found->second.pop_back();
    return block;
  }

  // What is kept goes before the limit refuses.
  void make_room(size_t size) {
    if (limit_ == 0 || use_.reserved + size <= limit_) return;
    trim_locked();
    if (use_.reserved + size > limit_)
      TORCH_CHECK_WITH(OutOfMemoryError, false, "[engine] out of memory: wanted ", size,
                       " bytes beside ", use_.in_use, " in use, with a limit of ", limit_,
                       " (memory_limit_gb, or what was available at the start)");
  }

  void* take_new(size_t size) {
    void* block = nullptr;
    const size_t alignment = size >= kHugePage ? kHugePage : kAlignment;
    if (::posix_memalign(&block, alignment, size) != 0) {
      trim_locked();
      if (::posix_memalign(&block, alignment, size) != 0)
        TORCH_CHECK_WITH(OutOfMemoryError, false, "[engine] out of memory: wanted ", size,
                         " bytes beside ", use_.in_use,
                         " in use; lower batch_size or max_seq_length");
    }
    use_.reserved += size;
    if (size >= kHugePage)
      ::madvise(block, size, MADV_HUGEPAGE);  // only a hint: a refusal costs speed
    return block;
  }

  void trim_locked() {
    for (auto& [size, blocks] : kept_) {
      for (void* block : blocks) std::free(block);
      use_.reserved -= size * blocks.size();
      blocks.clear();
    }
  }

  std::mutex mutex_;
  std::unordered_map<void*, size_t> live_;
  std::unordered_map<size_t, std::vector<void*>> kept_;
  MemoryUse use_;
  size_t limit_ = 0;
};

// The number behind `name` in a file of lines, or of its first line when there is no name.
size_t number_in(const char* path, const std::string& name, size_t otherwise) {
  std::ifstream file(path);
  std::string word;
  while (file >> word) {
    if (!name.empty() && word != name) continue;
    if (!name.empty()) file >> word;
    size_t value = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
    return error == std::errc{} ? value : otherwise;
  }
  return otherwise;
}

}  // namespace

void install_cpu_allocator() {
  c10::SetCPUAllocator(&CachingAllocator::instance(), /*priority=*/1);
}
MemoryUse cpu_memory() {
  return CachingAllocator::instance().use();
}
void reset_cpu_peak() {
  CachingAllocator::instance().reset_peak();
}
void trim_cpu_memory() {
  CachingAllocator::instance().trim();
}

void limit_cpu_memory(size_t bytes) {
  CachingAllocator::instance().set_limit(bytes);
}

size_t available_cpu_memory() {
  constexpr size_t kNone = std::numeric_limits<size_t>::max();
  const size_t free = number_in("/proc/meminfo", "MemAvailable:", kNone >> 10) << 10;
  const size_t allowed = number_in("/sys/fs/cgroup/memory.max", "", kNone);  // "max": no limit
  const size_t taken = number_in("/sys/fs/cgroup/memory.current", "", 0);
  return allowed == kNone ? free : std::min(free, allowed - std::min(allowed, taken));
}

MemoryUse memory_of(at::Device device) {
  if (device.is_cpu()) return cpu_memory();
  constexpr auto kAll = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  const auto stats = at::getDeviceAllocator(device.type())->getDeviceStats(device.index());
  return {.in_use = static_cast<size_t>(stats.allocated_bytes[kAll].current),
          .peak = static_cast<size_t>(stats.allocated_bytes[kAll].peak),
          .reserved = static_cast<size_t>(stats.reserved_bytes[kAll].current)};
}

void trim_memory(at::Device device) {
  if (device.is_cpu())
    trim_cpu_memory();
  else
    at::getDeviceAllocator(device.type())->emptyCache();
}

void reset_peak(at::Device device) {
  if (device.is_cpu())
    reset_cpu_peak();
  else
    at::getDeviceAllocator(device.type())->resetPeakStats(device.index());
}

size_t memory_limit(at::Device device) {
  if (device.is_cpu()) {
    const size_t limit = CachingAllocator::instance().limit();
    return limit > 0 ? limit : cpu_memory().reserved + available_cpu_memory();
  }
  const auto [free, total] = at::getDeviceAllocator(device.type())->getMemoryInfo(device.index());
  return std::min(total, free + memory_of(device).reserved);
}

}  // namespace octavo::engine
