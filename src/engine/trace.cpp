#include "engine/trace.h"

#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"

namespace octavo::engine::trace {
namespace {

struct Event {
  char phase = 'X';           // X: a slice; b, e: a span's begin and end
  int thread = 0;             // from 1
  uint32_t name = 0;          // from 1
  const char* category = "";  // literals
  int64_t at_ns = 0, length_ns = 0;
  uint64_t span = 0;
  int64_t bytes = 0;
};

// One per process. Never destroyed: threads may still end spans while main() returns.
struct Recorder {
  std::mutex mutex;
  std::vector<Event> events;
  int64_t promised = 0, dropped = 0;  // promised: events, and the ends of spans that were begun
  fs::path file;
  int rank = 0;
  uint64_t spans = 0, first_span = 1;  // begun in this process; the first of this file
  // Names and threads of the whole process: what is open when a second file begins keeps its own.
  std::unordered_map<std::string, uint32_t> numbers;
  std::vector<std::string> names, threads;
};

std::atomic<bool> recording{false};

Recorder& recorder() {
  static auto* made = new Recorder;
  return *made;
}

// The number of the calling thread; `r` is locked.
int this_thread(Recorder& r) {
  thread_local int number = 0;
  if (number == 0) {
    char name[16] = "";  // what Linux allows
    pthread_getname_np(pthread_self(), name, sizeof name);
    r.threads.emplace_back(::gettid() == ::getpid() ? "main" : name);
    number = static_cast<int>(r.threads.size());
  }
  return number;
}

uint32_t intern(Recorder& r, std::string_view name) {
  const auto [found, is_new] =
      r.numbers.try_emplace(std::string(name), static_cast<uint32_t>(r.names.size() + 1));
  if (is_new) r.names.emplace_back(name);
  return found->second;
}

// Room for `events` more; `r` is locked. Memory was reserved by start().
bool promise(Recorder& r, int64_t events) {
  if (r.promised + events > kMostEvents) {
    r.dropped += events;
    return false;
  }
  r.promised += events;
  return true;
}

// Wall time, so that the files of several nodes lie over one another as well as their clocks do,
// that never goes back.
int64_t wall_ns() {
  using std::chrono::duration_cast, std::chrono::nanoseconds;
  static const auto offset = std::chrono::system_clock::now().time_since_epoch() -
                             std::chrono::steady_clock::now().time_since_epoch();
  return duration_cast<nanoseconds>(std::chrono::steady_clock::now().time_since_epoch() + offset)
      .count();
}

std::string microseconds(int64_t ns) {
  char text[32];
  std::snprintf(text, sizeof text, "%lld.%03lld", static_cast<long long>(ns / 1000),
                static_cast<long long>(ns % 1000));
  return text;
}

std::string quoted(const std::string& text) {
  using Json = nlohmann::json;
  return Json(text).dump(-1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace);
}

struct Recorded {
  std::vector<Event> events;
  std::vector<std::string> names, threads;
  fs::path file;
  int rank = 0;
  int64_t dropped = 0;
};

std::string line_of(const Event& event, const Recorded& recorded) {
  std::string line =
      octavo::str(R"({"ph":")", event.phase, R"(","pid":)", recorded.rank, R"(,"tid":)",
                  event.thread, R"(,"ts":)", microseconds(event.at_ns), R"(,"name":)",
                  quoted(recorded.names.at(event.name - 1)), R"(,"cat":")", event.category, '"');
  if (event.phase == 'X')
    line += octavo::str(R"(,"dur":)", microseconds(event.length_ns));
  else  // unique over ranks, whose files may be put together
    line += octavo::str(R"(,"id":"rank)", recorded.rank, '-', event.span, '"');
  if (event.phase == 'b') line += octavo::str(R"(,"args":{"bytes":)", event.bytes, "}");
  return line + "}";
}

fs::path temporary_of(const fs::path& file) {
  return file.string() + octavo::str(".tmp-", ::getpid());
}

void write(const Recorded& recorded) {
  const fs::path temporary = temporary_of(recorded.file);
  FileWriter writer(temporary);
  std::string text =
      octavo::str(R"({"displayTimeUnit":"ms","otherData":{"dropped":)", recorded.dropped,
                  "},\n\"traceEvents\":[\n", R"({"ph":"M","name":"process_name","pid":)",
                  recorded.rank, R"(,"args":{"name":"rank )", recorded.rank, "\"}}");
  for (size_t i = 0; i < recorded.threads.size(); ++i)
    text +=
        octavo::str(",\n", R"({"ph":"M","name":"thread_name","pid":)", recorded.rank, R"(,"tid":)",
                    i + 1, R"(,"args":{"name":)", quoted(recorded.threads[i]), "}}");
  for (const Event& event : recorded.events) {
    text += ",\n" + line_of(event, recorded);
    if (text.size() < size_t{1} << 20) continue;
    writer.write(text);
    text.clear();
  }
  writer.write(text + "\n]}\n");
  writer.close();
  fs::rename(temporary, recorded.file);
}

}  // namespace

