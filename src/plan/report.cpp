#include "plan/report.h"

#include <cmath>
#include <cstdarg>
#include <cstdio>

#include "base/error.h"
#include "plan/accuracy.h"

namespace octavo::plan {
namespace {

__attribute__((format(printf, 1, 2))) std::string line(const char* format, ...) {
  char buffer[512];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(buffer, sizeof buffer, format, arguments);
  va_end(arguments);
  return std::string(buffer) + "\n";
}

const char* title_of(Sharding sharding) {
  switch (sharding) {
    case Sharding::kNone:
      return "one copy";
    case Sharding::kDdp:
      return "ddp";
    case Sharding::kZero1:
      return "zero1";
    case Sharding::kZero2:
      return "zero2";
    case Sharding::kFull:
      return "fully sharded";
  }
  return "?";
}

std::string count_text(double count) {
  char text[48];
  if (count >= 1e9)
    std::snprintf(text, sizeof text, "%.2f billion", count / 1e9);
  else if (count >= 1e6)
    std::snprintf(text, sizeof text, "%.2f million", count / 1e6);
  else
    std::snprintf(text, sizeof text, "%.0f", count);
  return text;
}

std::string memory_table(const Forecast& f) {
  std::string out = line("memory per %s (forecast, within %.0f%%)%10s%10s", f.cpu ? "CPU" : "GPU",
                         100 * (f.cpu ? kCpuMemoryError : kMemoryError), "BF16", "FP8");
  const auto high = parts_of(f.bf16_memory), low = parts_of(f.fp8_memory);
  for (size_t i = 0; i < high.size(); ++i)
    if (high[i].value > 0 || low[i].value > 0)
      out += line("  %-38s%7.2f GB%7.2f GB", high[i].name, high[i].value / kGiga,
                  low[i].value / kGiga);
  out += line("  %-38s%7.2f GB%7.2f GB", "peak", f.bf16_memory.total / kGiga,
              f.fp8_memory.total / kGiga);
  out += line("  peak during: %s (BF16), %s (FP8)", f.bf16_memory.moment.c_str(),
              f.fp8_memory.moment.c_str());
  if (!f.cpu)
    out += line("  %s has %.1f GB to use: it %s", std::string(f.gpu->title).c_str(),
                f.memory_limit / kGiga, f.fits() ? "fits" : "does NOT fit");
  if (f.gpus > 1)
    out += "  what several GPUs share was held against the allocators of 2 to 8 fake devices\n";
  if (!f.program.empty())
    out +=
        str("  of octavo's own layout: ", f.program, " may need more or less for the same run\n");
  if (!f.advice.lines.empty())
    out += "  what to change, first things first (each on top of the last):\n";
  for (const std::string& advice : f.advice.lines) out += "    " + advice + "\n";
  return out;
}

std::string time_table(const Forecast& f) {
  std::string out = line(
      "step time by part, ms (forecast: half of all held-out measurements were "
      "within %.0f%%, nine tenths within %.0f%%)",
      100 * kMedianError, 100 * kNinetyError);
  out += str("  for ", f.program.empty() ? "programs on Transformer Engine" : f.program, ", as ",
             f.program.empty() ? "NVIDIA publishes them" : "published runs of it are",
             "; octavo itself was never timed on a GPU\n");
  out += str("  held-out measurements of ", f.program.empty() ? "such programs" : "its kind", ": ",
             held_out_text(kStackErrors, f.stack), "; of ", f.gpu->title, ": ",
             held_out_text(kGpuErrors, f.gpu->name), "\n");
  out += "  part          ";
  for (const RecipeForecast& r : f.recipes)
    out += r.refusal.empty() ? [&] {
      char name[16];
      std::snprintf(name, sizeof name, "%11s", std::string(name_of(r.recipe)).c_str());
      return std::string(name);
    }() : "";
  out += "\n";
  const size_t parts = parts_of(f.recipes.front().time).size();
  const auto row = [&](const char* name, auto&& value, const char* format) {
    out += "  ";
    char cell[32];
    std::snprintf(cell, sizeof cell, "%-14s", name);
    out += cell;
    for (const RecipeForecast& r : f.recipes) {
      if (!r.refusal.empty()) continue;
      std::snprintf(cell, sizeof cell, format, value(r));
      out += cell;
    }
    out += "\n";
  };
  for (size_t i = 0; i < parts; ++i)
    row(
        parts_of(f.recipes.front().time)[i].name,
        [&](const RecipeForecast& r) { return 1e3 * parts_of(r.time)[i].value; }, "%11.2f");
  row(
      "step", [](const RecipeForecast& r) { return 1e3 * r.time.total; }, "%11.2f");
  row(
      "tokens/s/GPU", [](const RecipeForecast& r) { return r.time.tokens_per_s; }, "%11.0f");
  row(
      "model TFLOP/s", [](const RecipeForecast& r) { return r.time.flops / r.time.total / 1e12; },
      "%11.0f");
  row(
      "over BF16", [](const RecipeForecast& r) { return r.gain; }, "%10.2fx");
  for (const RecipeForecast& r : f.recipes)
    if (!r.refusal.empty())
      out += line("  %s: %s", std::string(name_of(r.recipe)).c_str(), r.refusal.c_str());
  return out;
}

std::string traffic_line(const Forecast& f) {
  if (f.gpus < 2) return "";
  const Traffic& t = f.traffic;
  return line("each GPU sends %.2f GB a step: %.2f to gather weights, %.2f to sum gradients%s",
              t.total() / kGiga, t.gather / kGiga, t.reduce / kGiga,
              t.replicas > 0 ? str(", ", std::round(100 * t.replicas / kGiga) / 100,
                                   " between the nodes' copies")
                                   .c_str()
                             : "");
}

// "2.9", "277": small ones would lose too much without a decimal.
std::string short_number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, value < 9.95 ? "%.1f" : "%.0f", value);
  return text;
}

