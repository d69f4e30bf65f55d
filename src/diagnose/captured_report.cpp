#include <algorithm>
#include <functional>

#include "base/error.h"
#include "base/printed.h"
#include "base/text.h"
#include "diagnose/captured.h"
#include "diagnose/diagnosis.h"
#include "diagnose/report.h"
#include "fp8/legality.h"

namespace octavo::diagnose {
namespace {

constexpr size_t kLayersShown = 16;

using Table = std::vector<std::vector<std::string>>;
using Figure = std::function<double(const fp8::TensorHealth&)>;

double sqnr(const fp8::TensorHealth& h) {
  return h.sqnr_db();
}
double underflowed(const fp8::TensorHealth& h) {
  return h.underflowed_percent();
}
double saturated(const fp8::TensorHealth& h) {
  return h.saturated_percent();
}

// Of the tensor that it is worst of: the least signal to noise, the most of what is lost.
double worst(const VariantStats& stats, const Figure& figure, bool least) {
  double found = least ? 1e9 : 0;
  for (const TensorStats& t : stats.tensors)
    found = least ? std::min(found, figure(t.health)) : std::max(found, figure(t.health));
  return found;
}

double worst_of_all(const CapturedDiagnosis& found, const Variant& variant, const Figure& figure,
                    bool least) {
  double result = least ? 1e9 : 0;
  for (const LayerStats& layer : found.layers)
    if (const VariantStats* v = layer.find(variant); v->is_legal()) {
      const double one = worst(*v, figure, least);
      result = least ? std::min(result, one) : std::max(result, one);
    }
  return result;
}

std::string captured_heading(const CapturedDiagnosis& found) {
  const CaptureManifest& m = found.manifest;
  const auto sampled = std::ranges::count_if(m.layers, &CapturedLayer::is_sampled);
  const auto tied =
      std::ranges::count_if(m.layers, [](const auto& l) { return !l.tied_to.empty(); });
  std::string text = str("diagnose: ", m.model, " as captured in ", found.folder,
                         m.step ? str(", step ", *m.step) : std::string(), ", torch ",
                         m.torch_version, "; ", m.layers.size(), " linear layers");
  if (sampled > 0) text += str(", ", sampled, " of them by a sample of rows");
  if (tied > 0) text += str(", ", tied, " with a tied weight");
  text += "\n";
  if (!m.not_captured.empty()) {
    text += str(m.not_captured.size(), " not captured:");
    for (size_t i = 0; i < std::min(m.not_captured.size(), kLayersShown); ++i)
      text += str("\n  ", m.not_captured[i].name, ": ", m.not_captured[i].why);
    text += m.not_captured.size() > kLayersShown ? "\n  … (--json has all)\n" : "\n";
  }
  return text;
}

// Tokens are the batch's, not the layer's: said once, for the first layer that they stop.
std::string token_note(const CapturedDiagnosis& found) {
  for (const CapturedLayer& layer : found.manifest.layers) {
    const std::string refusal = fp8::token_refusal(found.chosen.recipe, layer.tokens);
    if (!refusal.empty())
      return str("the batch: ", refusal, " (", layer.name,
                 "), which FP8 GEMMs of the weight gradient want; pad it\n");
  }
  return "";
}

std::string recipe_table(const CapturedDiagnosis& found, const std::vector<Variant>& all) {
  Table rows = {{"", "recipe", "error of the GEMMs", "worst SQNR", "most underflow",
                 "most saturation", "sick", "refused"}};
  for (size_t i = 0; i < all.size(); ++i) {
    const VariantSummary o = summarize(found.layers, all[i]);
    const std::string number = str("(", i + 1, ")"), name = name_of(all[i]);
    if (o.layers == 0) {
      rows.push_back({number, name, "-", "-", "-", "-", "-", str(o.refused)});
      continue;
    }
    rows.push_back({number, name, printed("%.2f%%", 100 * o.error),
                    printed("%.1f dB", worst_of_all(found, all[i], sqnr, true)),
                    printed("%.2f%%", worst_of_all(found, all[i], underflowed, false)),
                    printed("%.2f%%", worst_of_all(found, all[i], saturated, false)),
                    str(o.troubled), str(o.refused)});
  }
  return "\nevery recipe on the same tensors; delayed takes its scale from them too, as no step "
         "before is known\n" +
         table_text(rows);
}

// A line for each layer, the worst by the chosen recipe first: a figure of its worst tensor, by
// every variant. '!' sick, '-' refused for its sizes.
std::string layer_figures(const CapturedDiagnosis& found, const std::vector<Variant>& all,
                          const std::string& title, const Figure& figure, bool least) {
  std::vector<const LayerStats*> layers;
  for (const LayerStats& layer : found.layers) layers.push_back(&layer);
  const auto rank = [&](const LayerStats* l) {
    const double value = worst(*l->find(all.front()), figure, least);
    return least ? value : -value;
  };
  std::ranges::stable_sort(layers, {}, rank);
  Table rows = {{"layer"}};
  for (size_t i = 0; i < all.size(); ++i) rows.front().push_back(str("(", i + 1, ")"));
  for (size_t i = 0; i < std::min(layers.size(), kLayersShown); ++i) {
    rows.push_back({layers[i]->layer});
    for (const Variant& variant : all) {
      const VariantStats* v = layers[i]->find(variant);
      const bool sick = std::ranges::any_of(
          v->tensors, [](const auto& t) { return !fp8::health_problem(t.health).empty(); });
      rows.back().push_back(v->is_legal() ? printed(least ? "%.1f%s" : "%.2f%s",
                                                    worst(*v, figure, least), sick ? "!" : "")
                                          : "-");
    }
  }
  std::string text = "\n" + title + "\n" + table_text(rows);
  if (layers.size() > kLayersShown)
    text += str("  … and ", layers.size() - kLayersShown, " more (--json has all)\n");
  return text;
}

std::string all_layer_figures(const CapturedDiagnosis& found, const std::vector<Variant>& all) {
  const std::string which = " of its worst tensor, worst layer first; ! sick, - refused";
  std::string text = layer_figures(found, all, "signal to noise in dB" + which, sqnr, true) +
                     layer_figures(found, all, "underflow in %" + which, underflowed, false);
  const bool any = std::ranges::any_of(
      all, [&](const Variant& v) { return worst_of_all(found, v, saturated, false) > 0; });
  return text + (any ? layer_figures(found, all, "saturation in %" + which, saturated, false)
                     : "\nno recipe saturates a value\n");
}

std::string filter_text(const CapturedDiagnosis& found, const std::vector<KeptLayer>& kept) {
  const std::string name = name_of(variant_of(found.chosen));
  std::string text = str("\nto keep in BF16 under ", name, " (--fp8_recipe chooses): ");
  text += kept.empty() ? "nothing\n" : str(kept.size(), " of ", found.layers.size(), " layers\n");
  for (const KeptLayer& k : kept) text += str("  ", k.layer, ": ", k.why, "\n");
  if (kept.empty()) return text;
  const Filters filters = filters_for(kept);
  return text + "\n# torchao\n" + filters.torchao + "\n# Transformer Engine\n" +
         filters.transformer_engine + "\n# octavo\n" + filters.octavo;
}

Json variant_json(const CapturedDiagnosis& found, const Variant& variant) {
  const VariantSummary o = summarize(found.layers, variant);
  const auto kept = kept_in_bf16(found.layers, variant);
  const Filters filters = filters_for(kept);
  Json list = Json::array();
  for (const KeptLayer& k : kept)
    list.push_back({{"layer", k.layer}, {"why", k.why}, {"sick", k.is_sick}});
  return {{"variant", name_of(variant)},
          {"error", o.error},
          {"layers", o.layers},
          {"refused", o.refused},
          {"sick", o.troubled},
          {"keep_in_bf16", list},
          {"filters",
           {{"torchao", filters.torchao},
            {"transformer_engine", filters.transformer_engine},
            {"octavo", filters.octavo}}}};
}

}  // namespace

std::string text_of(const CapturedDiagnosis& found) {
  const auto all = variants(found.chosen);
  const auto kept = kept_in_bf16(found.layers, all.front());
  const auto sick = std::ranges::count_if(kept, &KeptLayer::is_sick);
  return captured_heading(found) + token_note(found) + recipe_table(found, all) +
         all_layer_figures(found, all) + filter_text(found, kept) +
         (sick == 0 ? str("verdict: healthy: ", found.layers.size() - kept.size(),
                          " layers may run in FP8 by ", name_of(all.front()), "\n")
                    : str("verdict: SICK: ", sick, " layer(s) beyond the limits by ",
                          name_of(all.front()), "\n"));
}

Json json_of(const CapturedDiagnosis& found) {
  Json layers = Json::array(), recipes = Json::array(), others = Json::array();
  for (size_t i = 0; i < found.layers.size(); ++i) {
    const CapturedLayer& saved = found.manifest.layers[i];
    Json one = json_of(found.layers[i]);
    one.update({{"class", saved.kind},
                {"layout", saved.layout},
                {"tied_to", saved.tied_to},
                {"trainable", saved.trainable},
                {"tokens", saved.tokens},
                {"saved_tokens", saved.saved_tokens()},
                {"saved_outputs", saved.saved_outputs()}});
    layers.push_back(std::move(one));
  }
  for (const Variant& variant : variants(found.chosen))
    recipes.push_back(variant_json(found, variant));
  for (const LeftOut& other : found.manifest.not_captured)
    others.push_back({{"name", other.name}, {"why", other.why}});
  return {{"capture", found.folder},
          {"model", found.manifest.model},
          {"torch", found.manifest.torch_version},
          {"step", found.manifest.step ? Json(*found.manifest.step) : Json()},
          {"chosen", name_of(variant_of(found.chosen))},
          {"recipes", recipes},
          {"layers", layers},
          {"not_captured", others},
          {"verdict", is_sick(found) ? "sick" : "healthy"}};
}

}  // namespace octavo::diagnose
