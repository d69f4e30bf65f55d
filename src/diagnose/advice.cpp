#include <algorithm>
#include <cmath>
#include <cstdio>
#include <set>

#include "base/error.h"
#include "base/text.h"
#include "diagnose/diagnosis.h"

namespace octavo::diagnose {
namespace {

// A recipe is worth a thought when its GEMMs are this much nearer to the truth.
constexpr double kWorthwhile = 0.75;
// A part outside FP8 is worth a line from this share of the FLOPs on.
constexpr double kLargePart = 0.2;

std::string percent_text(double share) {
  char text[32];
  std::snprintf(text, sizeof text, "%.*f%%", share < 0.0995 ? 2 : 1, 100 * share);
  return text;
}

// What all but the hardest recipes to please want of a weight's sides.
constexpr int64_t kUsualMultiple = fp8::traits_of(fp8::kDefaultRecipe).side_multiple;

// "16; mxfp8 32; blockwise 128"
std::string side_multiples() {
  std::vector<fp8::RecipeTraits> rows(fp8::kRecipeTraits.begin(), fp8::kRecipeTraits.end());
  std::ranges::stable_sort(rows, {}, &fp8::RecipeTraits::side_multiple);
  std::string text = str(kUsualMultiple);
  for (const fp8::RecipeTraits& row : rows)
    if (row.side_multiple > kUsualMultiple)
      text += str("; ", config::name_of(row.recipe), " ", row.side_multiple);
  return text;
}

std::string needs(const Variant& variant) {
  const fp8::RecipeTraits& recipe = fp8::traits_of(variant.recipe);
  if (recipe.chooses_format)
    return variant.format == fp8::FormatChoice::kE4m3
               ? "; E4M3 has less range than E5M2: watch fp8/underflow of gradients as they shrink"
               : "";
  const auto [first, last] = recipe.native;
  const bool only = first == last;
  return str("; native ", only ? "on" : "from", " compute capability ", first / 10, ".", first % 10,
             only ? "" : " on",
             recipe.side_multiple > kUsualMultiple
                 ? str(", sides in multiples of ", recipe.side_multiple)
                 : std::string());
}

bool is_troubled(const VariantStats& stats) {
  return std::ranges::any_of(stats.tensors,
                             [](const auto& t) { return !fp8::health_problem(t.health).empty(); });
}

// No way to quantize helps against numbers that are broken themselves.
bool is_broken(const nn::Fp8TensorReport& report) {
  const auto& h = report.health;
  return h.incidents.nan > 0 || h.incidents.inf > 0 || (h.elements > 0 && h.nonzero == 0);
}

std::vector<std::string> broken_layers(const Diagnosis& found) {
  std::set<std::string> layers;
  for (const auto& r : found.health)
    if (!r.trouble.empty() && is_broken(r)) layers.insert(r.layer);
  return {layers.begin(), layers.end()};
}

const nn::Fp8TensorReport* worst_of(const Diagnosis& found,
                                    const std::vector<std::string>& layers) {
  for (const auto& r : found.health)  // worst first
    if (!r.trouble.empty() && std::ranges::find(layers, r.layer) != layers.end()) return &r;
  return nullptr;
}

const LayerStats* stats_of(const Diagnosis& found, const std::string& layer) {
  const auto it =
      std::ranges::find_if(found.layers, [&](const auto& l) { return l.layer == layer; });
  return it == found.layers.end() ? nullptr : &*it;
}

// Half the bits are a choice for speed, never an answer to tensors that eight do not hold.
bool is_no_remedy(const Variant& variant, const Variant& now) {
  return fp8::is_fp4(variant.recipe) && !fp8::is_fp4(now.recipe);
}

// Which of these layers the variant would leave healthy.
std::vector<std::string> healed_by(const Diagnosis& found, const Variant& variant,
                                   const std::vector<std::string>& layers) {
  std::vector<std::string> healed;
  for (const std::string& layer : layers) {
    const LayerStats* stats = stats_of(found, layer);
    const VariantStats* v = stats != nullptr ? stats->find(variant) : nullptr;
    if (v != nullptr && v->is_legal() && !is_troubled(*v)) healed.push_back(layer);
  }
  return healed;
}

// A layer that is well now would be sick.
bool harms(const Diagnosis& found, const Variant& variant) {
  const Variant now = variant_of(found.in_use);
  return std::ranges::any_of(found.layers, [&](const LayerStats& layer) {
    const VariantStats *before = layer.find(now), *after = layer.find(variant);
    return before != nullptr && after != nullptr && !is_troubled(*before) && is_troubled(*after);
  });
}

std::string first_few(const std::vector<std::string>& names) {
  constexpr size_t kShown = 6;
  std::vector<std::string> shown(
      names.begin(), names.begin() + static_cast<std::ptrdiff_t>(std::min(names.size(), kShown)));
  return join(shown, ",") +
         (names.size() > kShown ? str(" … (", names.size(), " layers)") : std::string());
}

// What makes the variant of what is in use. Hopper's accumulators are of Hopper's recipes alone:
// train refuses them beside another.
std::vector<std::string> changes_to(const Diagnosis& found, const Variant& variant) {
  constexpr int kHopper = 90;
  std::vector<std::string> keys = keys_of(variant, variant_of(found.in_use));
  const bool adds_as_hopper = std::ranges::any_of(
      found.layers, [](const LayerStats& layer) { return layer.hopper_sums.front().has_value(); });
  if (adds_as_hopper && !fp8::traits_of(variant.recipe).native.has(kHopper))
    keys.emplace_back("fp8_accumulate fp32");
  return keys;
}

// Of "fp8_recipe current", "fp8_margin 0": --fp8_recipe current --fp8_margin 0.
std::vector<std::string> flags_of(const std::vector<std::string>& changes) {
  std::vector<std::string> flags;
  for (const std::string& change : changes) {
    const size_t space = change.find(' ');
    flags.push_back("--" + change.substr(0, space));
    flags.push_back(change.substr(space + 1));
  }
  return flags;
}

// What fp8_skip has now: a new one takes its place, and must say it again.
std::vector<std::string> skipped_now(const Diagnosis& found) {
  constexpr std::string_view kReason = "fp8_skip ";
  std::vector<std::string> patterns;
  for (const train::GemmLine& line : found.coverage) {
    if (!line.reason.starts_with(kReason)) continue;
    const std::string rest = line.reason.substr(kReason.size());
    std::string pattern = rest.substr(0, rest.find(' '));  // without " (default)"
    if (std::ranges::find(patterns, pattern) == patterns.end())
      patterns.push_back(std::move(pattern));
  }
  return patterns;
}

// The worst tensor now, and what the same tensor would be.
std::string before_and_after(const Diagnosis& found, const nn::Fp8TensorReport& worst,
                             const Variant& variant) {
  const LayerStats* stats = stats_of(found, worst.layer);
  const VariantStats* v = stats != nullptr ? stats->find(variant) : nullptr;
  std::string text = str(worst.layer, " ", worst.tensor, ": ", worst.trouble);
  if (v == nullptr) return text;
  for (const TensorStats& t : v->tensors)
    if (t.role == worst.role) {
      char now[96];
      std::snprintf(now, sizeof now, "; with %s %.1f%% underflow, %.1f dB",
                    name_of(variant).c_str(), t.health.underflowed_percent(), t.health.sqnr_db());
      return text + now;
    }
  return text;
}

// The first variant, in the order of the least change, that heals the most of the sick layers.
void add_cure(const Diagnosis& found, const std::vector<std::string>& sick,
              std::vector<Advice>& advice) {
  const Variant now = variant_of(found.in_use);
  const Variant* cure = nullptr;
  std::vector<std::string> healed;
  const auto all = variants(found.in_use);
  for (const Variant& variant : all) {
    if (variant == now || is_no_remedy(variant, now) || harms(found, variant)) continue;
    auto those = healed_by(found, variant, sick);
    if (those.size() <= healed.size()) continue;
    cure = &variant;
    healed = std::move(those);
  }
  std::vector<std::string> left;
  for (const std::string& layer : sick)
    if (std::ranges::find(healed, layer) == healed.end()) left.push_back(layer);
  if (cure != nullptr)
    advice.push_back({true, join(changes_to(found, *cure), ", ") + needs(*cure),
                      before_and_after(found, *worst_of(found, healed), *cure) +
                          str(" (heals ", healed.size(), " of ", sick.size(), " sick layers)"),
                      flags_of(changes_to(found, *cure))});
  if (left.empty()) return;
  // All of them, however many: it is what is typed.
  std::vector<std::string> skip = skipped_now(found);
  skip.insert(skip.end(), left.begin(), left.end());
  const std::string key = "fp8_skip " + join(skip, ",");
  advice.push_back(
      {true, key,
       str("no recipe keeps these healthy on this batch; worst: ", worst_of(found, left)->layer,
           " ", worst_of(found, left)->tensor, ": ", worst_of(found, left)->trouble),
       flags_of({key})});
}

// Delayed takes its scale from steps that are over.
void add_stale_scales(const Diagnosis& found, std::vector<Advice>& advice) {
  if (!fp8::uses_history(found.in_use.recipe)) return;
  for (const auto& r : found.health) {
    if (r.health.saturated_percent() <= fp8::Limits{}.saturated_percent) continue;
    const fp8::Options& now = found.in_use;
    const bool by_keys = now.interval > 1 || now.algo == fp8::AmaxAlgo::kMostRecent;
    constexpr int64_t kLargestMargin = 16;  // that the key takes
    const bool has_margin = now.margin < kLargestMargin;
    const std::vector<std::string> keys =
        by_keys      ? std::vector<std::string>{"fp8_interval 1", "fp8_amax_algo max"}
        : has_margin ? std::vector<std::string>{str("fp8_margin ", now.margin + 1)}
                     : std::vector<std::string>{"fp8_recipe current"};
    const std::string besides =
        by_keys      ? str(" (are ", now.interval, ", ", config::name_of(now.algo), ")")
        : has_margin ? ", or fp8_recipe current"
                     : "";
    advice.push_back({true, join(keys, ", ") + besides,
                      str(r.layer, " ", r.tensor, ": ", r.trouble, "; amax ", r.health.amax,
                          " x scale ", r.health.factor,
                          " is past the format's largest value: it grew since the scale was "
                          "made"),
                      flags_of(keys)});
    return;
  }
}

// One advice for all layers whose sizes the hardware refuses.
void add_sizes(const Diagnosis& found, std::vector<Advice>& advice) {
  std::set<std::string> layers, reasons;
  for (const train::GemmLine& line : found.coverage)
    if (line.reason.find("not a multiple of") != std::string::npos) {
      layers.insert(line.layer);
      reasons.insert(line.reason);
    }
  if (reasons.empty()) return;
  advice.push_back({false,
                    str("make the model's sides multiples of what the recipe wants (",
                        side_multiples(), "), or take a recipe that wants less"),
                    str(layers.size(), " layer(s) stay out of FP8, ", *layers.begin(), " first: ",
                        join(std::vector<std::string>(reasons.begin(), reasons.end()), "; "))});
}

// What no config changes, and is large enough to be known.
void add_bf16_parts(const Diagnosis& found, std::vector<Advice>& advice) {
  for (const train::GemmLine& line : found.coverage)
    if ((line.layer == "head" || line.layer == "attention") && line.flops_share >= kLargePart)
      advice.push_back({false,
                        line.layer == "head"
                            ? "nothing in a config: the head is always in BF16; its share falls "
                              "with a smaller vocabulary, more layers or a wider model"
                            : "nothing in a config: attention is always in BF16; its share falls "
                              "with a shorter max_seq_length or a wider model",
                        str(line.layer, " takes ", percent_text(line.flops_share),
                            " of the FLOPs of GEMMs, which FP8 cannot speed up")});
}

// Healthy, and still there may be something better: the least change among what is about as good.
void add_better_recipe(const Diagnosis& found, std::vector<Advice>& advice) {
  constexpr double kAsGood = 1.03;
  const Variant now = variant_of(found.in_use);
  const VariantSummary in_use = summarize(found.layers, now);
  std::vector<std::pair<Variant, double>> possible;
  double least = in_use.error;
  for (const Variant& variant : variants(found.in_use)) {
    const VariantSummary o = summarize(found.layers, variant);
    if (o.refused > in_use.refused || o.troubled > 0 || o.layers == 0 || is_no_remedy(variant, now))
      continue;
    possible.emplace_back(variant, o.error);
    least = std::min(least, o.error);
  }
  if (least >= kWorthwhile * in_use.error) return;
  const auto better = std::ranges::find_if(
      possible, [&](const auto& candidate) { return candidate.second <= kAsGood * least; });
  const std::vector<std::string> keys = changes_to(found, better->first);
  advice.push_back({false, join(keys, ", ") + needs(better->first),
                    str("error of the GEMMs ", percent_text(better->second), " instead of ",
                        percent_text(in_use.error), " on the same tensors"),
                    flags_of(keys)});
}

}  // namespace

std::vector<std::string> Diagnosis::sick_layers() const {
  std::vector<std::string> sick;
  for (const auto& r : health)
    if (!r.trouble.empty() && std::ranges::find(sick, r.layer) == sick.end())
      sick.push_back(r.layer);
  return sick;
}

void sort_worst_first(std::vector<nn::Fp8TensorReport>& reports) {
  std::ranges::stable_sort(reports, [](const auto& a, const auto& b) {
    if (a.trouble.empty() != b.trouble.empty()) return !a.trouble.empty();
    return a.health.sqnr_db() < b.health.sqnr_db();
  });
}

VariantSummary summarize(const std::vector<LayerStats>& layers, const Variant& variant) {
  VariantSummary o;
  double squares = 0;
  for (const LayerStats& layer : layers) {
    const VariantStats* v = layer.find(variant);
    if (v == nullptr || !v->is_legal()) {
      ++o.refused;
      continue;
    }
    ++o.layers;
    o.troubled += is_troubled(*v) ? 1 : 0;
    squares += v->error() * v->error();
  }
  if (o.layers > 0) o.error = std::sqrt(squares / static_cast<double>(o.layers));
  return o;
}

std::vector<Advice> advise(const Diagnosis& found) {
  std::vector<Advice> advice;
  const auto broken = broken_layers(found);
  if (!broken.empty())
    advice.push_back({true,
                      "an earlier checkpoint, or a lower learning_rate: the numbers are broken "
                      "before they are quantized, and no recipe helps",
                      str(worst_of(found, broken)->layer, " ", worst_of(found, broken)->tensor,
                          ": ", worst_of(found, broken)->trouble, " (", broken.size(),
                          " layer(s): ", first_few(broken), ")")});
  std::vector<std::string> curable;
  for (const std::string& layer : found.sick_layers())
    if (std::ranges::find(broken, layer) == broken.end()) curable.push_back(layer);
  if (!curable.empty()) {
    add_stale_scales(found, advice);
    add_cure(found, curable, advice);
  } else if (broken.empty()) {
    add_better_recipe(found, advice);
  }
  add_sizes(found, advice);
  add_bf16_parts(found, advice);
  return advice;
}

}  // namespace octavo::diagnose
