#include "train/reporting/fp8_report.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <map>

#include "base/printed.h"
#include "config/settings.h"
#include "engine/padded_fp8_linear.h"
#include "train/lora_run.h"

namespace octavo::train {
namespace {

using fp8::Direction;
using fp8::Role;
using nn::Gemm;

std::string name_of(fp8::Format format) {
  switch (format) {
    case fp8::Format::kE4M3:
      return "e4m3";
    case fp8::Format::kE5M2:
      return "e5m2";
    case fp8::Format::kE2M1:
      break;
  }
  return "e2m1";
}

// "FP8", or what a recipe has instead.
std::string width_of(fp8::Recipe recipe) {
  return fp8::is_fp4(recipe) ? "FP4" : "FP8";
}

// The formats of a GEMM's operands, in the order in which the layer's formulas name them.
std::string formats_of(const fp8::Options& options, Gemm gemm) {
  const auto format = [&](Role role, Direction direction) {
    return name_of(side_of(options, role, direction).format);
  };
  switch (gemm) {
    case Gemm::kForward:
      return format(Role::kInput, Direction::kRow) + " x " + format(Role::kWeight, Direction::kRow);
    case Gemm::kInputGradient:
      return format(Role::kGradient, Direction::kRow) + " x " +
             format(Role::kWeight, Direction::kColumn);
    case Gemm::kWeightGradient:
      break;
  }
  return format(Role::kGradient, Direction::kColumn) + " x " +
         format(Role::kInput, Direction::kColumn);
}

// "layers.3.mlp.experts.*.down_proj" of each of the experts.
std::string name_of_experts(const std::string& layer) {
  constexpr std::string_view kExperts = ".experts.";
  const size_t found = layer.find(kExperts), number = found + kExperts.size();
  if (found == layer.npos) return layer;
  return layer.substr(0, number) + "*" +
         layer.substr(std::min(layer.find('.', number), layer.size()));
}

// What the GEMMs of the experts of one layer have in common is said once: Qwen3-30B-A3B has 36,864
// of them.
class GemmLines {
 public:
  void add(GemmLine line, bool expert = false) {
    if (!expert) {
      lines_.push_back(std::move(line));
      return;
    }
    const std::string name = name_of_experts(line.layer);
    const auto [place, is_new] =
        experts_.try_emplace({name, line.gemm, line.precision, line.reason}, lines_.size());
    if (is_new) {
      lines_.push_back(std::move(line));
      return;
    }
    GemmLine& same = lines_[place->second];
    same.layer = name;
    same.flops_share += line.flops_share;
    same.ran_fp8 += line.ran_fp8;
    same.ran_other += line.ran_other;
    ++same.layers;
  }
  std::vector<GemmLine> take() { return std::move(lines_); }

