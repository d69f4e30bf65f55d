#include "cli/plan_from.h"

#include <cmath>
#include <regex>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "base/printed.h"
#include "compare/run_folder.h"
#include "compare/statistics.h"
#include "plan/forecast.h"
#include "run_report/json_values.h"

namespace octavo::cli {
namespace {

using run_report::text_in;

constexpr size_t kLongestText = 2000;  // std::regex takes stack for every character

[[noreturn]] void refuse(const std::string& path, const std::string& wanted,
                         const std::string& found) {
  fail(ExitCode::kUsage, "plan", "--from ", path, ": wanted ", wanted, ", found ", found);
}

// A factor that no machine has is a mistake in what was given.
double sane(double factor, const std::string& path) {
  if (std::isfinite(factor) && factor > 0.05 && factor < 20) return factor;
  refuse(path, "a time within 20 times of the forecast's",
         printed("%.3g times; is it of another GPU? --gpu names it", factor));
}

// Steps of a run, after the first tenth, which is warming up.
double median_speed(const compare::RunFolder& run, const std::string& path) {
  std::vector<double> speeds;
  for (const auto& [step, point] : run.steps)
    if (const auto speed = point.speed()) speeds.push_back(*speed);
  constexpr size_t kLeastSteps = 10;
  if (speeds.size() < kLeastSteps)
    refuse(path, str(kLeastSteps, " steps with their time in metrics.jsonl"),
           str(speeds.size(), "; train longer (max_steps)"));
  speeds.erase(speeds.begin(), speeds.begin() + static_cast<std::ptrdiff_t>(speeds.size() / 10));
  return compare::median_of(speeds);
}

int64_t ranks_of(const fs::path& receipt) {
  const Json json = read_json(receipt);
  if (!json.contains("ranks") || !json["ranks"].is_object()) return 1;
  return std::max<int64_t>(1, json_int(json["ranks"], "ranks", receipt.string()));
}

plan::Measured from_run(const std::string& path, const config::Settings& asked) {
  const compare::RunFolder run = compare::read_run(path);
  if (!run.settings) refuse(path, "a run with its config.yaml", "none that can be read");
  if (run.on_cpu() || run.device.empty())
    refuse(path, "a run on a GPU",
           run.device.empty() ? "no device in receipt.json"
                              : "one on a CPU, which says nothing about a GPU");
  config::Settings own = *run.settings;
  own.gpu = asked.gpu;
  own.num_gpus = ranks_of(fs::path(path) / "receipt.json");
  own.auto_batch_size = false;
  const bool fp8 = run.precision.starts_with("FP8");
  own.use_fp8 = fp8;
  own.mixed_precision = fp8 ? config::Precision::kFp8 : config::Precision::kBf16;
  const plan::Forecast expected = plan::forecast(own);
  const double speed = median_speed(run, path) / static_cast<double>(own.num_gpus);
  plan::Measured measured;
  measured.step = sane(expected.chosen().time.tokens_per_s / speed, path);
  if (run.peak_bytes > 0) measured.memory = sane(run.peak_bytes / expected.memory().total, path);
  measured.what = printed("%s, %.0f tokens/s a GPU (forecast %.0f), peak %.1f GB (forecast %.1f)",
                          path.c_str(), speed, expected.chosen().time.tokens_per_s,
                          run.peak_bytes / 1e9, expected.memory().total / 1e9);
  return measured;
}

// "NVIDIA H100 80GB HBM3, compute capability 9.0, …" of the finding "gpu 0".
const plan::Gpu& gpu_in(const Json& findings, const config::Settings& asked, bool gpu_is_given,
                        const std::string& path) {
  if (gpu_is_given) return plan::wanted_gpu(asked.gpu);
  for (const Json& it : findings) {
    if (text_in(it, "id", kLongestText) != "gpu 0") continue;
    const std::string found = text_in(it, "found", kLongestText);
    if (const plan::Gpu* gpu = plan::gpu_of_device(found.substr(0, found.find(", compute"))))
      return *gpu;
    refuse(path, "a GPU that octavo plan knows",
           found.substr(0, 80) + "; --gpu NAME or --gpu FILE.yaml says what it is");
  }
  refuse(path, "a GPU in verify's findings", "none; --gpu NAME says what it is");
}

// Of verify's line "BF16 612 TFLOP/s, FP8 1133 TFLOP/s (1.85x), …" for a layer of 4096.
plan::Measured from_verify(const std::string& path, const Json& json, const config::Settings& asked,
                           bool gpu_is_given) {
  const Json& findings = json_field(json, "findings", Json::value_t::array, path);
  if (json.value("absent_device", Json()) == true)
    refuse(path, "a report of a real GPU", "one of the fake CUDA device, which runs no kernels");
  const std::regex layer(R"(layer of (\d{2,6}), .*)");
  const std::regex rates(R"(BF16 (\d{1,6}) ([TG])FLOP/s, FP8 (\d{1,6}) ([TG])FLOP/s.*)");
  for (const Json& it : findings) {
    std::smatch name, found;
    const std::string id = text_in(it, "id", kLongestText),
                      text = text_in(it, "found", kLongestText);
    if (!std::regex_match(id, name, layer) || !std::regex_match(text, found, rates)) continue;
    if (text.find("rehearsal") != text.npos) continue;
    const auto seconds = [&](int at) {
      const double size = std::stod(name[1]);
      const double unit = found[at + 1] == "T" ? 1e12 : 1e9;
      return 6 * size * size * size / (std::stod(found[at]) * unit);
    };
    const plan::Gpu& gpu = gpu_in(findings, asked, gpu_is_given, path);
    plan::Measured measured = plan::from_layer(gpu, std::stod(name[1]), seconds(1), seconds(3));
    sane(measured.bf16_rate, path), sane(measured.fp8_rate, path);
    measured.what = path + ": " + measured.what;
    return measured;
  }
  refuse(path, "verify's line of a layer's speed on a GPU's own FP8 units",
         "none; octavo verify --output verify.json on that machine writes it");
}

plan::Measured from_bench(const std::string& path, const Json& json,
                          const config::Settings& asked) {
  if (json.value("rehearsal", Json()) == true ||
      json_string(json, "device", path).starts_with("cpu"))
    refuse(path, "bench's JSON of a GPU", "a rehearsal, which says nothing about one");
  const Json& step = json_field(json, "step", Json::value_t::object, path);
  if (!step.contains("bf16_seconds"))
    refuse(path, "whole steps in bench's JSON", "none; octavo bench --bench_steps 20 times them");
  const Json& spread = json_field(step, "bf16_seconds", Json::value_t::object, path);
  if (!spread.contains("median") || !spread["median"].is_number())
    refuse(path, "step.bf16_seconds.median", "none");
  config::Settings own = asked;
  own.model_name = json_string(json, "model", path);
  own.batch_size = json_int(json, "batch_size", path);
  own.max_seq_length = json_int(json, "max_seq_length", path);
  own.num_gpus = own.gradient_accumulation_steps = 1;
  own.lora_rank = 0;
  own.auto_batch_size = own.gradient_checkpointing = false;
  const double expected = plan::forecast(own).recipes.front().time.total;
  plan::Measured measured;
  measured.step = sane(spread["median"].get<double>() / expected, path);
  measured.what = printed("%s, a BF16 step of %.1f ms (forecast %.1f)", path.c_str(),
                          1e3 * spread["median"].get<double>(), 1e3 * expected);
  return measured;
}

}  // namespace

plan::Measured measured_in(const std::string& path, const config::Settings& settings,
                           bool gpu_is_given) {
  if (fs::is_directory(path)) return from_run(path, settings);
  const Json json = read_json(path);
  if (json.is_object() && json.contains("findings"))
    return from_verify(path, json, settings, gpu_is_given);
  if (json.is_object() && json.contains("step") && json.contains("model"))
    return from_bench(path, json, settings);
  refuse(path, "a run's folder, or the JSON of octavo verify or octavo bench", "something else");
}

}  // namespace octavo::cli
