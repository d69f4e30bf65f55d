// Forecasts for rows of a table, for tests/conformance/plan_published.py and
// bench/calibrate_plan.py. First argument: a file with one row per line, space-separated:
//   gpu gpus layers hidden ffn heads kv_heads head_dim vocab gated length batch accumulation recipe
//   sharding shard_group recompute lora_rank lora_targets optimizer_bytes stack tensor pipeline
//   parts context weight_codes
// or "gemm gpu m n k fp8", which is answered with the seconds of that GEMM.
// Then every line of the standard input is a set of constants ("name=value …", on top of the
// committed ones) and is answered with a line of tokens/s per GPU, one number per row. With
// --parts, the seconds of every part follow each number, separated by commas.

#include <fstream>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "base/error.h"
#include "plan/step_time.h"
#include "tool_main.h"

namespace {

using namespace octavo;

struct GemmRow {
  const plan::Gpu* gpu = nullptr;  // null: the row is a workload
  double m = 0, n = 0, k = 0;
  bool fp8 = false;
};

GemmRow read_gemm(const std::string& line) {
  GemmRow row;
  std::string word, gpu;
  std::istringstream in(line);
  in >> word >> gpu >> row.m >> row.n >> row.k >> row.fp8;
  if (!in) fail(ExitCode::kUsage, "plan_tool", "wanted gemm gpu m n k fp8, found: " + line);
  row.gpu = &plan::wanted_gpu(gpu);
  return row;
}

plan::Workload read_row(const std::string& line) {
  plan::Workload work;
  plan::Shape& shape = work.shape;
  std::string gpu, stack;
  int gated = 0, recipe = 0, sharding = 0, recompute = 0, targets = 0, codes = 0;
  std::istringstream in(line);
  in >> gpu >> work.gpus >> shape.layers >> shape.hidden >> shape.ffn >> shape.heads >>
      shape.kv_heads >> shape.head_dim >> shape.vocab >> gated >> work.length >> work.batch >>
      work.accumulation >> recipe >> sharding >> work.shard_group >> recompute >> work.lora_rank >>
      targets >> work.optimizer_bytes >> stack >> work.split.tensor >> work.split.pipeline >>
      work.split.parts >> work.split.context >> codes;
  if (!in) fail(ExitCode::kUsage, "plan_tool", "a row of 26 fields was wanted, found: " + line);
  work.weight_codes = static_cast<plan::WeightCodes>(codes);
  work.gpu = &plan::wanted_gpu(gpu);
  shape.gated = gated != 0;
  if (recipe > 0) work.recipe = static_cast<fp8::Recipe>(recipe - 1);  // 0: BF16
  work.sharding = static_cast<plan::Sharding>(sharding);
  work.recompute = static_cast<plan::Recompute>(recompute);
  work.lora_targets = static_cast<plan::LoraTargets>(targets);
  static std::vector<std::unique_ptr<std::string>> names;  // Workload holds a view
  work.stack = *names.emplace_back(std::make_unique<std::string>(stack));
  return work;
}

void run(const std::vector<std::string>& args) {
  if (args.empty()) fail(ExitCode::kUsage, "plan_tool", "wanted ROWS [--parts]");
  const bool parts = args.size() > 1 && args[1] == "--parts";
  std::vector<plan::Workload> rows;
  std::vector<GemmRow> gemms;  // of the same length
  std::ifstream file(args[0]);
  for (std::string line; std::getline(file, line);) {
    const bool is_gemm = line.starts_with("gemm ");
    gemms.push_back(is_gemm ? read_gemm(line) : GemmRow{});
    rows.push_back(is_gemm ? plan::Workload{} : read_row(line));
  }
  for (std::string line; std::getline(std::cin, line);) {
    plan::Calibration calibration = plan::Calibration::fitted();
    std::istringstream in(line);
    for (std::string pair; in >> pair;) {
      const size_t equals = pair.find('=');
      if (equals == std::string::npos) fail(ExitCode::kUsage, "plan_tool", "wanted name=value");
      calibration.set(pair.substr(0, equals), std::stod(pair.substr(equals + 1)));
    }
    for (size_t i = 0; i < rows.size(); ++i) {
      if (const GemmRow& p = gemms[i]; p.gpu) {
        std::cout << plan::gemm_seconds(*p.gpu, calibration, p.m, p.n, p.k, p.fp8) << " ";
        continue;
      }
      const plan::StepTime time = plan::step_time(rows[i], calibration);
      std::cout << time.tokens_per_s;
      if (parts)
        for (double part : {time.gemms, time.adapters, time.head, time.attention, time.elementwise,
                            time.quantize, time.optimizer, time.collectives, time.host, time.total})
          std::cout << "," << part;
      std::cout << " ";
    }
    std::cout << std::endl;
  }
}

}  // namespace

int main(int argc, char** argv) {
  return octavo::tool_main([&] { run({argv + 1, argv + argc}); });
}
