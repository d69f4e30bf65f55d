// How much of a run's work its recipe takes, told from shapes and names alone.

#include <algorithm>
#include <map>

#include "base/error.h"
#include "fp8/execution.h"
#include "fp8/legality.h"
#include "verify/before_long_run.h"

namespace octavo::verify {
namespace {

// As src/models names them, in the order of plan::block_linears. fp8_skip is written in these.
std::string layer_name(const plan::Shape& shape, int64_t block, size_t linear) {
  constexpr const char* kGpt2[] = {"attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj"};
  constexpr const char* kLlama[] = {"self_attn.qkv_proj", "self_attn.o_proj", "mlp.gate_up_proj",
                                    "mlp.down_proj"};
  OCTAVO_ASSERT(linear < std::size(kGpt2));
  return shape.gated ? str("layers.", block, ".", kLlama[linear])
                     : str("h.", block, ".", kGpt2[linear]);
}

void add_once(std::vector<std::string>& list, std::string text) {
  if (std::ranges::find(list, text) == list.end()) list.push_back(std::move(text));
}

}  // namespace

void share_in_fp8(LongRun& run) {
  const plan::Shape& shape = run.forecast->shape;
  const config::Settings& s = run.settings;
  const fp8::Recipe recipe = fp8::request_of(s).wanted.recipe;
  const auto linears = plan::block_linears(shape);
  double taken = 0, all = 0;
  std::vector<fp8::LayerName> names;
  std::map<std::string, int64_t> skipped;  // layers by pattern
  for (int64_t block = 0; block < shape.layers; ++block)
    for (size_t p = 0; p < linears.size(); ++p) {
      const plan::LinearShape& linear = linears[p];
      const auto work = static_cast<double>(linear.outputs * linear.inputs);
      all += work;
      names.push_back({layer_name(shape, block, p), block});
      const std::string pattern =
          fp8::skipped_by(s.fp8_skip, names.back().name, block, shape.layers);
      const std::string why = fp8::refusal(recipe, linear.outputs, linear.inputs);
      if (!pattern.empty())
        ++skipped[pattern];
      else if (!why.empty())
        add_once(run.fp8_gaps, str(linear.name, ": ", why));
      else
        taken += work;
    }
  for (const auto& [pattern, layers] : skipped)
    run.fp8_gaps.push_back(str(layers, " layers of fp8_skip ", pattern));
  if (run.wants_fp8)
    for (const std::string& pattern : fp8::unmatched(s.fp8_skip, names, shape.layers))
      run.contradictions.push_back(str("fp8_skip: no layer is named '", pattern, "'"));
  all += static_cast<double>(shape.vocab * shape.hidden);
  // Half of the square is masked; two GEMMs.
  all += static_cast<double>(shape.layers * shape.query_width() * s.max_seq_length);
  run.fp8_share = all > 0 ? taken / all : 0;
}

}  // namespace octavo::verify
