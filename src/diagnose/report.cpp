#include "diagnose/report.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "base/error.h"
#include "base/printed.h"
#include "base/progress.h"

namespace octavo::diagnose {
namespace {

using fp8::Role;

constexpr size_t kWorstShown = 12;
constexpr Role kRoles[] = {Role::kInput, Role::kWeight, Role::kGradient};

std::string heading(const Diagnosis& found) {
  std::string text =
      printed("diagnose: %s, %s parameters, %s, %s; %lld tokens of %s; weights: %s\n",
              found.model.c_str(), format_count(found.parameters).c_str(), found.precision.c_str(),
              name_of(variant_of(found.in_use)).c_str(), static_cast<long long>(found.tokens),
              found.data.c_str(), found.weights.c_str());
  if (!found.was_asked_for) text += "the run is not in FP8: this is what FP8 would do to it\n";
  return text;
}

std::string health_table(const Diagnosis& found) {
  const fp8::Limits limits;
  std::string text = printed(
      "\nhealth, worst first (sick beyond %.0f%% saturated, %.0f%% underflowed or below %.0f dB)\n"
      "  %-28s %-19s %10s %10s %9s %11s %8s\n",
      limits.saturated_percent, limits.underflowed_percent, limits.sqnr_db, "layer", "tensor",
      "amax", "scale", "saturated", "underflowed", "SQNR");
  for (size_t i = 0; i < found.health.size(); ++i) {
    const auto& r = found.health[i];
    if (i >= kWorstShown) {
      const auto sick = static_cast<long long>(std::ranges::count_if(
          found.health.begin() + static_cast<std::ptrdiff_t>(i), found.health.end(),
          [](const auto& h) { return !h.trouble.empty(); }));
      text += printed("  … and %zu more, %lld of them sick (--json has all)\n",
                      found.health.size() - i, sick);
      break;
    }
    text += printed("  %-28s %-19s %10.3g %10.3g %8.2f%% %10.2f%% %5.1f dB  %s\n", r.layer.c_str(),
                    r.tensor.c_str(), static_cast<double>(r.health.amax),
                    static_cast<double>(r.health.factor), r.health.saturated_percent(),
                    r.health.underflowed_percent(), r.health.sqnr_db(),
                    r.trouble.empty() ? "" : ("SICK: " + r.trouble).c_str());
  }
  return text;
}

// Columns of the what-if tables are numbered: names of variants are long.
std::string legend(const Diagnosis& found, const std::vector<Variant>& all) {
  std::string text =
      "\nwhat if: the same tensors by every recipe and format. delayed takes its scale from the ";
  text += printed("%lld batches before\n", static_cast<long long>(found.passes_before));
  for (size_t i = 0; i < all.size(); ++i) {
    const VariantSummary o = summarize(found.layers, all[i]);
    text += printed("  (%zu) %-24s", i + 1, name_of(all[i]).c_str());
    if (o.layers == 0) {
      text += " runs on no layer of this model: " +
              (found.layers.empty() ? std::string("it has none")
                                    : found.layers.front().find(all[i])->refusal) +
              "\n";
      continue;
    }
    text += printed(" error of the GEMMs %6.2f%%, %lld of %zu layers sick", 100 * o.error,
                    static_cast<long long>(o.troubled), found.layers.size());
    if (o.refused > 0) text += printed(", %lld refused", static_cast<long long>(o.refused));
    text += i == 0 ? "  <- in use\n" : "\n";
  }
  return text;
}

// Over all layers, from sums of squares.
double class_sqnr(const Diagnosis& found, const Variant& variant, Role role) {
  fp8::TensorHealth sum;
  for (const LayerStats& layer : found.layers)
    if (const VariantStats* v = layer.find(variant))
      for (const TensorStats& t : v->tensors)
        if (t.role == role) {
          // Each tensor counts the same, whatever its size and scale.
          sum.signal += 1;
          sum.noise += std::pow(10, -t.health.sqnr_db() / 10);
        }
  return sum.signal > 0 ? sum.sqnr_db() : NAN;
}

double class_error(const Diagnosis& found, const Variant& variant, nn::Gemm gemm) {
  double squares = 0;
  int64_t count = 0;
  for (const LayerStats& layer : found.layers)
    if (const VariantStats* v = layer.find(variant))
      if (const auto& error = v->errors[static_cast<size_t>(gemm)]) {
        squares += *error * *error;
        ++count;
      }
  return count > 0 ? std::sqrt(squares / static_cast<double>(count)) : NAN;
}

std::string numbers(const std::vector<Variant>& all) {
  std::string text;
  for (size_t i = 0; i < all.size(); ++i) text += printed("%9s", printed("(%zu)", i + 1).c_str());
  return text + "\n";
}

std::string value_or_dash(double value, const char* format) {
  if (std::isnan(value)) return printed("%9s", "-");
  char buffer[32];
  std::snprintf(buffer, sizeof buffer, format, value);
  return buffer;
}

std::string class_tables(const Diagnosis& found, const std::vector<Variant>& all) {
  std::string text = printed("  %-32s", "signal to noise, dB") + numbers(all);
  for (const Role role : kRoles) {
    text += printed("    %-30s", std::string(fp8::name_of(role)).c_str());
    for (const Variant& v : all) text += value_or_dash(class_sqnr(found, v, role), "%9.1f");
    text += "\n";
  }
  text += printed("  %-32s", "error of the GEMM") + numbers(all);
  for (const nn::Gemm gemm : nn::kGemms) {
    text += printed("    %-30s", std::string(nn::name_of(gemm)).c_str());
    for (const Variant& v : all)
      text += value_or_dash(100 * class_error(found, v, gemm), "%8.2f%%");
    text += "\n";
  }
  return text;
}

std::string layer_table(const Diagnosis& found, const std::vector<Variant>& all) {
  std::vector<const LayerStats*> layers;
  for (const LayerStats& layer : found.layers) layers.push_back(&layer);
  const auto in_use = [&](const LayerStats* l) { return l->find(all.front())->error(); };
  std::ranges::stable_sort(layers, [&](auto* a, auto* b) { return in_use(a) > in_use(b); });
  std::string text = printed("  %-32s", "by layer, worst first; * best") + numbers(all);
  for (size_t i = 0; i < layers.size(); ++i) {
    if (i >= kWorstShown) {
      text += printed("    … and %zu more\n", layers.size() - i);
      break;
    }
    text += printed("    %-30s", layers[i]->layer.c_str());
    for (const Variant& variant : all) {
      const VariantStats* v = layers[i]->find(variant);
      text += v->is_legal()
                  ? printed("%7.2f%%%c", 100 * v->error(), v == layers[i]->best() ? '*' : ' ')
                  : printed("%9s", "-");
    }
    text += "\n";
  }
  return text;
}

// Of all layers whose sums were looked at, in their order.
std::string sums_table(const Diagnosis& found) {
  std::string text;
  for (const LayerStats& layer : found.layers) {
    if (!layer.hopper_sums.front()) continue;
    text += printed("    %-30s", layer.layer.c_str());
    for (const auto& error : layer.hopper_sums)
      text += value_or_dash(error ? 100 * *error : NAN, "%8.3f%%");
    text += "\n";
  }
  if (text.empty()) return text;
  return printed(
             "\nwhat Hopper's accumulators change of the GEMMs in use, beside FP32 sums\n"
             "    %-30s%9s%9s%9s\n",
             "layer", "forward", "input g.", "weight g.") +
         text;
}

std::string advice_text(const Diagnosis& found) {
  std::string text = "\nadvice\n";
  if (found.advice.empty()) text += "  nothing to change\n";
  for (const Advice& a : found.advice)
    text += printed("  %s", a.needed ? "NEEDED: " : "worth a thought: ") + a.what +
            "\n      because " + a.evidence + "\n";
  const auto sick = found.sick_layers();
  if (sick.empty())
    return text + printed("verdict: healthy: %lld tensors of layers in FP8 are within the limits\n",
                          static_cast<long long>(found.health.size()));
  text += printed("verdict: SICK: %zu layer(s) beyond the limits: ", sick.size());
  for (size_t i = 0; i < std::min(sick.size(), kWorstShown); ++i)
    text += (i > 0 ? ", " : "") + sick[i];
  return text + (sick.size() > kWorstShown ? ", …\n" : "\n");
}

Json health_json(const fp8::TensorHealth& h) {
  return {{"amax", h.amax},
          {"scale", h.factor},
          {"saturated_percent", h.saturated_percent()},
          {"underflowed_percent", h.underflowed_percent()},
          {"sqnr_db", h.sqnr_db()},
          {"relative_error", h.signal > 0 ? std::sqrt(h.noise / h.signal) : 0},
          {"elements", h.elements}};
}

Json errors_json(const GemmErrors& errors) {
  Json out = Json::object();
  for (const nn::Gemm gemm : nn::kGemms)
    if (const auto& error = errors[static_cast<size_t>(gemm)])
      out[std::string(nn::name_of(gemm))] = *error;
  return out;
}

}  // namespace

Json json_of(const LayerStats& layer) {
  Json list = Json::array();
  for (const VariantStats& v : layer.variants) {
    Json tensors = Json::array();
    for (const TensorStats& t : v.tensors) {
      Json one = health_json(t.health);
      one["tensor"] = fp8::name_of(t.role);
      one["copy"] = t.direction == fp8::Direction::kRow ? "rows" : "columns";
      one["trouble"] = fp8::health_problem(t.health);
      tensors.push_back(std::move(one));
    }
    list.push_back({{"variant", name_of(v.variant)},
                    {"refusal", v.refusal},
                    {"error", v.error()},
                    {"products", errors_json(v.errors)},
                    {"tensors", tensors}});
  }
  const VariantStats* best = layer.best();
  Json out = {{"layer", layer.layer},
              {"outputs", layer.outputs},
              {"inputs", layer.inputs},
              {"bf16_products", errors_json(layer.bf16)},
              {"best", best != nullptr ? Json(name_of(best->variant)) : Json()},
              {"variants", list}};
  if (layer.hopper_sums.front()) out["hopper_sums"] = errors_json(layer.hopper_sums);
  return out;
}

std::string text_of(const Diagnosis& found) {
  const auto all = variants(found.in_use);
  return heading(found) + "\ncoverage\n" + train::gemm_table(found.coverage) + "\n" +
         health_table(found) + legend(found, all) + class_tables(found, all) +
         layer_table(found, all) + sums_table(found) + advice_text(found);
}

Json json_of(const Diagnosis& found) {
  Json health = Json::array(), layers = Json::array(), advice = Json::array();
  for (const auto& r : found.health) {
    Json one = health_json(r.health);
    one["layer"] = r.layer;
    one["tensor"] = r.tensor;
    one["trouble"] = r.trouble;
    health.push_back(std::move(one));
  }
  for (const LayerStats& layer : found.layers) layers.push_back(json_of(layer));
  for (const Advice& a : found.advice)
    advice.push_back(
        {{"needed", a.needed}, {"what", a.what}, {"evidence", a.evidence}, {"flags", a.flags}});
  Json overalls = Json::array();
  for (const Variant& v : variants(found.in_use)) {
    const VariantSummary o = summarize(found.layers, v);
    overalls.push_back({{"variant", name_of(v)},
                        {"error", o.error},
                        {"layers", o.layers},
                        {"refused", o.refused},
                        {"sick", o.troubled}});
  }
  return {{"model", found.model},
          {"weights", found.weights},
          {"data", found.data},
          {"parameters", found.parameters},
          {"tokens", found.tokens},
          {"precision", found.precision},
          {"asked_for_fp8", found.was_asked_for},
          {"in_use", name_of(variant_of(found.in_use))},
          {"coverage",
           {{"flops_share", train::fp8_share(found.coverage)},
            {"gemms", train::to_json(found.coverage)}}},
          {"health", health},
          {"what_if", {{"overall", overalls}, {"layers", layers}}},
          {"advice", advice},
          {"sick_layers", found.sick_layers()},
          {"verdict", found.sick_layers().empty() ? "healthy" : "sick"}};
}

}  // namespace octavo::diagnose
