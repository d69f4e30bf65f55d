#pragma once
// A timeline of a run as a file in Chrome's trace format, which Perfetto opens (key `trace`). Every
// engine::Range becomes a slice of its thread; a collective, which begins on one thread and may end
// on another, is a Span. Times are the host's: on a GPU a range is when work was launched. Off, it
// costs one relaxed load.

#include <cstdint>
#include <filesystem>
#include <string_view>

namespace octavo::engine::trace {

// What lies beyond is counted, and said by finish(). About 64 MB.
constexpr int64_t kMostEvents = 1'000'000;

// The file of one rank: `path` itself for rank 0, with "-rank<r>" before its extension for others.
std::filesystem::path file_of_rank(const std::filesystem::path& path, int rank);

// Records from here to finish(). A file that cannot be written is refused now and not after hours.
void start(const std::filesystem::path& path, int rank);

// Writes the file, whole or not at all, and stops. Any thread may call it, and again: without
// start() it does nothing. Never throws, since it is also called on the way out of an error: what
// goes wrong is logged.
void finish() noexcept;

// Whether anything is recorded. Ask before a name is put together.
bool is_on();

// Something that is under way between begin() and end(), on any thread. One that was not ended when
// the file is written shows as still open: where a run hung.
class Span {
 public:
  Span() = default;
  Span(Span&& other) noexcept;
  Span& operator=(Span&& other) noexcept;
  Span(const Span&) = delete;
  Span& operator=(const Span&) = delete;
  ~Span() { end(); }
  void end() noexcept;

 private:
  friend Span begin(const char* category, std::string_view name, int64_t bytes);
  const char* category_ = nullptr;
  uint64_t number_ = 0;  // 0: nothing is recorded
  uint32_t name_ = 0;
};

// `category`: a literal, "gather", "reduce" or "other". `name`: "all-gather layers.3".
[[nodiscard]] Span begin(const char* category, std::string_view name, int64_t bytes);

// For engine::Range alone: a name's number (0: off), the time, and a slice of this thread.
uint32_t number_of_name(std::string_view name);
int64_t now_ns();
void add_slice(uint32_t name, int64_t begun_ns) noexcept;

}  // namespace octavo::engine::trace
