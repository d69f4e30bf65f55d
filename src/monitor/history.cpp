#include "monitor/history.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <limits>

#include "base/error.h"
#include "base/json.h"
#include "monitor/window.h"

namespace octavo::monitor {
namespace {

constexpr std::streamoff kMostBytes = std::streamoff{8} << 20;
constexpr size_t kStartUpSteps = 3;  // of a run: they allocate

// The file's end, from a line's beginning on.
std::string read_tail(const fs::path& path) {
  std::ifstream in(path, std::ios::binary | std::ios::ate);
  const std::streamoff size = in ? static_cast<std::streamoff>(in.tellg()) : 0;
  if (size <= 0) return "";
  const std::streamoff length = std::min(size, kMostBytes);
  std::string text(static_cast<size_t>(length), '\0');
  in.seekg(size - length);
  in.read(text.data(), length);
  text.resize(static_cast<size_t>(in.gcount()));
  return size == length ? text : text.substr(std::min(text.find('\n'), text.size() - 1) + 1);
}

double number_in(const Json& record, const char* name) {
  const auto found = record.find(name);
  return found != record.end() && found->is_number() ? found->get<double>() : std::nan("");
}

}  // namespace

std::vector<StepRecord> read_last_steps(const fs::path& metrics, int64_t last_step) {
  std::vector<StepRecord> steps;
  const std::string text = read_tail(metrics);
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const Json record = Json::parse(text.begin() + static_cast<ptrdiff_t>(begin),
                                    text.begin() + static_cast<ptrdiff_t>(end), nullptr,
                                    /*allow_exceptions=*/false);
    begin = end + 1;
    if (!record.is_object() || !record.contains("train/loss") || !record.contains("step") ||
        !record["step"].is_number_integer() || record["step"].get<int64_t>() > last_step)
      continue;
    StepRecord step;
    step.step = record["step"].get<int64_t>();
    step.loss = number_in(record, "train/loss");
    step.learning_rate = number_in(record, "train/learning_rate");
    step.grad_norm = number_in(record, "train/grad_norm");
    step.seconds = number_in(record, "perf/step_seconds");
    step.tokens_per_second = number_in(record, "perf/tokens_per_second");
    steps.push_back(std::move(step));
  }
  return steps;
}

double baseline_speed(const std::string& number_or_folder) {
  if (number_or_folder.empty()) return 0;
  double number = 0;
  const char* end = number_or_folder.data() + number_or_folder.size();
  const auto parsed = std::from_chars(number_or_folder.data(), end, number);
  if (parsed.ec == std::errc() && parsed.ptr == end) {
    if (number > 0 && std::isfinite(number)) return number;
    fail(ExitCode::kUsage, "monitor", "bf16_baseline: wanted tokens per second above 0, found ",
         number_or_folder);
  }
  const fs::path file = fs::path(number_or_folder) / "metrics.jsonl";
  std::vector<double> speeds;
  for (const StepRecord& step : read_last_steps(file, std::numeric_limits<int64_t>::max()))
    if (std::isfinite(step.tokens_per_second)) speeds.push_back(step.tokens_per_second);
  if (speeds.size() <= kStartUpSteps)
    fail(ExitCode::kUsage, "monitor",
         "bf16_baseline: wanted tokens per second, or the folder of a run with some steps in its "
         "metrics.jsonl, found ",
         speeds.size(), " steps in ", file.string());
  speeds.erase(speeds.begin(), speeds.begin() + kStartUpSteps);
  return median_of(std::move(speeds));
}

}  // namespace octavo::monitor
