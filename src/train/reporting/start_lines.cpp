#include "train/reporting/start_lines.h"

#include <ATen/Parallel.h>

#include <algorithm>

#include "base/error.h"
#include "base/openmp_waiting.h"
#include "base/printed.h"
#include "base/progress.h"
#include "base/text.h"
#include "engine/cpu/gemm.h"
#include "launch/threads.h"
#include "train/reporting/fp8_report.h"
#include "train/run_schedule.h"

namespace octavo::train {
namespace {

constexpr size_t kMostOfNames = 60;  // bytes

std::string data_names(const std::vector<std::string>& names) {
  std::string text = join(names, ", ");
  if (text.size() <= kMostOfNames) return text;
  size_t end = kMostOfNames;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return text.substr(0, end) + "…";
}

std::string model_line(const Run& run) {
  const auto& s = run.settings;
  const auto per_step = static_cast<double>(run.tokens_per_step());
  const double steps = static_cast<double>(run.schedule.max_steps);
  const auto samples = static_cast<double>(run.data.loader->samples_per_epoch());
  const double of_a_step = static_cast<double>(samples_per_step(s, run.world.size()));
  return octavo::str("model: ", s.model_name, ", ",
                     format_count(static_cast<double>(models::parameter_count(*run.trained.model))),
                     " parameters, vocabulary ", run.trained.model->vocab_size(),
                     "; data: ", data_names(s.dataset), ", ",
                     format_count(static_cast<double>(run.data.train->tokens())), " tokens; ",
                     run.schedule.max_steps, " steps of ", run.tokens_per_step(), " tokens (",
                     format_count(steps * per_step), " in all",
                     samples > 0 ? printed(", %.3g epochs", steps * of_a_step / samples) : "",
                     "), warm-up ", run.schedule.warmup_steps);
}

// What FP8 became: "recipe delayed, FP8 backend: te".
std::string fp8_words(const TrainedModel& trained) {
  if (!trained.fp8_decision) return "FP8: off";
  if (trained.fp8 == nullptr) return "FP8: not on this device, as warned";
  return octavo::str("recipe ", config::name_of(trained.fp8->options().recipe),
                     ", FP8 backend: ", trained.fp8_decision->backend);
}

std::string precision_line(const Run& run) {
  const TrainedModel& trained = run.trained;
  const at::Device device = trained.device();
  std::string line =
      octavo::str("precision: ", trained.precision(), ", ", fp8_words(trained),
                  "; kernels: ", kernel_words(trained.engine->choices, trained.fp8 != nullptr),
                  "; ", device.str());
  if (device.is_cpu()) line += " (" + engine::cpu::gemm_instruction_set() + ")";
  line += octavo::str(", ", at::get_num_threads(), " threads");
  if (run.world.size() > 1)
    line += octavo::str(", ", run.world.size(), " ranks, sharding_mode ",
                        config::name_of(run.settings.sharding_mode), ", gradients reduced in ",
                        config::name_of(run.settings.grad_reduce_dtype));
  return line;
}

}  // namespace

std::string kernel_words(const std::vector<engine::Choice>& choices, bool with_fp8) {
  std::vector<std::string> named, others;
  for (const char* op : {"fp8_linear", "matmul", "attention"})
    for (const engine::Choice& choice : choices)
      if (choice.op == op && (with_fp8 || choice.op != "fp8_linear"))
        named.push_back(choice.op + " " + choice.implementation);
  for (const engine::Choice& choice : choices) {
    const std::string& op = choice.op;
    if (op == "fp8_linear" || op == "matmul" || op == "attention") continue;
    if (std::ranges::find(others, choice.implementation) == others.end())
      others.push_back(choice.implementation);
  }
  if (!others.empty()) named.push_back("others " + join(others, ", "));
  return join(named, ", ");
}

std::string threads_line(const config::Settings& settings) {
  const launch::ThreadChoice chosen =
      launch::choose_threads(settings.num_threads, launch::rank_info_from_environment(),
                             launch::environment(), own_cpu_share());
  return octavo::str("threads: ", at::get_num_threads(), " ", chosen.reason, "; ", waiting_words());
}

std::vector<std::string> start_lines(const Run& run) {
  std::vector<std::string> lines = {model_line(run), precision_line(run)};
  if (!run.trained.fp8_decision) return lines;
  const std::vector<GemmLine> gemms = gemm_lines(run.trained, run.settings.max_seq_length);
  lines.push_back(run.settings.verbose
                      ? "GEMMs:\n" + gemm_table(gemms)
                      : "GEMMs by group of layers (each of them: --verbose, receipt.json):\n" +
                            folded_gemm_table(gemms));
  return lines;
}

}  // namespace octavo::train
