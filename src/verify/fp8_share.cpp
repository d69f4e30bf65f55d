// How much of a run's work its recipe takes, told from shapes and names alone.

#include <algorithm>
#include <map>

#include "base/error.h"
#include "fp8/execution.h"
#include "fp8/legality.h"
#include "plan/fp8_layers.h"
#include "verify/before_long_run.h"

namespace octavo::verify {
namespace {

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
  std::map<std::string, int64_t> skipped;  // layers by pattern
  for (const plan::NamedLinear& it : plan::named_linears(shape)) {
    const plan::LinearShape& linear = linears[it.place];
    // Of experts each token goes through some alone.
    const double work = static_cast<double>(linear.outputs * linear.inputs) * linear.share;
    all += work;
    const std::string pattern = fp8::skipped_by(skip, it.layer.name, it.layer.block, shape.layers);
    const std::string why = fp8::refusal(recipe, linear.outputs, linear.inputs);
    if (!pattern.empty())
      ++skipped[pattern];
    else if (!why.empty())
      add_once(run.fp8_gaps, str(linear.name, ": ", why));
    else
      taken += work;
  }
  for (const auto& [pattern, layers] : skipped)
    run.fp8_gaps.push_back(
        str(layers, " layers of fp8_skip ", pattern, by_default ? " (default)" : ""));
  if (run.wants_fp8)
    if (std::string problem = plan::fp8_skip_problem(shape, s.fp8_skip); !problem.empty())
      run.contradictions.push_back(std::move(problem));
  all += static_cast<double>(shape.vocab * shape.hidden + plan::router_parameters(shape));
  // Half of the square is masked; two GEMMs.
  all += static_cast<double>(shape.layers * shape.query_width() * s.max_seq_length);
  run.fp8_share = all > 0 ? taken / all : 0;
}

}  // namespace octavo::verify
