// The C++ side of tests/conformance/gpu_numbers.py: training steps through the CUDA path with
// numbers, on the fake CUDA device that was told to compute. For every line on stdin, a JSON object
// with flags for three runs from the same weights on the same data,
//   {"steps": 5, "gpu": [flags], "cpu": [flags], "fp32": [flags], "fault": 1}
// a line with the losses of each, how far apart each parameter ends, what served each operation,
// and what the device did not compute. "fault" spoils attention on the device (1: it does not).
//   {"verify": true}
// every line about kernels that octavo verify has on this device.

#include <ATen/ATen.h>

#include <cstdio>
#include <iostream>
#include <map>
#include <string>
#include <vector>

#include "aten_on_host.h"
#include "base/error.h"
#include "base/json.h"
#include "base/log.h"
#include "config/parse.h"
#include "engine/devices.h"
#include "fake_cuda/fake_cuda.h"
#include "tool_main.h"
#include "train/device.h"
#include "train/run.h"
#include "train/step.h"
#include "verify/kernels.h"

namespace octavo {
namespace {

using fake_cuda::Kind;

struct Result {
  std::vector<double> losses;
  std::map<std::string, at::Tensor> before, after;  // weights by name, FP64 on the CPU
  Json served = Json::object();
};

std::map<std::string, at::Tensor> weights_of(const train::Run& run) {
  std::map<std::string, at::Tensor> found;
  for (const auto& p : run.trained.model->params())
    found[p->name] = p->master.cpu().to(at::kDouble, /*non_blocking=*/false, /*copy=*/true);
  return found;
}

// Scales of norms and biases: a GPU reads BF16 copies of their FP32 masters, a CPU the masters. A
// CPU's steps that are to be compared with a GPU's read numbers of BF16 too: masters are rounded
// before a step, and what the step adds to them, which does not depend on them (vectors do not
// decay), is added to what they were.
class RoundedVectors {
 public:
  RoundedVectors(const train::Run& run, bool wanted) {
    if (!wanted) return;
    for (const auto& p : run.trained.model->params())
      if (p->master.dim() == 1 && run.trained.device().is_cpu()) vectors_.push_back({p->master});
  }
  void before_step() {
    for (Vector& v : vectors_) {
      v.full = v.master.clone();
      v.rounded = v.full.to(at::kBFloat16).to(at::kFloat);
      v.master.copy_(v.rounded);
    }
  }
  void after_step() {
    for (Vector& v : vectors_) v.master.copy_(v.full + (v.master - v.rounded));
  }

