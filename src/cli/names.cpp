// octavo names [models|data|gpus]: what is known by name, with what train takes it for.

#include <iostream>

#include "base/error.h"
#include "base/printed.h"
#include "base/progress.h"
#include "base/text.h"
#include "cli/verbs.h"
#include "config/names.h"
#include "model_config/presets.h"
#include "plan/gpu.h"
#include "plan/shape.h"

namespace octavo::cli {
namespace {

using Row = std::vector<std::string>;

std::string model_table() {
  std::vector<Row> rows = {{"name", "parameters", "layers", "width", "context", "on the hub"}};
  for (const std::string_view hub : model_config::published_names()) {
    const model_config::Preset known = *model_config::published(hub);
    const auto parameters =
        static_cast<double>(plan::parameters(plan::shape_of(known.config, known.name)));
    rows.push_back({known.name, format_count(parameters), std::to_string(known.config.layers),
                    std::to_string(known.config.width), std::to_string(known.config.context),
                    std::string(hub)});
  }
  return str(
      "models, for model_name; in any spelling (Llama 3.1 8B, llama31-8b, Meta-Llama-3.1-8B), and "
      "with\n-instruct. plan, verify and config check need no network for them. gpt2 and its "
      "larger "
      "sizes have\nrandom weights, their names on the hub the published ones.\n\n",
      table_text(rows));
}

std::string dataset_table() {
  std::vector<Row> rows = {{"name", "on the hub", "dataset_config", "split_name", "what it is"}};
  for (const config::DatasetName& known : config::dataset_names())
    rows.push_back({std::string(known.name), std::string(known.hub), std::string(known.subset),
                    std::string(known.split), std::string(known.about)});
  return "data sets, for dataset; a file or folder of the same name comes first\n\n" +
         table_text(rows);
}

std::string gpu_table() {
  std::vector<Row> rows = {
      {"name", "what it is", "GiB", "TB/s", "BF16 TFLOPS", "FP8 TFLOPS", "capability"}};
  for (const plan::Gpu& gpu : plan::gpus())
    rows.push_back({std::string(gpu.name), std::string(gpu.title), str(gpu.memory_gib),
                    str(gpu.memory_tb_s), str(gpu.bf16_tflops),
                    gpu.fp8_tflops > 0 ? str(gpu.fp8_tflops) : "none",
                    str(gpu.capability / 10, ".", gpu.capability % 10)});
  return "GPUs, for gpu; also as nvidia-smi prints them (NVIDIA H100 80GB HBM3), or H100, RTX "
         "4090\n\n" +
         table_text(rows);
}

}  // namespace

int names(const Verb& verb, Args args) {
  const config::Parsed parsed = config::parse(args, verb.arguments);
  const std::string wanted = parsed.positionals.empty() ? "" : parsed.positionals.front();
  struct Table {
    std::string_view word;
    std::string (*text)();
  };
  constexpr Table kTables[] = {
      {"models", model_table}, {"data", dataset_table}, {"gpus", gpu_table}};
  std::vector<std::string> tables;
  for (const Table& table : kTables)
    if (wanted.empty() || table.word.starts_with(wanted)) tables.push_back(table.text());
  if (tables.empty())
    fail(ExitCode::kUsage, "cli", "names: wanted models, data or gpus, found '",
         wanted.substr(0, 80), "'; leave it out for all of them");
  std::cout << join(tables, "\n");
  return 0;
}

}  // namespace octavo::cli
