#include "plan/fp8_layers.h"

#include <utility>

#include "base/error.h"

namespace octavo::plan {
namespace {

// Whether a block has this linear layer: its MLP may be experts.
bool has_linear(const Shape& shape, int64_t block, const LinearShape& linear) {
  return linear.place == LinearShape::Place::kAttention ||
         (linear.place == LinearShape::Place::kExpert) == shape.is_sparse(block);
}

// Of experts one name for each. `second`: of the two linear layers at that place.
std::vector<std::string> layer_names(const Shape& shape, int64_t block, LinearShape::Place place,
                                     bool second) {
  using Place = LinearShape::Place;
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

}  // namespace

std::vector<NamedLinear> named_linears(const Shape& shape) {
  const std::vector<LinearShape> linears = block_linears(shape);
  std::vector<NamedLinear> named;
  for (int64_t block = 0; block < shape.layers; ++block)
    for (size_t place = 0; place < linears.size(); ++place) {
      if (!has_linear(shape, block, linears[place])) continue;
      for (std::string& name : layer_names(shape, block, linears[place].place, place % 2 == 1))
        named.push_back({{std::move(name), block}, place});
    }
  return named;
}

std::vector<double> fp8_shares(const Shape& shape, const std::vector<std::string>& skip,
                               fp8::Recipe recipe) {
  const std::vector<std::string> patterns =
      skip.empty() ? fp8::default_skip(recipe, shape.layers) : skip;
  if (patterns.empty()) return {};
  const size_t places = block_linears(shape).size();
  std::vector<double> all(places, 0), taken(places, 0);
  for (const NamedLinear& it : named_linears(shape)) {
    all[it.place] += 1;
    if (fp8::skipped_by(patterns, it.layer.name, it.layer.block, shape.layers).empty())
      taken[it.place] += 1;
  }
  for (size_t place = 0; place < places; ++place)
    if (all[place] > 0) taken[place] /= all[place];
  return taken;
}

double fp8_weight_share(const Shape& shape, const std::vector<double>& shares) {
  if (shares.empty()) return 1;
  const std::vector<LinearShape> linears = block_linears(shape);
  double all = 0, taken = 0;
  for (size_t place = 0; place < linears.size(); ++place) {
    all += linears[place].weights();
    taken += linears[place].weights() * shares[place];
  }
  return all > 0 ? taken / all : 1;
}

std::string fp8_skip_problem(const Shape& shape, const std::vector<std::string>& skip) {
  if (skip.empty()) return "";
  std::vector<fp8::LayerName> names;
  for (NamedLinear& it : named_linears(shape)) names.push_back(std::move(it.layer));
  return fp8::skip_problem(skip, names, shape.layers);
}

}  // namespace octavo::plan