 private:
  struct Vector {
    at::Tensor master, full = {}, rounded = {};
  };
  std::vector<Vector> vectors_;
};

Result train_run(const std::vector<std::string>& flags, int64_t steps) {
  const config::Settings settings = config::parse(flags, config::kTrainArguments).settings;
  train::prepare_process(settings);
  const auto run = train::assemble(settings);
  // A run on the fake device has no weights and takes what it reads for nothing. Here it has both.
  run->trained.model->initialize(static_cast<uint64_t>(settings.seed));
  run->trained.has_numbers = true;
  Result result;
  result.before = weights_of(*run);
  RoundedVectors vectors(*run, settings.mixed_precision != config::Precision::kFp32);
  for (int64_t i = 0; i < steps; ++i) {
    vectors.before_step();
    result.losses.push_back(train::train_step(*run).loss);
    vectors.after_step();
  }
  result.after = weights_of(*run);
  for (const engine::Choice& choice : run->trained.engine->choices)
    result.served[choice.op] = choice.implementation;
  result.served["layers_in_fp8"] =
      run->trained.fp8 != nullptr ? run->trained.fp8->layers_in_fp8() : 0;
  return result;
}

// Of each parameter: how far the ends of two runs are apart, and of a run from its beginning.
Json distances(const Result& gpu, const Result& cpu, const Result& fp32) {
  const auto norm = [](const at::Tensor& t) { return t.norm().item<double>(); };
  Json found = Json::object();
  for (const auto& [key, end] : fp32.after) {
    const at::Tensor& start = fp32.before.at(key);
    if (!at::equal(start, gpu.before.at(key)) || !at::equal(start, cpu.before.at(key)))
      fail(ExitCode::kEnvironment, "gpu_numbers", key, " begins with other weights");
    found[key] = {{"gpu_cpu", norm(gpu.after.at(key) - cpu.after.at(key))},
                  {"cpu_fp32", norm(cpu.after.at(key) - end)},
                  {"way", norm(end - start)}};
  }
  return found;
}

// Kernels that were launched and are not ours (whose host bodies ran), GEMMs that were not computed
// and calls without a meaning: how often, by name.
Json not_computed() {
  Json found = Json::object();
  const auto add = [&](const std::string& name) { found[name] = found.value(name, 0) + 1; };
  const fake_cuda::Api& api = *fake_cuda::api();
  std::vector<fake_cuda::Event> events(api.events(nullptr, 0, 0));
  api.events(events.data(), 0, events.size());
  for (const auto& event : events) {
    const std::string name = event.name;
    if (event.kind == Kind::kUnexpected ||
        (event.kind == Kind::kLaunch && name.find("octavo::kernels") == std::string::npos))
      add(name);
  }
  std::vector<fake_cuda::Gemm> gemms(api.gemms(nullptr, 0, 0));
  api.gemms(gemms.data(), 0, gemms.size());
  for (const auto& gemm : gemms)
    if (gemm.computed == 0) add(gemm.entry);
  fake_cuda::Counters counters{};
  api.counters(&counters);
  if (counters.events_dropped > 0) add("events that were not kept");
  return found;
}

// Runs on the CPU are the same for several cases.
const Result& on_cpu(const Json& flags, int64_t steps) {
  static std::map<std::string, Result> known;
  const std::string key = str(flags.dump(), steps);
  if (!known.contains(key)) known[key] = train_run(flags.get<std::vector<std::string>>(), steps);
  return known[key];
}

Json run_case(const Json& given) {
  const auto steps = given.at("steps").get<int64_t>();
  const Result &cpu = on_cpu(given.at("cpu"), steps), &fp32 = on_cpu(given.at("fp32"), steps);
  set_attention_fault(given.value("fault", 1.0));
  fake_cuda::api()->reset();
  const Result gpu = train_run(given.at("gpu").get<std::vector<std::string>>(), steps);
  const Json missing = not_computed();
  return {{"gpu", gpu.losses},    {"cpu", cpu.losses},
          {"fp32", fp32.losses},  {"weights", distances(gpu, cpu, fp32)},
          {"served", gpu.served}, {"not_computed", missing}};
}

Json verify_kernels() {
  config::Settings settings;
  settings.device = config::DeviceChoice::kCuda;
  settings.use_fp8 = true;
  fake_cuda::api()->reset();
  Json lines = Json::object();
  for (const verify::Finding& f : verify::check_kernels(
           train::target_of(settings), /*fake_device=*/false, [](const std::string&) {}))
    lines[f.id] = {{"status", verify::name_of(f.status)}, {"found", f.found}};
  return {{"lines", lines}, {"not_computed", not_computed()}};
}

void run_tool() {
  set_log_level(LogLevel::kError);
  if (!fake_cuda::is_active())
    fail(ExitCode::kUsage, "gpu_numbers",
         "wanted a process on the fake CUDA device; run gpu_numbers.py");
  if (engine::gpus().gpus.empty())
    fail(ExitCode::kEnvironment, "gpu_numbers", engine::gpus().reason);
  run_aten_on_host();
  for (std::string line; std::getline(std::cin, line);) {
    Json result;
    try {
      const Json given = parse_json(line, "a case");
      result = given.contains("verify") ? verify_kernels() : run_case(given);
    } catch (const std::exception& error) {
      result = {{"error", error.what()}};
    }
    std::printf("%s\n", result.dump().c_str());
    std::fflush(stdout);
  }
}

}  // namespace
}  // namespace octavo

int main() {
  return octavo::tool_main([] { octavo::run_tool(); });
}
