// How much of a run's work its recipe takes, told from shapes and names alone.

#include <algorithm>
#include <map>

#include "base/error.h"
#include "fp8/execution.h"
#include "fp8/legality.h"
#include "verify/before_long_run.h"

namespace octavo::verify {
namespace {

using Place = plan::LinearShape::Place;

// Whether a block has this linear layer: its MLP may be experts.
bool has(const plan::Shape& shape, int64_t block, const plan::LinearShape& linear) {
  return linear.place == Place::kAttention ||
         (linear.place == Place::kExpert) == shape.is_sparse(block);
}

// As src/models names them; fp8_skip is written in these. Of experts one name for each. `second`:
// of the two linear layers at that place.
std::vector<std::string> layer_names(const plan::Shape& shape, int64_t block, Place place,
                                     bool second) {
  const bool attention = place == Place::kAttention;
  if (!shape.gated)
    return {str("h.", block, attention ? ".attn." : ".mlp.",
                second      ? "c_proj"
                : attention ? "c_attn"
                            : "c_fc")};
  const std::string layer = str("layers.", block, ".");
  if (attention) return {layer + (second ? "self_attn.o_proj" : "self_attn.qkv_proj")};
  const std::string last = second ? "down_proj" : "gate_up_proj";
  if (place == Place::kMlp) return {layer + "mlp." + last};
  std::vector<std::string> names;
  for (int64_t i = 0; i < shape.experts; ++i)
    names.push_back(str(layer, "mlp.experts.", i, ".", last));
  return names;
}

void add_once(std::vector<std::string>& list, std::string text) {
  if (std::ranges::find(list, text) == list.end()) list.push_back(std::move(text));
}

}  // namespace

void share_in_fp8(LongRun& run) {
  const plan::Shape& shape = run.forecast->shape;
  const config::Settings& s = run.settings;
  // Sides, and what stays in BF16 by default, are of the recipe that runs on that GPU.
  const plan::RecipeOrBf16 runs = run.on_gpu ? run.forecast->chosen().runs : plan::kBf16;
  const fp8::Recipe recipe = runs.value_or(fp8::request_of(s).wanted.recipe);
  const bool by_default = s.fp8_skip.empty();
  const std::vector<std::string> skip =
      by_default ? fp8::default_skip(recipe, shape.layers) : s.fp8_skip;
  const auto linears = plan::block_linears(shape);
  double taken = 0, all = 0;
  std::vector<fp8::LayerName> names;
  std::map<std::string, int64_t> skipped;  // layers by pattern
  for (int64_t block = 0; block < shape.layers; ++block)
    for (size_t p = 0; p < linears.size(); ++p) {
      const plan::LinearShape& linear = linears[p];
      if (!has(shape, block, linear)) continue;
      // Of experts each token goes through some alone.
      const double work = static_cast<double>(linear.outputs * linear.inputs) * linear.share;
      const std::string why = fp8::refusal(recipe, linear.outputs, linear.inputs);
      for (std::string& name : layer_names(shape, block, linear.place, p % 2 == 1)) {
        all += work;
        names.push_back({std::move(name), block});
        const std::string pattern = fp8::skipped_by(skip, names.back().name, block, shape.layers);
        if (!pattern.empty())
          ++skipped[pattern];
        else if (!why.empty())
          add_once(run.fp8_gaps, str(linear.name, ": ", why));
        else
          taken += work;
      }
    }
  for (const auto& [pattern, layers] : skipped)
    run.fp8_gaps.push_back(
        str(layers, " layers of fp8_skip ", pattern, by_default ? " (default)" : ""));
  if (run.wants_fp8)
    for (const std::string& pattern : fp8::unmatched(s.fp8_skip, names, shape.layers))
      run.contradictions.push_back(str("fp8_skip: no layer is named '", pattern, "'"));
  all += static_cast<double>(shape.vocab * shape.hidden + plan::router_parameters(shape));
  // Half of the square is masked; two GEMMs.
  all += static_cast<double>(shape.layers * shape.query_width() * s.max_seq_length);
  run.fp8_share = all > 0 ? taken / all : 0;
}

}  // namespace octavo::verify