fs::path file_of_rank(const fs::path& path, int rank) {
  if (rank == 0) return path;
  fs::path named = path.stem();
  named += octavo::str("-rank", rank);
  named += path.extension();
  return path.parent_path() / named;
}

void start(const fs::path& path, int rank) {
  const fs::path file = file_of_rank(path, rank);
  if (file.has_parent_path()) fs::create_directories(file.parent_path());
  { const FileWriter attempt(temporary_of(file)); }
  fs::remove(temporary_of(file));

  Recorder& r = recorder();
  const std::lock_guard lock(r.mutex);
  if (!r.file.empty())
    fail(ExitCode::kUsage, "engine", "a trace to ", r.file.string(), " is being recorded; wanted ",
         "its end before one to ", file.string());
  r.events.clear();
  r.events.reserve(kMostEvents);
  r.promised = r.dropped = 0;
  r.file = file;
  r.rank = rank;
  r.first_span = r.spans + 1;
  wall_ns();
  recording.store(true, std::memory_order_relaxed);
}

void finish() noexcept {
  try {
    Recorded recorded;
    {
      Recorder& r = recorder();
      const std::lock_guard lock(r.mutex);
      recording.store(false, std::memory_order_relaxed);
      if (r.file.empty()) return;
      recorded = {std::move(r.events), r.names, r.threads, std::move(r.file), r.rank, r.dropped};
      r.events = {};
      r.file.clear();
    }
    if (recorded.dropped > 0)
      log_warn(octavo::str("trace: ", recorded.dropped, " events beyond the first ", kMostEvents,
                           " were dropped; record fewer steps"));
    write(recorded);
    log_info(octavo::str("trace: ", recorded.events.size(), " events in ", recorded.file.string(),
                         "; open it at ui.perfetto.dev"));
  } catch (const std::exception& error) {
    log_error(octavo::str("the trace was not written: ", error.what()));
  }
}

bool is_on() {
  return recording.load(std::memory_order_relaxed);
}

Span::Span(Span&& other) noexcept
    : category_(other.category_), number_(std::exchange(other.number_, 0)), name_(other.name_) {}

Span& Span::operator=(Span&& other) noexcept {
  if (this == &other) return *this;
  end();
  category_ = other.category_;
  number_ = std::exchange(other.number_, 0);
  name_ = other.name_;
  return *this;
}

Span begin(const char* category, std::string_view name, int64_t bytes) {
  Span span;
  if (!is_on()) return span;
  Recorder& r = recorder();
  const std::lock_guard lock(r.mutex);
  if (!is_on() || !promise(r, 2)) return span;
  span.category_ = category;
  span.name_ = intern(r, name);
  span.number_ = ++r.spans;
  r.events.push_back(
      {'b', this_thread(r), span.name_, category, wall_ns(), 0, span.number_, bytes});
  return span;
}

void Span::end() noexcept {
  const uint64_t number = std::exchange(number_, 0);
  if (number == 0 || !is_on()) return;
  Recorder& r = recorder();
  const std::lock_guard lock(r.mutex);
  if (!is_on() || number < r.first_span) return;  // begun for an earlier file
  r.events.push_back({'e', this_thread(r), name_, category_, wall_ns(), 0, number, 0});
}

uint32_t number_of_name(std::string_view name) {
  if (!is_on()) return 0;
  Recorder& r = recorder();
  const std::lock_guard lock(r.mutex);
  return intern(r, name);
}

int64_t now_ns() {
  return wall_ns();
}

void add_slice(uint32_t name, int64_t begun_ns) noexcept {
  if (name == 0 || !is_on()) return;
  const int64_t end = wall_ns();
  Recorder& r = recorder();
  const std::lock_guard lock(r.mutex);
  if (!is_on() || !promise(r, 1)) return;
  r.events.push_back({'X', this_thread(r), name, "range", begun_ns, end - begun_ns, 0, 0});
}

}  // namespace octavo::engine::trace
