// The octavo side of bench/gpt2_vs_pytorch.py: GPT-2 124M on random tokens, the real training step.
// usage: step_bench BATCH LENGTH; then for every line N on stdin: N steps, one line with the
// seconds of each.
//        step_bench BATCH LENGTH --profile [--steps N]: where the time of a step goes, over N steps
//        (10).
//        --recipe NAME or --precision NAME before or after: in FP8, or as mixed_precision says.
//        step_bench --instruction-sets: what kernels and GEMMs use of this CPU.
//        step_bench profile [CONFIG.yaml] [--key value]…: the same of any run of octavo train.
//        step_bench steps N [CONFIG.yaml] [--key value]…: N steps of any run on the fake CUDA
//        device (src/fake_cuda); a line of JSON for each with what it asked of the device, and the
//        names of the last one's launches.
//        step_bench operations N [CONFIG.yaml] [--key value]…: the same; of the last one every
//        operation with its tensors, as one line of JSON (operation_log.h).
//        step_bench cases N: for every line on stdin, a JSON array of such arguments, N steps in
//        the same process; a line of JSON with all of that.

#include <cstdio>
#include <iostream>
#include <map>
#include <string>

#include "base/error.h"
#include "base/json.h"
#include "base/openmp_waiting.h"
#include "config/key.h"
#include "config/parse.h"
#include "engine/allocator.h"
#include "engine/cpu/gemm.h"
#include "engine/cpu/instruction_set.h"
#include "fake_cuda/fake_cuda.h"
#include "model_config/presets.h"
#include "operation_log.h"
#include "timed_engine.h"
#include "train/device.h"
#include "train/dry_run.h"
#include "train/random_run.h"
#include "train/run.h"
#include "train/step.h"

