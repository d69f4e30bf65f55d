// docs/reference/scale-tables.md's tables, in Markdown.

#include <cstdio>
#include <functional>
#include <map>

#include "base/error.h"
#include "plan/collectives.h"
#include "plan/forecast.h"
#include "plan/memory.h"
#include "plan/scale.h"
#include "plan/shape.h"
#include "plan/traffic.h"

namespace octavo::plan {
namespace {

using config::ShardingMode;

constexpr int64_t kGpus[] = {8, 512, 16384};
constexpr ShardingMode kModes[] = {ShardingMode::kDdp, ShardingMode::kZero1, ShardingMode::kZero2,
                                   ShardingMode::kFsdpFull, ShardingMode::kHybrid};
struct Model {
  const char *name, *title;
  bool lean;  // FP8, gradients in BF16
};
constexpr Model kModels[] = {
    {"qwen2.5-14b", "14B (Qwen2.5's shape), BF16, FP32 gradients", false},
    {"llama-3.1-405b", "405B (Llama 3.1's shape), FP8, BF16 gradients", true}};

ScaleCase case_of(const Model& model, int64_t gpus, ShardingMode mode) {
  return {.model = model.name,
          .gpus = gpus,
          .mode = mode,
          .fp8 = model.lean,
          .bf16_gradients = model.lean};
}

ScalePoint big_point(int64_t gpus) {
  return scale_point(case_of(kModels[1], gpus, ShardingMode::kFsdpFull));
}

std::string scale_number(double value) {
  char text[32];
  if (value == 0) return "0";
  const int digits = value >= 100 ? 0 : value >= 10 ? 1 : value >= 0.1 ? 2 : 4;
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

std::string row(const std::vector<std::string>& cells) {
  std::string line = "|";
  for (const std::string& cell : cells) line += " " + cell + " |";
  return line + "\n";
}

std::string head(const std::vector<std::string>& cells) {
  return row(cells) + "|" + [&] {
    std::string rule;
    for (size_t i = 0; i < cells.size(); ++i) rule += i == 0 ? "---|" : "---:|";
    return rule;
  }() + "\n";
}

std::string gpus_title(int64_t gpus) {
  return str(gpus, " GPUs");
}

Shape shape_named(const char* name) {
  config::Settings s;
  s.model_name = name;
  return shape_of(s);
}

// One row for a mode, one column for each number of GPUs.
std::string by_mode(const Model& model,
                    const std::function<std::string(const ScalePoint&, ShardingMode)>& cell) {
  std::string out = head({model.title, gpus_title(8), gpus_title(512), gpus_title(16384)});
  for (const ShardingMode mode : kModes) {
    std::vector<std::string> cells = {str("`", config::name_of(mode), "`")};
    for (const int64_t gpus : kGpus)
      cells.push_back(cell(scale_point(case_of(model, gpus, mode)), mode));
    out += row(cells);
  }
  return out;
}

std::string links_table() {
  const Gpu& gpu = wanted_gpu("h100");
  const Links links = links_of(gpu, Calibration::fitted());
  const Shape big = shape_named(kModels[1].name);
  config::Settings s;
  s.model_name = kModels[1].name;
  const auto micro = [](double seconds) { return scale_number(1e6 * seconds); };
  return head({"H100 80 GB, nodes of eight", ""}) +
         row({"GB of memory that a run can use", scale_number(forecast(s).memory_limit / kGiga)}) +
         row({"GB/s of a GPU to its neighbours in the node", scale_number(links.inside / kGiga)}) +
         row({"GB/s of one network adapter", scale_number(links.adapter / kGiga)}) +
         row({"us of a hop in a ring: NVLink, network",
              micro(kRingLink) + ", " + micro(kRingNetwork)}) +
         row({"us of a level of a tree: NVLink, network",
              micro(kTreeLink) + ", " + micro(kTreeNetwork)}) +
         row({"share of the computing time that hides collectives, %",
              scale_number(100 * Calibration::fitted().of("fused.overlap"))}) +
         row({"billion parameters in a block of 405B",
              scale_number(static_cast<double>(matrix_parameters(big)) /
                           static_cast<double>(big.layers) / kGiga)});
}

std::string bytes_tables() {
  std::string out;
  for (const Model& model : kModels) {
    out += by_mode(model, [](const ScalePoint& p, ShardingMode mode) {
      const std::string inside = scale_number((p.gather + p.reduce) / kGiga);
      return mode == ShardingMode::kHybrid ? inside + " + " + scale_number(p.replicas / kGiga)
                                           : inside;
    });
    out += "\n";
  }
  std::string fp8 = head(
      {"GB that a GPU gathers in a step, 405B", gpus_title(8), gpus_title(512), gpus_title(16384)});
  for (const bool coded : {false, true}) {
    std::vector<std::string> cells = {coded ? "as FP8 codes (`fp8_all_gather`)" : "in BF16"};
    for (const int64_t gpus : kGpus)
      cells.push_back(scale_number(
          scale_point({.model = kModels[1].name, .gpus = gpus, .fp8 = coded}).gather / kGiga));
    fp8 += row(cells);
  }
  return out + fp8;
}

std::string memory_tables() {
  std::string out;
  for (const Model& model : kModels)
    out += by_mode(model,
                   [](const ScalePoint& p, ShardingMode) {
                     return (p.fits ? "" : "**no**: ") + scale_number(p.memory / kGiga);
                   }) +
           (&model == kModels ? "\n" : "");
  return out;
}

std::string time_tables() {
  std::string out;
  for (const Model& model : kModels) {
    out += head({model.title, "GPUs", "compute s", "bytes s", "latency s", "not hidden s", "step s",
                 "tokens/s/GPU", "MFU"});
    for (const ShardingMode mode : kModes)
      for (const int64_t gpus : kGpus) {
        const ScalePoint p = scale_point(case_of(model, gpus, mode));
        if (!p.fits) continue;  // the table before says so
        out += row({str("`", config::name_of(mode), "`"), std::to_string(gpus),
                    scale_number(p.compute), scale_number(p.bytes_seconds),
                    scale_number(p.latency_seconds), scale_number(p.exposed), scale_number(p.step),
                    scale_number(p.tokens_per_s), scale_number(100 * p.flops_share) + "%"});
      }
    if (&model == kModels) out += "\n";
  }
  return out;
}

// Of 405B: what waits for the backward pass, with gradient_checkpointing.
double activations_at(int64_t length) {
  config::Settings s;
  s.model_name = kModels[1].name;
  s.batch_size = 1;
  s.max_seq_length = length;
  s.gradient_checkpointing = true;
  return memory(memory_work(s, shape_of(s))).activations;
}

std::string limits_table() {
  std::string out = head({"405B, `fsdp_full`", gpus_title(8), gpus_title(512), gpus_title(16384)});
  std::vector<ScalePoint> points;
  for (const int64_t gpus : kGpus) points.push_back(big_point(gpus));
  const auto add = [&](const std::string& name, const std::function<double(size_t)>& value) {
    std::vector<std::string> cells = {name};
    for (size_t i = 0; i < points.size(); ++i) cells.push_back(scale_number(value(i)));
    out += row(cells);
  };
  const auto gpus = [](size_t i) { return static_cast<double>(kGpus[i]); };
  const Shape shape = shape_named("llama-3.1-405b");
  const double all = static_cast<double>(parameters(shape));
  const double block =
      static_cast<double>(matrix_parameters(shape)) / static_cast<double>(shape.layers);
  add("million tokens in a step, one sequence a GPU",
      [&](size_t i) { return points[i].tokens / 1e6; });
  add("GB of activations of one sequence of 8192 tokens alone",
      [&](size_t) { return activations_at(8192) / kGiga; });
  add("KB that a rank gives to the gather of a block",
      [&](size_t i) { return block / gpus(i) / 1e3; });
  add("latency over bytes, of the time on the wire",
      [&](size_t i) { return points[i].latency_seconds / points[i].bytes_seconds; });
  add("hours between failures", [&](size_t i) { return points[i].hours_between_failures; });
  add("goodput, with a checkpoint of 60 s and a restart of 600 s, %",
      [&](size_t i) { return 100 * points[i].goodput; });
  add("GB of a checkpoint on each rank", [&](size_t i) { return 12 * all / gpus(i) / kGiga; });
  return out;
}

// What tensor and pipeline parallelism would change for 405B on 16,384 GPUs with a step of 2048
// sequences, the batch that Llama 3 was trained with.
std::string next_table() {
  constexpr double kSequences = 2048, kLength = 8192, kAll = 16384;
  struct ModelParallel {
    double tensor, pipeline;
  };
  const Shape s = shape_named("llama-3.1-405b");
  const double h = static_cast<double>(s.hidden), layers = static_cast<double>(s.layers);
  const double matrices = static_cast<double>(parameters(s));
  std::string out =
      head({"tensor x pipeline", "copies of data", "sequences a copy has", "idle in the pipeline",
            "GB gathered by a GPU", "GB of activations summed by a GPU", "ranks in a ring"});
  for (const ModelParallel& cut :
       {ModelParallel{1, 1}, ModelParallel{8, 1}, ModelParallel{8, 4}, ModelParallel{8, 16}}) {
    const double copies = kAll / cut.tensor / cut.pipeline, each = kSequences / copies;
    const bool has_work = each >= 1;
    const double passes = has_work ? each : 1;
    const double idle = (cut.pipeline - 1) / (passes + cut.pipeline - 1);
    // Weights of a stage stay for all of its passes: gathered twice, reduced once.
    const double gathered = 2 * 2 * matrices / cut.tensor / cut.pipeline * (copies - 1) / copies;
    // Four all-reduces a layer and sequence: attention and MLP, forward and backward.
    const double summed =
        4 * 2 * (cut.tensor - 1) / cut.tensor * kLength * h * 2 * passes * layers / cut.pipeline;
    out += row({str(cut.tensor, " x ", cut.pipeline), scale_number(copies),
                has_work ? scale_number(each) : scale_number(each) + ": **not one**",
                scale_number(100 * idle) + "%", scale_number(gathered / kGiga),
                scale_number(summed / kGiga), scale_number(copies)});
  }
  return out;
}

}  // namespace

std::string with_scale_tables(const std::string& document) {
  const std::map<std::string, std::string (*)()> tables = {
      {"links", links_table}, {"bytes", bytes_tables},  {"memory", memory_tables},
      {"time", time_tables},  {"limits", limits_table}, {"next", next_table}};
  std::string out = document;
  for (const auto& [name, make] : tables) {
    const std::string begin = "<!-- scale " + name + " -->\n", end = "<!-- end -->";
    const size_t from = out.find(begin);
    const size_t to = from == std::string::npos ? from : out.find(end, from);
    if (to == std::string::npos)
      fail(ExitCode::kUsage, "plan", "wanted '<!-- scale ", name, " -->' and '", end,
           "' behind it, each on a line of its own, found no such pair");
    out.replace(from + begin.size(), to - from - begin.size(), make());
  }
  return out;
}

}  // namespace octavo::plan