std::string cost_lines(const Forecast& f) {
  const auto one = [&](const char* name, const Costs& costs) {
    const std::string cost = costs.money > 0 ? ", cost " + short_number(costs.money) : "";
    return line("  %-8s %.3g tokens: %.1f hours, %s GPU-hours%s", name, costs.tokens, costs.hours,
                short_number(costs.gpu_hours).c_str(), cost.c_str());
  };
  std::string out =
      str("time and cost", f.cost_steps > 0 ? str(" of ", f.cost_steps, " steps") : "",
          " (forecast; as wrong as the step time)\n");
  out += one("bf16", f.bf16_costs);
  if (f.wants_fp8) {
    const RecipeForecast& it = f.chosen();
    const std::string name(name_of(f.wanted));
    out += one((it.runs == f.wanted ? name : str(name, " (", name_of(it.runs), " runs)")).c_str(),
               f.wanted_costs);
  }
  const Failures& x = f.failures;
  const double minutes = x.checkpoint_interval / 60;
  const bool in_hours = minutes >= 120;
  out += line(
      "  a failure every %.0f hours: a checkpoint every %.0f %s (Young and Daly), goodput %.1f%%",
      x.hours_between, in_hours ? minutes / 60 : minutes, in_hours ? "hours" : "minutes",
      100 * x.goodput);
  return out;
}

nlohmann::ordered_json parts_json(const std::vector<Part>& parts) {
  nlohmann::ordered_json out;
  for (const Part& part : parts) out[part.json_key] = part.value;
  return out;
}

nlohmann::ordered_json memory_json(const Memory& m) {
  nlohmann::ordered_json out = parts_json(parts_of(m));
  out["peak"] = m.total;
  out["fullest_at"] = m.moment;
  return out;
}

nlohmann::ordered_json costs_json(const Costs& c) {
  return {{"tokens", c.tokens}, {"hours", c.hours}, {"gpu_hours", c.gpu_hours}, {"money", c.money}};
}

}  // namespace

std::vector<Part> parts_of(const Memory& m) {
  return {{"weights", m.weights},         {"masters", m.masters},
          {"FP8 copies", m.fp8_weights},  {"scales", m.scales},
          {"gradients", m.gradients},     {"moments", m.moments},
          {"activations", m.activations}, {"logits", m.logits},
          {"buffers", m.buffers},         {"fragmentation", m.fragmentation}};
}

std::vector<Part> parts_of(const StepTime& t) {
  return {{"GEMMs", t.gemms, "products"}, {"adapters", t.adapters},       {"LM head", t.head},
          {"attention", t.attention},     {"elementwise", t.elementwise}, {"quantize", t.quantize},
          {"optimizer", t.optimizer},     {"collectives", t.collectives}, {"host", t.host}};
}

