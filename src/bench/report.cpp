#include "bench/report.h"

#include <cmath>

#include "base/error.h"
#include "base/printed.h"

namespace octavo::bench {
namespace {

std::string rate_text(double flops, double seconds) {
  const double gigaflops = flops / seconds / 1e9;
  return gigaflops < 1e4 ? printed("%.0f GFLOP/s", gigaflops)
                         : printed("%.0f TFLOP/s", gigaflops / 1e3);
}

std::string milliseconds(const Spread& s) {
  return printed("%.3f (%.3f-%.3f)", 1e3 * s.median, 1e3 * s.low, 1e3 * s.high);
}

std::string gemm_row(const LayerTimes& times, nn::Gemm gemm) {
  const Spread bf16 = times.bf16(gemm);
  std::string row =
      printed("    %-16s %-24s %13s", std::string(nn::name_of(gemm)).c_str(),
              milliseconds(bf16).c_str(), rate_text(times.flops(), bf16.median).c_str());
  if (!times.has_fp8) return row + "\n";
  const Spread fp8 = times.fp8(gemm), ratio = times.ratio(gemm);
  return row + printed(" | %-24s %13s %6.2fx | %9.3f %6.2fx (%.2f-%.2f)\n",
                       milliseconds(fp8).c_str(), rate_text(times.flops(), fp8.median).c_str(),
                       bf16.median / fp8.median, 1e3 * times.quantize(gemm).median, ratio.median,
                       ratio.low, ratio.high);
}

Json spread_json(const Spread& s) {
  return {{"median", s.median}, {"low", s.low}, {"high", s.high}};
}

Json gemm_json(const LayerTimes& times, nn::Gemm gemm) {
  const Spread bf16 = times.bf16(gemm);
  Json one = {{"product", nn::name_of(gemm)},
              {"flops", times.flops()},
              {"bf16_seconds", spread_json(bf16)},
              {"bf16_gflops", times.flops() / bf16.median / 1e9}};
  if (!times.has_fp8) return one;
  const Spread fp8 = times.fp8(gemm);
  one["fp8_seconds"] = spread_json(fp8);
  one["fp8_gflops"] = times.flops() / fp8.median / 1e9;
  one["quantize_seconds"] = spread_json(times.quantize(gemm));
  one["ratio_alone"] = bf16.median / fp8.median;
  one["ratio"] = spread_json(times.ratio(gemm));
  return one;
}

Json entry_json(const Entry& e) {
  Json gemms = Json::array();
  for (const nn::Gemm gemm : e.times.gemms()) gemms.push_back(gemm_json(e.times, gemm));
  return {{"name", e.name},
          {"layers", e.layers},
          {"tokens", e.times.shape.tokens},
          {"outputs", e.times.shape.outputs},
          {"inputs", e.times.shape.inputs},
          {"rounds", e.times.rounds.size()},
          {"refusal", e.refusal},
          {"stays_in_bf16", e.is_head || !e.refusal.empty()},
          {"products", gemms}};
}

Json steps_json(const StepTimes& s) {
  if (!s.problem.empty()) return {{"problem", s.problem}};
  return {{"steps", s.steps},
          {"in_turns", s.in_turns},
          {"precision", s.fp8_precision},
          {"bf16_seconds", spread_json(s.bf16)},
          {"fp8_seconds", spread_json(s.fp8)},
          {"ratio", spread_json(s.ratio)}};
}

}  // namespace

std::string about_line(const Bench& b) {
  return printed(
      "bench: %s, %lld x %lld = %lld tokens a pass, FP8 %s %s (%s) against BF16 on: %s\n",
      b.model.c_str(), static_cast<long long>(b.batch), static_cast<long long>(b.length),
      static_cast<long long>(b.tokens()), b.recipe.c_str(), b.format.c_str(), b.kernels.c_str(),
      b.device.c_str());
}

std::string rehearsal_line() {
  return "REHEARSAL: FP8's numbers are computed on BF16 units, with quantizing on top: it "
         "cannot be faster, and what looks so is noise.\nNo speed of a GPU follows from these "
         "numbers; octavo plan forecasts "
         "one.\n";
}

std::string pays_line(const Bench& b) {
  if (b.sweep.empty()) return "";
  const auto tokens = b.pays_from_tokens();
  const std::string range =
      printed("measured from %lld (%.2fx) to %lld tokens (%.2fx)",
              static_cast<long long>(b.sweep.front().tokens), b.sweep.front().ratio.median,
              static_cast<long long>(b.sweep.back().tokens), b.sweep.back().ratio.median);
  if (!tokens)
    return "FP8 starts to pay: never here, " + range +
           (b.is_rehearsal ? "; a rehearsal cannot\n" : "\n");
  const double samples = std::ceil(*tokens / static_cast<double>(b.length));
  const bool everywhere = *tokens <= static_cast<double>(b.sweep.front().tokens);
  return printed("FP8 starts to pay: %s %.0f tokens, batch_size %.0f of %lld tokens (%s)\n",
                 everywhere ? "at or below" : "from about", *tokens, samples,
                 static_cast<long long>(b.length), range.c_str());
}

std::string steps_line(const Bench& b) {
  if (!b.steps) return "";
  const StepTimes& s = *b.steps;
  if (!s.problem.empty()) return "whole step: not timed: " + s.problem + "\n";
  const double tokens = static_cast<double>(b.tokens() * b.passes);
  return printed(
      "whole step (%lld, %s): BF16 %.1f ms (%.1f-%.1f), %.0f tokens/s; %s %.1f ms (%.1f-%.1f), "
      "%.0f tokens/s; %.2fx (%.2f-%.2f)\n",
      static_cast<long long>(s.steps), s.in_turns ? "in turns" : "one after the other",
      1e3 * s.bf16.median, 1e3 * s.bf16.low, 1e3 * s.bf16.high, tokens / s.bf16.median,
      s.fp8_precision.c_str(), 1e3 * s.fp8.median, 1e3 * s.fp8.low, 1e3 * s.fp8.high,
      tokens / s.fp8.median, s.ratio.median, s.ratio.low, s.ratio.high);
}

std::string text_of(const Bench& b) {
  std::string text = about_line(b) + (b.is_rehearsal ? rehearsal_line() : "");
  text += printed(
      "GEMMs, ms: median (quartiles); each has half of the quantizing of both its operands\n"
      "    %-16s %-24s %13s | %-24s %13s %7s | %9s %7s\n",
      "GEMM", "BF16", "", "FP8 GEMM alone", "", "", "quantize", "with it");
  for (const Entry& e : b.entries) {
    text += printed("  %s: %lld x %lld, %lld layer(s), %zu rounds", e.name.c_str(),
                    static_cast<long long>(e.times.shape.outputs),
                    static_cast<long long>(e.times.shape.inputs), static_cast<long long>(e.layers),
                    e.times.rounds.size());
    if (!e.refusal.empty()) text += "; BF16 alone: " + e.refusal;
    if (e.is_head) text += "; training keeps it in BF16";
    text += "\n";
    for (const nn::Gemm gemm : e.times.gemms()) text += gemm_row(e.times, gemm);
  }
  text += "linear layers of a block against tokens (BF16 over FP8 with its quantizing)\n";
  for (const SweepPoint& p : b.sweep)
    text += printed("  %7lld tokens: BF16 %9.3f ms, FP8 %9.3f ms, %.2fx (%.2f-%.2f)\n",
                    static_cast<long long>(p.tokens), 1e3 * p.bf16, 1e3 * p.fp8, p.ratio.median,
                    p.ratio.low, p.ratio.high);
  if (!b.sweep_end.empty()) text += "  " + b.sweep_end + "\n";
  return text + steps_line(b) + pays_line(b);
}

Json json_of(const Bench& b) {
  Json entries = Json::array(), sweep = Json::array();
  for (const Entry& e : b.entries) entries.push_back(entry_json(e));
  for (const SweepPoint& p : b.sweep)
    sweep.push_back({{"tokens", p.tokens},
                     {"bf16_seconds", p.bf16},
                     {"fp8_seconds", p.fp8},
                     {"ratio", spread_json(p.ratio)}});
  const auto pays = b.pays_from_tokens();
  return {{"model", b.model},
          {"device", b.device},
          {"kernels", b.kernels},
          {"rehearsal", b.is_rehearsal},
          {"note", b.is_rehearsal ? rehearsal_line() : ""},
          {"recipe", b.recipe},
          {"format", b.format},
          {"batch_size", b.batch},
          {"max_seq_length", b.length},
          {"shapes", entries},
          {"sweep", sweep},
          {"sweep_end", b.sweep_end},
          {"pays_from_tokens", pays ? Json(*pays) : Json()},
          {"step", b.steps ? steps_json(*b.steps) : Json()}};
}

}  // namespace octavo::bench
