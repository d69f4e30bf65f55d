// The C++ side of tests/integration/gpu_graph.py: steps of a training run on the fake CUDA device.
// usage: gpu_graph_tool STEPS FALLBACK [--key value]…
//        gpu_graph_tool spoil 0 [--key value]…: a pass that waits for the device, then plain steps
//        gpu_graph_tool cases STEPS: for every line on stdin, a JSON array of flags, such steps in
//        the same process; all their lines in one JSON array
// A line of JSON for each step: what it asked of the device, and the names of its kernels, GEMMs
// and memsets in order, apart for what a graph did. Evaluations run as eval_freq says; of those it
// is looked whether they write where the graphs still read or write. After step FALLBACK the FP8
// guard's fallback takes a layer to BF16 (0: never). The last line is the receipt.

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "config/parse.h"
#include "fake_cuda/fake_cuda.h"
#include "train/device.h"
#include "train/evaluate.h"
#include "train/run.h"
#include "train/step.h"

namespace {

using namespace octavo;
using fake_cuda::Kind;

struct MemoryRange {
  uintptr_t begin = 0, end = 0;
  bool overlaps(const MemoryRange& other) const { return begin < other.end && other.begin < end; }
};

constexpr int kFloat32 = 0, kE4m3 = 28, kE5m2 = 29;  // cudaDataType_t

bool is_fp8(const fake_cuda::GemmOperand& operand) {
  return operand.type == kE4m3 || operand.type == kE5m2;
}

MemoryRange range_of(const fake_cuda::GemmOperand& operand) {
  const int64_t width = is_fp8(operand) ? 1 : operand.type == kFloat32 ? 4 : 2;
  const auto begin = reinterpret_cast<uintptr_t>(operand.data);
  return {begin, begin + static_cast<uintptr_t>(operand.ld * operand.cols * width)};
}

std::vector<fake_cuda::Gemm> gemms() {
  std::vector<fake_cuda::Gemm> gemms(fake_cuda::api()->gemms(nullptr, 0, 0));
  fake_cuda::api()->gemms(gemms.data(), 0, gemms.size());
  return gemms;
}

// Results, and what was quantized for a GEMM: memory that was allocated on the way.
std::vector<MemoryRange> written_on_the_way(const std::vector<fake_cuda::Gemm>& gemms) {
  std::vector<MemoryRange> found;
  for (const auto& gemm : gemms) {
    if (gemm.d.type != kFloat32) found.push_back(range_of(gemm.d));  // FP32: gradients
    for (const auto& operand : {gemm.a, gemm.b})
      if (is_fp8(operand)) found.push_back(range_of(operand));
  }
  return found;
}

Json counts() {
  fake_cuda::Counters c{};
  fake_cuda::api()->counters(&c);
  return {{"graph_launches", c.of(Kind::kGraphLaunch)},
          {"captured_nodes", c.captured_nodes},
          {"host_waits", c.host_waits()},
          {"mallocs", c.of(Kind::kMalloc)},
          {"to_device", c.of(Kind::kCopyToDevice)},
          {"pageable_copies", c.pageable_copies},
          {"unexpected", c.of(Kind::kUnexpected)}};
}

Json kernel_names() {
  std::vector<fake_cuda::Event> events(fake_cuda::api()->events(nullptr, 0, 0));
  fake_cuda::api()->events(events.data(), 0, events.size());
  Json names = Json::array();
  for (const auto& event : events)
    if (event.kind == Kind::kLaunch || event.kind == Kind::kGemm || event.kind == Kind::kMemset ||
        event.kind == Kind::kCopyOnDevice)
      names.push_back(event.name);
  return names;
}

// How many stretches of memory an evaluation wrote that the graphs count on.
int64_t evaluate_beside(train::Run& run, const std::vector<MemoryRange>& of_graphs) {
  fake_cuda::api()->reset();
  train::evaluate(run);
  int64_t overlaps = 0;
  for (const MemoryRange& range : written_on_the_way(gemms()))
    overlaps +=
        std::ranges::any_of(of_graphs, [&](const MemoryRange& s) { return s.overlaps(range); });
  return overlaps;
}

std::unique_ptr<train::Run> start(const std::vector<std::string>& args) {
  const config::Settings settings = config::parse(args, config::kTrainArguments).settings;
  train::prepare_process(settings);
  auto run = train::assemble(settings);
  if (run->trained.has_numbers)
    fail(ExitCode::kUsage, "gpu_graph", "wanted the fake CUDA device, found ",
         run->trained.device().str());
  return run;
}

Json receipt_of(const train::Run& run) {
  int64_t counted = 0;  // GEMMs, as the receipt of a run tells them
  for (const auto& layer : run.trained.model->linears())
    for (const auto& ran : layer->gemm_counts) counted += ran.fp8 + ran.other;
  Json receipt = run.trained.graph != nullptr ? run.trained.graph->receipt() : Json::object();
  receipt["gemms"] = counted;
  receipt["layers"] = run.trained.model->linears().size();
  return receipt;
}

void print_lines(const std::vector<Json>& lines) {
  for (const Json& line : lines) std::printf("%s\n", line.dump().c_str());
}

// A line for each step, and the receipt.
std::vector<Json> steps_of(int64_t steps, int64_t fallback, const std::vector<std::string>& args) {
  std::vector<Json> lines;
  const auto run = start(args);
  const config::Settings& settings = run->settings;
  std::vector<MemoryRange> of_graphs;
  for (int64_t i = 1; i <= steps; ++i) {
    fake_cuda::api()->reset();
    train::train_step(*run);
    Json line = counts();
    line["names"] = kernel_names();
    if (line["graph_launches"] > 0) of_graphs = written_on_the_way(gemms());
    if (settings.eval_freq > 0 && i % settings.eval_freq == 0)
      line["overlaps"] = evaluate_beside(*run, of_graphs);
    lines.push_back(std::move(line));
    if (i == fallback)
      run->trained.fp8->fall_back(
          {run->trained.model->linears().front()->name, "asked for by the test", i});
  }
  lines.push_back(receipt_of(*run));
  return lines;
}

int run_cases(int64_t steps) {
  for (std::string line; std::getline(std::cin, line);) {
    Json result;
    try {
      result = steps_of(steps, 0, parse_json(line, "a case").get<std::vector<std::string>>());
    } catch (const std::exception& error) {
      result = {{"error", error.what()}};
    }
    std::printf("%s\n", result.dump().c_str());
    std::fflush(stdout);
  }
  return 0;
}

// Nobody may look at a number inside of a capture: it is given up, said, and the pass runs eagerly.
int spoil(const std::vector<std::string>& args) {
  constexpr int kSteps = 6;
  const auto run = start(args);
  int64_t passes = 0;
  const auto pass = [&](const models::DeviceBatch& batch) {
    ++passes;
    const at::Tensor sums = at::zeros({2}, batch.packed.options().dtype(at::kDouble));
    sums[0].item<double>();
    return train::MicroBatch{sums, {}, {}, {}};
  };
  for (int i = 0; i < kSteps; ++i)
    run->trained.graph->run(run->trained, run->data.loader->next(), 1, {}, pass);
  fake_cuda::api()->reset();
  train::train_step(*run);
  Json line = counts();
  line["passes"] = passes;  // one of them was not to be run
  line["fresh"] = run->trained.model->params().front()->grad_fresh;
  print_lines({line, receipt_of(*run)});
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc < 3 || !fake_cuda::is_active())
      fail(ExitCode::kUsage, "gpu_graph",
           "wanted STEPS, FALLBACK and flags, in a process on the fake CUDA device");
    const std::vector<std::string> flags(argv + 3, argv + argc);
    if (std::string(argv[1]) == "spoil") return spoil(flags);
    if (std::string(argv[1]) == "cases") return run_cases(std::stoll(argv[2]));
    print_lines(steps_of(std::stoll(argv[1]), std::stoll(argv[2]), flags));
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gpu_graph_tool: %s\n", error.what());
    return 1;
  }
}