namespace {

using namespace octavo;

// Median-free by design: a sum over steps, so that the parts add up to the whole.
int profile(train::Run& run, int64_t steps = 10) {
  constexpr int kWarmUp = 3;
  bench::Seconds table;
  bench::time_operations(*run.trained.engine, table);
  for (int i = 0; i < kWarmUp; ++i) train::train_step(run);
  table.clear();
  double total = 0;
  for (int64_t i = 0; i < steps; ++i) total += train::train_step(run).seconds;
  double left = total;
  std::printf("| part | ms per step | share |\n|---|---|---|\n");
  const auto row = [&](const std::string& name, double seconds) {
    std::printf("| %s | %.1f | %.1f%% |\n", name.c_str(),
                1e3 * seconds / static_cast<double>(steps), 100 * seconds / total);
  };
  for (const auto& [name, seconds] : table) {
    row(name, seconds);
    left -= seconds;
  }
  row("everything else", left);
  row("step", total);
  return 0;
}

void set_key(config::Settings& settings, const char* name, const std::string& value) {
  const config::Key& key = *config::find_key(name);
  if (key.store(settings, std::span(&value, 1))) return;
  std::fprintf(stderr, "step_bench: wanted %s, found %s\n", key.wanted.c_str(), value.c_str());
  std::exit(2);
}

void use_recipe(config::Settings& settings, const std::string& name) {
  set_key(settings, "fp8_recipe", name);
  settings.use_fp8 = true;
  settings.fp8_stats_freq = 0;
}

// What the fake CUDA device was asked for since the last call; {} elsewhere.
Json asked_for() {
  const fake_cuda::Api* api = fake_cuda::api();
  if (api == nullptr) return Json::object();
  using fake_cuda::Kind;
  fake_cuda::Counters c{};
  api->counters(&c);
  api->reset();
  return {{"launches", c.of(Kind::kLaunch)},
          {"gemms", c.of(Kind::kGemm)},
          {"memsets", c.of(Kind::kMemset)},
          {"mallocs", c.of(Kind::kMalloc)},
          {"host_waits", c.host_waits()},
          {"to_host", c.of(Kind::kCopyToHost)},
          {"to_device", c.of(Kind::kCopyToDevice)},
          {"unexpected", c.of(Kind::kUnexpected)},
          {"graph_launches", c.of(Kind::kGraphLaunch)}};
}

// How often each kernel was launched since the last reset.
Json launches_by_name() {
  const fake_cuda::Api* api = fake_cuda::api();
  std::vector<fake_cuda::Event> events(api->events(nullptr, 0, 0));
  api->events(events.data(), 0, events.size());
  std::map<std::string, int> counts;
  for (const auto& e : events)
    if (e.kind == fake_cuda::Kind::kLaunch || e.kind == fake_cuda::Kind::kGemm) ++counts[e.name];
  return counts;
}

// A run on the fake CUDA device.
std::unique_ptr<train::Run> run_on_fake_device(const std::vector<std::string>& args) {
  const config::Settings settings = config::parse(args, config::kTrainArguments).settings;
  train::prepare_process(settings);
  auto run = train::assemble(settings);
  if (run->trained.has_numbers)
    fail(ExitCode::kUsage, "step_bench", "wanted the fake CUDA device, found ",
         run->trained.device().str());
  return run;
}

int operations_on_fake_device(int64_t steps, const std::vector<std::string>& args) {
  const auto run = run_on_fake_device(args);
  for (int64_t i = 1; i < steps; ++i) train::train_step(*run);
  bench::OperationLog log;
  train::train_step(*run);
  std::printf("%s\n", log.result().dump().c_str());
  return 0;
}

// What runs, beside the step lines.
Json choices_of(const train::Run& run) {
  const auto& decision = run.trained.fp8_decision;
  Json found = {{"recipe", ""}, {"backend", ""}, {"fp8_layers", 0}};
  if (decision && decision->runs != fp8::Runs::kBf16)
    found = {{"recipe", config::name_of(decision->options.recipe)},
             {"backend", decision->backend},
             {"fp8_layers", run.trained.fp8->layers_in_fp8()}};
  for (const engine::Choice& choice : run.trained.engine->choices)
    if (choice.op == "attention") found["attention"] = choice.implementation;
  return found;
}

struct FakeSteps {
  std::vector<Json> lines;  // one for each
  Json names;               // of the last one's launches
  Json choices;
};

FakeSteps fake_steps(int64_t steps, const std::vector<std::string>& args) {
  const auto run = run_on_fake_device(args);
  asked_for();
  FakeSteps found;
  for (int64_t i = 0; i < steps; ++i) {
    const auto record = train::train_step(*run);
    if (i + 1 == steps) found.names = launches_by_name();
    Json line = asked_for();
    line["precision"] = run->trained.precision();
    line["seconds"] = record.seconds;
    line["peak"] = engine::memory_of(run->trained.device()).peak;
    found.lines.push_back(std::move(line));
  }
  found.choices = choices_of(*run);
  return found;
}

int steps_on_fake_device(int64_t steps, const std::vector<std::string>& args) {
  const FakeSteps found = fake_steps(steps, args);
  for (const Json& line : found.lines) std::printf("%s\n", line.dump().c_str());
  std::printf("%s\n", found.names.dump().c_str());
  return 0;
}

int cases_on_fake_device(int64_t steps) {
  for (std::string line; std::getline(std::cin, line);) {
    Json result;
    try {
      const FakeSteps found =
          fake_steps(steps, parse_json(line, "a case").get<std::vector<std::string>>());
      result = found.choices;
      result["steps"] = found.lines;
      result["names"] = found.names;
    } catch (const std::exception& error) {
      result = {{"error", error.what()}};
    }
    std::printf("%s\n", result.dump().c_str());
    std::fflush(stdout);
  }
  return 0;
}

// Bytes that the linear layers keep for the backward pass of one micro-batch.
double linear_saved(const models::Model& model) {
  double bytes = 0;
  for (const auto& layer : model.linears()) bytes += static_cast<double>(layer->saved_bytes);
  return bytes;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2 && std::string_view(argv[1]) == "--instruction-sets") {
    std::printf("kernels=%s gemms=%s\n", engine::cpu::kernel_instruction_set().c_str(),
                engine::cpu::gemm_instruction_set().c_str());
    return 0;
  }
  if (argc < 3) return 2;
  if (std::string_view(argv[1]) == "profile") {
    const std::vector<std::string> args(argv + 2, argv + argc);
    const config::Settings settings = config::parse(args, config::kTrainArguments).settings;
    train::prepare_process(settings);
    return profile(*train::assemble(settings));
  }
  if (std::string_view(argv[1]) == "cases") return cases_on_fake_device(std::stoll(argv[2]));
  for (const auto& [word, run_steps] :
       {std::pair{"steps", &steps_on_fake_device}, {"operations", &operations_on_fake_device}}) {
    if (std::string_view(argv[1]) != word) continue;
    try {
      return run_steps(std::stoll(argv[2]), {argv + 3, argv + argc});
    } catch (const Error& error) {
      std::fprintf(stderr, "step_bench: %s\n", error.what());
      return static_cast<int>(error.code());
    }
  }
  start_again_with_brief_spinning(argv);  // as octavo does when it loads its libraries
  train::Run run;
  auto& s = run.settings;
  s.batch_size = std::stoll(argv[1]);
  s.max_seq_length = std::stoll(argv[2]);
  s.learning_rate = 3e-4;
  s.max_grad_norm = 0;  // the PyTorch step does not clip
  bool profiles = false;
  int64_t profile_steps = 10;
  for (int i = 3; i < argc; ++i) {
    const std::string word = argv[i];
    profiles = profiles || word == "--profile";
    if (word == "--recipe" && i + 1 < argc) use_recipe(s, argv[++i]);
    if (word == "--precision" && i + 1 < argc) set_key(s, "mixed_precision", argv[++i]);
    if (word == "--steps" && i + 1 < argc) profile_steps = std::stoll(argv[++i]);
  }
  train::prepare_process(s);
  run.trained = train::on_device(s);
  run.trained.model = models::make(model_config::gpt2({.vocab = 50304}), *run.trained.engine);
  run.trained.model->initialize(0);
  run.trained.optimizer = optim::make("adamw", *run.trained.engine, run.trained.model->params(),
                                      {.max_grad_norm = s.max_grad_norm});
  run.data.train = std::make_shared<train::RandomTokens>(50257);
  run.data.loader = std::make_unique<data::Loader>(
      run.data.train, data::Loader::Options{.rows = s.batch_size, .length = s.max_seq_length},
      data::Position{});
  run.schedule = {
      .max_lr = s.learning_rate, .min_lr_ratio = 1, .warmup_steps = 0, .max_steps = 1'000'000};

  train::start_fp8(s, run.world, run.trained);
  if (profiles) return profile(run, profile_steps);
  double saved = 0;
  for (int64_t steps = 0; std::cin >> steps;) {
    double loss = 0;
    asked_for();
    for (int64_t i = 0; i < steps; ++i) {
      const auto record = train::train_step(run);
      loss = record.loss;
      std::printf("%.6f ", record.seconds);
    }
    if (const Json asked = asked_for(); !asked.empty())
      for (const char* key : {"launches", "gemms", "memsets", "mallocs", "host_waits"})
        std::printf("%s=%.2f ", key, asked[key].get<double>() / static_cast<double>(steps));
    if (saved == 0) saved = train::bytes_for_backward(run.trained, *run.data.loader);
    std::printf("loss=%.4f peak_mb=%.0f linear_saved_mb=%.3f saved_mb=%.3f\n", loss,
                static_cast<double>(engine::memory_of(run.trained.device()).peak) / 1e6,
                linear_saved(*run.trained.model) / 1e6, saved / 1e6);
    std::fflush(stdout);
  }
  return 0;
}