 private:
  std::vector<GemmLine> lines_;
  std::map<std::array<std::string, 4>, size_t> experts_;
};

void add_layer(const TrainedModel& trained, const nn::LinearPtr& layer, const std::string& reason,
               double total, GemmLines& lines) {
  const double weights = layer->share * static_cast<double>(layer->weight->count());
  const bool in_fp8 = trained.fp8 != nullptr && reason.empty();
  for (const Gemm gemm : nn::kGemms) {
    if (gemm == Gemm::kWeightGradient && !layer->weight->trainable) continue;
    const auto& ran = layer->gemm_counts[static_cast<size_t>(gemm)];
    lines.add({.layer = layer->name,
               .gemm = std::string(nn::name_of(gemm)),
               .precision = in_fp8 ? width_of(trained.fp8->options().recipe) + " " +
                                         formats_of(trained.fp8->options(), gemm)
                                   : trained.plain_precision(),
               .recipe = in_fp8 ? std::string(config::name_of(trained.fp8->options().recipe)) : "",
               .reason = reason,
               .flops_share = 2 * weights / total,
               .ran_fp8 = ran.fp8,
               .ran_other = ran.other},
              layer->expert);
  }
}

}  // namespace

std::vector<GemmLine> gemm_lines(const TrainedModel& trained, int64_t length) {
  const double total = flops_per_token(trained, length);
  const double gemms = trained.lora == nullptr ? 6 : 4;  // frozen weights have no gradient
  GemmLines lines;
  const auto& layers = trained.model->linears();
  const bool asked = trained.fp8_decision.has_value();
  const std::string refused =
      asked && trained.fp8 == nullptr ? trained.fp8_decision->warnings.front() : "";
  double left = total;
  for (size_t i = 0; i < layers.size(); ++i) {
    add_layer(trained, layers[i], trained.fp8 != nullptr ? trained.fp8->plan()[i].reason : refused,
              total, lines);
    left -= gemms * layers[i]->share * static_cast<double>(layers[i]->weight->count());
  }
  const double head = gemms * static_cast<double>(trained.model->head()->count());
  lines.add({.layer = "head",
             .gemm = trained.lora == nullptr ? "all three" : "both",
             .precision = trained.plain_precision(),
             .reason = asked ? "the language-model head stays in BF16" : "",
             .flops_share = head / total});
  if (trained.lora != nullptr) {
    const double adapters = trained.lora->flops_per_token();
    left -= adapters;
    lines.add({.layer = "adapters",
               .gemm = "all",
               .precision = trained.plain_precision(),
               .reason = asked ? "adapters stay in BF16" : "",
               .flops_share = adapters / total});
  }
  if (const nn::Routing* routing = trained.model->routing()) {
    const double routers = gemms * static_cast<double>(routing->sizes().weights);
    left -= routers;
    lines.add({.layer = "routers",
               .gemm = trained.lora == nullptr ? "all three" : "both",
               .precision = "FP32",
               .reason = asked ? "routers of experts stay in FP32" : "",
               .flops_share = routers / total});
  }
  lines.add({.layer = "attention",
             .gemm = "all",
             .precision = trained.plain_precision(),
             .reason = asked ? "attention stays in BF16" : "",
             .flops_share = (left - head) / total});
  return lines.take();
}

double fp8_share(const std::vector<GemmLine>& lines) {
  double share = 0;
  for (const GemmLine& line : lines)
    if (!line.recipe.empty()) share += line.flops_share;
  return share;
}

namespace {

// The last line of both tables.
std::string share_line(const std::vector<GemmLine>& lines) {
  return printed("  %.1f%% of the FLOPs of GEMMs run in FP8", 100 * fp8_share(lines));
}

}  // namespace

std::string folded_gemm_table(const std::vector<GemmLine>& lines) {
  struct Row {
    run_report::GemmGroup group;
    std::string precision;
  };
  std::vector<Row> rows;
  for (const run_report::GemmGroup& g : run_report::grouped(lines)) {
    const std::string precision =
        g.line.recipe.empty() ? g.line.precision : g.line.precision.substr(0, 4) + g.line.recipe;
    const auto same = std::ranges::find_if(rows, [&](const Row& row) {
      return row.group.pattern == g.pattern && row.precision == precision &&
             row.group.line.reason == g.line.reason;
    });
    if (same == rows.end()) {
      rows.push_back({g, precision});
    } else {
      same->group.line.flops_share += g.line.flops_share;
      same->group.layers = std::max(same->group.layers, g.layers);
    }
  }
  std::vector<std::vector<std::string>> cells;
  for (const Row& row : rows)
    cells.push_back({row.group.name(), row.precision,
                     printed("%4.1f%%", 100 * row.group.line.flops_share), row.group.line.reason});
  return table_text(cells) + share_line(lines);
}

std::string gemm_table(const std::vector<GemmLine>& lines) {
  std::string table =
      "  layer                              GEMM             precision        recipe     FLOPs  "
      "why not FP8\n";
  for (const run_report::GemmGroup& g : run_report::grouped(lines)) {
    char text[160];
    std::snprintf(text, sizeof text, "  %-34s %-16s %-16s %-10s %4.1f%%  ", g.name().c_str(),
                  g.line.gemm.c_str(), g.line.precision.c_str(), g.line.recipe.c_str(),
                  100 * g.line.flops_share);
    table += text + g.line.reason + "\n";
  }
  return table + share_line(lines);
}

Json to_json(const std::vector<nn::Fp8Fallback>& fallbacks) {
  Json list = Json::array();
  for (const auto& f : fallbacks)
    list.push_back({{"layer", f.layer}, {"reason", f.reason}, {"step", f.step}});
  return list;
}

Json to_json(const std::vector<GemmLine>& lines) {
  Json gemms = Json::array();
  for (const GemmLine& line : lines) {
    gemms.push_back({{"layer", line.layer},
                     {"gemm", line.gemm},
                     {"precision", line.precision},
                     {"recipe", line.recipe},
                     {"reason", line.reason},
                     {"flops_share", line.flops_share},
                     {"ran_fp8", line.ran_fp8},
                     {"ran_other", line.ran_other}});
    if (line.layers > 1) gemms.back()["layers"] = line.layers;
  }
  return gemms;
}

Json fp8_receipt(const TrainedModel& trained, int64_t length) {
  const auto lines = gemm_lines(trained, length);
  Json receipt = {{"flops_share", fp8_share(lines)}, {"gemms", to_json(lines)}};
  if (trained.fp8_decision) {
    receipt["warnings"] = trained.fp8_decision->warnings;
    receipt["backend"] = trained.fp8_decision->backend;
  }
  if (trained.fp8 == nullptr) return receipt;
  const auto& options = trained.fp8->options();
  receipt["recipe"] = config::name_of(options.recipe);
  receipt["format"] = fp8::format_name(options);
  receipt["execution"] = trained.fp8_decision->runs == fp8::Runs::kNative ? "native" : "rehearsal";
  if (fp8::uses_history(options.recipe)) receipt["update"] = config::name_of(options.update);
  if (fp8::is_fp4(options.recipe))
    receipt["fp4"] = {{"hadamard", options.hadamard},
                      {"stochastic_rounding", options.stochastic_rounding},
                      {"weight_blocks", options.weight_blocks}};
  receipt["accumulate"] = trained.fp8_decision->runs == fp8::Runs::kNative ? "device"
                          : trained.engine->target.hopper_sums             ? "hopper"
                                                                           : "fp32";
  receipt["layers"] = trained.fp8->layers_in_fp8();
  receipt["layers_total"] = trained.fp8->plan().size();
  receipt["guard_warnings"] = trained.fp8->warnings();
  receipt["blocks_below_bf16_range"] = trained.engine->fp8_linear->blocks_below_range();
  const engine::Padding padding = engine::padding_of(*trained.engine->fp8_linear);
  receipt["padding"] = {
      {"operands", padding.operands}, {"tokens", padding.tokens}, {"zero_rows", padding.zero_rows}};
  receipt["fallbacks"] = to_json(trained.fp8->fallbacks());
  return receipt;
}

}  // namespace octavo::train
