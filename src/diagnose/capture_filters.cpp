#include "diagnose/capture_filters.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/text.h"

namespace octavo::diagnose {
namespace {

constexpr std::string_view kPrefixes[] = {"model.", "transformer."};
constexpr std::string_view kHeads[] = {"lm_head", "output", "head"};

// Ends of names, of Hugging Face and of torchtitan, and ours. Matrices that read the same input
// are one here.
constexpr std::pair<std::string_view, std::string_view> kOurEnds[] = {
    {".self_attn.q_proj", ".self_attn.qkv_proj"}, {".self_attn.k_proj", ".self_attn.qkv_proj"},
    {".self_attn.v_proj", ".self_attn.qkv_proj"}, {".mlp.gate_proj", ".mlp.gate_up_proj"},
    {".mlp.up_proj", ".mlp.gate_up_proj"},        {".attention.wq", ".self_attn.qkv_proj"},
    {".attention.wk", ".self_attn.qkv_proj"},     {".attention.wv", ".self_attn.qkv_proj"},
    {".attention.wo", ".self_attn.o_proj"},       {".feed_forward.w1", ".mlp.gate_up_proj"},
    {".feed_forward.w3", ".mlp.gate_up_proj"},    {".feed_forward.w2", ".mlp.down_proj"},
};

constexpr std::string_view kTorchaoEnd =
    "from torchao.float8 import convert_to_float8_training\n"
    "convert_to_float8_training(\n"
    "    model, module_filter_fn=lambda module, name: name not in keep_in_bf16)\n";
// fp8_autocast is a context manager of contextlib, which also decorates functions.
constexpr std::string_view kTransformerEngineEnd =
    "import transformer_engine.pytorch as te\n"
    "for name, module in model.named_modules():\n"
    "    if name in keep_in_bf16:  # a fused module is left out as a whole\n"
    "        module.forward = te.fp8_autocast(enabled=False)(module.forward)\n";

std::string trouble_text(const VariantStats& stats) {
  for (const TensorStats& t : stats.tensors)
    if (const std::string problem = fp8::health_problem(t.health); !problem.empty())
      return str(fp8::name_of(t.role),
                 t.direction == fp8::Direction::kColumn ? " (columns): " : ": ", problem);
  return "";
}

std::string python_set(const std::vector<KeptLayer>& kept) {
  std::string text = "keep_in_bf16 = {\n";
  for (const KeptLayer& k : kept) text += str("    \"", k.layer, "\",  # ", k.why, "\n");
  return text + "}\n";
}

}  // namespace

std::vector<KeptLayer> kept_in_bf16(const std::vector<LayerStats>& layers, const Variant& variant) {
  std::vector<KeptLayer> kept;
  for (const LayerStats& layer : layers) {
    const VariantStats* stats = layer.find(variant);
    OCTAVO_ASSERT(stats != nullptr);
    const std::string trouble = trouble_text(*stats);
    if (!stats->is_legal())
      kept.push_back({layer.layer, stats->refusal, false});
    else if (!trouble.empty())
      kept.push_back({layer.layer, trouble, true});
  }
  return kept;
}

std::string octavo_name(const std::string& layer) {
  if (std::ranges::find(kHeads, layer) != std::end(kHeads)) return "";
  std::string name = layer;
  for (const std::string_view prefix : kPrefixes)
    if (name.starts_with(prefix)) {
      name.erase(0, prefix.size());
      break;
    }
  for (const auto& [theirs, ours] : kOurEnds)
    if (name.ends_with(theirs)) return name.replace(name.size() - theirs.size(), name.npos, ours);
  return name;
}

Filters filters_for(const std::vector<KeptLayer>& kept) {
  if (kept.empty())
    return {"# every layer may run in FP8\n", "# every layer may run in FP8\n",
            "# fp8_skip: nothing to keep in BF16\n"};
  std::vector<std::string> ours;
  for (const KeptLayer& k : kept) {
    const std::string name = octavo_name(k.layer);
    if (k.is_sick && !name.empty() && std::ranges::find(ours, name) == ours.end())
      ours.push_back(name);
  }
  const std::string set = python_set(kept);
  return {set + std::string(kTorchaoEnd), set + std::string(kTransformerEngineEnd),
          ours.empty()
              ? "# fp8_skip: nothing; octavo itself leaves out the head and sizes that cannot run\n"
              : str("fp8_skip: [", join(ours, ", "), "]\n")};
}

}  // namespace octavo::diagnose
