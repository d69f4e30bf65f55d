#include "run_report/samples.h"

#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "chart/escape.h"

namespace octavo::run_report {
namespace {

constexpr size_t kMostFiles = 100'000;
constexpr size_t kLargestFile = size_t{1} << 20;

void cut_text(Sample& sample, size_t max_bytes) {
  if (sample.text.size() <= max_bytes) return;
  size_t end = 0;
  const std::string_view text = sample.text;
  while (const size_t length = std::max<size_t>(1, chart::character_at(text.substr(end)))) {
    if (end + length > max_bytes) break;
    end += length;
  }
  sample.text.resize(end);
  sample.cut = true;
}

}  // namespace

std::vector<int64_t> sample_steps(const fs::path& run) {
  std::vector<int64_t> steps;
  std::error_code error;
  size_t seen = 0;
  for (fs::directory_iterator entry(run / "samples", error), end; !error && entry != end;
       entry.increment(error)) {
    if (++seen > kMostFiles) break;
    const std::string name = entry->path().filename().string();
    if (!name.starts_with("step-") || !name.ends_with(".txt")) continue;
    int64_t step = -1;
    const char* const last = name.data() + name.size() - 4;
    if (std::from_chars(name.data() + 5, last, step).ptr == last && step >= 0)
      steps.push_back(step);
  }
  std::ranges::sort(steps);
  steps.erase(std::unique(steps.begin(), steps.end()), steps.end());
  return steps;
}

std::vector<Sample> read_samples(const fs::path& run, size_t most, size_t max_bytes,
                                 std::vector<std::string>& remarks) {
  const std::vector<int64_t> steps = sample_steps(run);
  std::vector<Sample> samples;
  const size_t count = std::min(most, steps.size());
  for (size_t i = 0; i < count; ++i) {
    const size_t at = count < 2 ? steps.size() - 1 : i * (steps.size() - 1) / (count - 1);
    const fs::path path = run / "samples" / str("step-", steps[at], ".txt");
    try {
      samples.push_back({steps[at], read_file(path, kLargestFile)});
      cut_text(samples.back(), max_bytes);
    } catch (const std::exception& error) {
      remarks.push_back(str("the sample of step ", steps[at], " cannot be read: ", error.what()));
    }
  }
  if (count < steps.size())
    remarks.push_back(str(count, " of ", steps.size(), " samples are shown; all are in samples/"));
  return samples;
}

}  // namespace octavo::run_report
