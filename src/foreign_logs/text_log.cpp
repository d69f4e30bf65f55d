#include "base/error.h"
#include "base/lines.h"
#include "foreign_logs/readers.h"
#include "foreign_logs/scan.h"

namespace octavo::foreign_logs {
namespace {

constexpr size_t kLongestTextLine = size_t{1} << 20;

struct TextFormat {
  std::string_view name;
  bool (*read)(std::string_view line, TextState& state, Metrics& metrics);
  std::string_view note;  // what its numbers are, where that is not what one expects
};

constexpr TextFormat kTextFormats[] = {
    {"Megatron-LM's text log", read_megatron_line, ""},
    {"torchtitan's text log", read_torchtitan_line, "tps is of one GPU"},
    {"nanoGPT's text log", read_nanogpt_line, ""},
    {"nanochat's text log", read_nanochat_line,
     "nanochat prints a running mean of the training loss (the last ten steps or so): neighbours "
     "are alike, and a spike is seen later"},
    {"llm.c's log", read_llmc_line, ""},
};

struct TextReading {
  const TextFormat* format;
  Metrics metrics;
  TextState state;
  int64_t lines = 0;
};

// A progress bar overwrites its line.
template <typename Take>
void for_each_overwritten(std::string_view line, Take&& take) {
  while (!line.empty()) {
    const size_t end = line.find('\r');
    if (end != 0) take(line.substr(0, end));
    line.remove_prefix(end == line.npos ? line.size() : end + 1);
  }
}

}  // namespace

std::optional<Log> read_text_log(const fs::path& path, const Options& options) {
  std::vector<TextReading> readings;
  for (const TextFormat& format : kTextFormats)
    readings.push_back({&format, Metrics(options), {}, 0});
  const int64_t too_long = for_each_line(path, kLongestTextLine, [&](std::string_view whole) {
    for_each_overwritten(whole, [&](std::string_view line) {
      const std::string plain = line.find('\x1b') == line.npos ? "" : without_colors(line);
      for (TextReading& reading : readings)
        reading.lines +=
            reading.format->read(plain.empty() ? line : plain, reading.state, reading.metrics);
    });
  });
  TextReading* best = &readings.front();
  for (TextReading& reading : readings)
    if (reading.lines > best->lines) best = &reading;
  if (best->lines == 0) return std::nullopt;
  if (best->state.open_evaluation)  // after the last step
    best->metrics.add("val loss", best->state.last_step, *best->state.open_evaluation);
  best->metrics.count_bad_line(too_long);
  if (!best->format->note.empty()) best->metrics.remark(std::string(best->format->note));
  for (const TextReading& other : readings)
    if (&other != best && other.lines > 0)
      best->metrics.remark(str(other.lines, " lines look like ", other.format->name,
                               " and are not used; ", best->lines, " were"));
  return best->metrics.log(path, std::string(best->format->name));
}

}  // namespace octavo::foreign_logs