std::string head_of(const Forecast& f) {
  const bool everywhere = f.lora_targets == LoraTargets::kAll;
  const std::string adapters = f.lora_rank > 0
                                   ? str(", LoRA rank ", f.lora_rank, " on ",
                                         everywhere ? "all linear layers" : "q, k, v and o")
                                   : "";
  const std::string active =
      f.shape.experts > 0
          ? str(" (", count_text(static_cast<double>(active_parameters(f.shape))),
                " active: ", f.shape.active_experts, " of ", f.shape.experts, " experts)")
          : "";
  std::string out =
      line("forecast, not a measurement: %s, %s parameters%s%s, %lld x %s, %s",
           f.shape.name.c_str(), count_text(static_cast<double>(parameters(f.shape))).c_str(),
           active.c_str(), adapters.c_str(), static_cast<long long>(f.gpus),
           std::string(f.gpu->title).c_str(), title_of(f.sharding));
  if (!f.shape.refusal.empty()) out += "train cannot run this model: " + f.shape.refusal + "\n";
  out += line("each GPU: %lld x %lld tokens, %lld micro-batch%s a step%s",
              static_cast<long long>(f.batch), static_cast<long long>(f.length),
              static_cast<long long>(f.accumulation), f.accumulation == 1 ? "" : "es",
              f.batch_note.empty() ? "" : str(" (", f.batch_note, ")").c_str());
  if (f.measured.is_given()) out += str("calibrated to what was measured: ", f.measured.what, "\n");
  return out;
}

std::string text_of(const Forecast& f) {
  std::string out = head_of(f) + memory_table(f) + traffic_line(f) + time_table(f);
  out += line("where FP8's gain goes (speed-up forecast: within %.2f for %.0f%% of held-out pairs)",
              kGainError, 100 * kGainShare);
  for (const std::string& reason : f.reasons) out += "  " + reason + "\n";
  return out + cost_lines(f);
}

nlohmann::ordered_json json_of(const Forecast& f) {
  nlohmann::ordered_json out = {{"forecast", true},
                                {"model", f.shape.name},
                                {"parameters", parameters(f.shape)},
                                {"active_parameters", active_parameters(f.shape)},
                                {"train_refuses", f.shape.refusal},
                                {"gpu", std::string(f.gpu->name)},
                                {"num_gpus", f.gpus},
                                {"batch_size", f.batch},
                                {"gradient_accumulation_steps", f.accumulation},
                                {"batch_chosen_by", f.batch_note},
                                {"program", f.program},
                                {"sharding", title_of(f.sharding)},
                                {"errors",
                                 {{"median_tokens_per_s", kMedianError},
                                  {"p90_tokens_per_s", kNinetyError},
                                  {"gain_within", kGainError},
                                  {"gain_share", kGainShare},
                                  {"memory", kMemoryError}}},
                                {"memory",
                                 {{"bf16", memory_json(f.bf16_memory)},
                                  {"fp8", memory_json(f.fp8_memory)},
                                  {"usable", f.memory_limit},
                                  {"fits", f.fits()},
                                  {"advice", f.advice.lines},
                                  {"advice_flags", f.advice_flags()}}}};
  out["traffic"] = {{"gathered", f.traffic.gather},
                    {"reduced", f.traffic.reduce},
                    {"between_copies", f.traffic.replicas},
                    {"calls", f.traffic.calls + f.traffic.replica_calls}};
  for (const RecipeForecast& r : f.recipes) {
    nlohmann::ordered_json row = {{"recipe", std::string(name_of(r.recipe))},
                                  {"refusal", r.refusal},
                                  {"runs", std::string(name_of(r.runs))},
                                  {"seconds", parts_json(parts_of(r.time))},
                                  {"step_seconds", r.time.total},
                                  {"tokens_per_s_per_gpu", r.time.tokens_per_s},
                                  {"gain", r.gain}};
    out["recipes"].push_back(row);
  }
  out["wanted"] = std::string(name_of(f.wanted));
  const SpeedRange range = speed_range(f);
  out["tokens_per_s_per_gpu_range"] = {range.low, range.high};
  out["levers"] = nlohmann::ordered_json::array();
  for (const Lever& lever : f.levers)
    out["levers"].push_back({{"change", lever.what}, {"gain", lever.gain}, {"peak", lever.bytes}});
  out["measured"] = f.measured.what;
  out["reasons"] = f.reasons;
  out["costs"] = {{"bf16", costs_json(f.bf16_costs)}, {"wanted", costs_json(f.wanted_costs)}};
  out["failures"] = {{"hours_between", f.failures.hours_between},
                     {"checkpoint_interval_seconds", f.failures.checkpoint_interval},
                     {"goodput", f.failures.goodput}};
  return out;
}

}  // namespace octavo::plan
