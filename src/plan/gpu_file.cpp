// A GPU of the user's own: a YAML file that names a GPU of the table and what is different.
//   like: h100
//   title: H100 in our cluster
//   memory_gib: 79.2
//   network_gb_s: 25

#include <charconv>
#include <cmath>
#include <deque>
#include <mutex>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "config/yaml.h"
#include "plan/gpu.h"

namespace octavo::plan {
namespace {

struct OwnGpu {
  std::string path, title;
  Gpu gpu;
};

struct Number {
  std::string_view name;
  double least, most;
  void (*store)(Gpu&, double);
  bool whole = false;
};
constexpr Number kNumbers[] = {
    {"bf16_tflops", 0.1, 1e6, [](Gpu& g, double v) { g.bf16_tflops = v; }},
    {"fp8_tflops", 0, 1e6, [](Gpu& g, double v) { g.fp8_tflops = v; }},
    {"fp4_tflops", 0, 1e6, [](Gpu& g, double v) { g.fp4_tflops = v; }},
    {"memory_gib", 1, 1e5, [](Gpu& g, double v) { g.memory_gib = v; }},
    {"memory_tb_s", 0.01, 1e3, [](Gpu& g, double v) { g.memory_tb_s = v; }},
    {"link_gb_s", 0.1, 1e5, [](Gpu& g, double v) { g.link_gb_s = v; }},
    {"network_gb_s", 0.1, 1e5, [](Gpu& g, double v) { g.network_gb_s = v; }},
    {"gpus_per_node", 1, 1e5, [](Gpu& g, double v) { g.gpus_per_node = static_cast<int>(v); },
     true},
    {"multiprocessors", 1, 1e4, [](Gpu& g, double v) { g.multiprocessors = static_cast<int>(v); },
     true},
};

double number_of(const config::YamlEntry& entry, const Number& wanted, const std::string& path) {
  const std::string& text = entry.values.front();
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool read = error == std::errc{} && end == text.data() + text.size();
  if (!read || !(value >= wanted.least && value <= wanted.most) ||
      (wanted.whole && value != std::floor(value)))
    fail(ExitCode::kUsage, "plan", path, ":", entry.line, ": ", entry.name, ": wanted a ",
         wanted.whole ? "whole number" : "number", " from ", wanted.least, " to ", wanted.most,
         ", found \"", text.substr(0, 80), "\"");
  return value;
}

[[noreturn]] void refuse_key(const config::YamlEntry& entry, const std::string& path) {
  std::vector<std::string_view> names = {"like", "title"};
  for (const Number& number : kNumbers) names.push_back(number.name);
  std::string known;
  for (const std::string_view name : names) known += str(known.empty() ? "" : ", ", name);
  const std::string nearest = nearest_name(entry.name, names);
  fail(ExitCode::kUsage, "plan", path, ":", entry.line, ": wanted one of ", known, "; found \"",
       entry.name.substr(0, 80), "\"", nearest.empty() ? "" : "; did you mean " + nearest + "?");
}

void read_entry(OwnGpu& own, const config::YamlEntry& entry) {
  if (entry.is_list || entry.values.size() != 1)
    fail(ExitCode::kUsage, "plan", own.path, ":", entry.line, ": ", entry.name,
         ": wanted one value, found a list");
  if (entry.name == "like") return;
  if (entry.name == "title") return void(own.title = entry.values.front().substr(0, 80));
  for (const Number& number : kNumbers)
    if (number.name == entry.name) return number.store(own.gpu, number_of(entry, number, own.path));
  refuse_key(entry, own.path);
}

}  // namespace

const Gpu& gpu_of_file(const std::string& path) {
  static std::mutex mutex;
  static std::deque<OwnGpu> read;  // forecasts point into it
  const std::lock_guard lock(mutex);
  OwnGpu own{.path = path, .title = "", .gpu = {}};
  const std::vector<config::YamlEntry> entries =
      config::parse_yaml(read_file(path, config::kMaxYamlBytes), path);
  const Gpu* like = nullptr;
  for (const config::YamlEntry& entry : entries)
    if (entry.name == "like" && entry.values.size() == 1) like = &known_gpu(entry.values.front());
  if (like == nullptr)
    fail(
        ExitCode::kUsage, "plan", path,
        ": wanted the line \"like: NAME\", a GPU of octavo names gpus whose figures hold where the "
        "file gives none; found none");
  own.gpu = *like;
  own.title = str(like->title, " as in ", path);
  for (const config::YamlEntry& entry : entries) read_entry(own, entry);
  OwnGpu& kept = read.emplace_back(std::move(own));
  kept.gpu.name = kept.path;
  kept.gpu.title = kept.title;
  return kept.gpu;
}

}  // namespace octavo::plan
