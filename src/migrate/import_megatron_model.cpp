// Megatron describes a model by its sizes. Here they become one of octavo's families: Llama
// (RMSNorm, rotary positions, SwiGLU) or GPT-2 (LayerNorm, learned positions, GELU, biases).

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "config/key_makers.h"
#include "migrate/import_builder.h"
#include "model_config/presets.h"

namespace octavo::migrate {
namespace {

using enum Finding::Verdict;
constexpr ForeignForm kMegaForm = ForeignForm::kMegatron;
constexpr int64_t kMostOfASize = 1 << 24;

constexpr std::string_view kModelKeys[] = {"num-layers",
                                           "hidden-size",
                                           "ffn-hidden-size",
                                           "num-attention-heads",
                                           "group-query-attention",
                                           "num-query-groups",
                                           "kv-channels",
                                           "max-position-embeddings",
                                           "position-embedding-type",
                                           "use-rotary-position-embeddings",
                                           "rotary-base",
                                           "rotary-percent",
                                           "normalization",
                                           "norm-epsilon",
                                           "layernorm-epsilon",
                                           "swiglu",
                                           "squared-relu",
                                           "activation-func",
                                           "gated-linear-unit",
                                           "untie-embeddings-and-output-weights",
                                           "disable-bias-linear",
                                           "add-bias-linear",
                                           "add-qkv-bias",
                                           "qk-layernorm",
                                           "vocab-size",
                                           "padded-vocab-size",
                                           "tokenizer-type",
                                           "tokenizer-model",
                                           "num-experts",
                                           "num-moe-experts",
                                           "multi-latent-attention"};

int64_t size_of(const Importer& importer, std::string_view key, int64_t usual) {
  const ForeignEntry* entry = importer.entry_of(kMegaForm, key);
  return entry == nullptr ? usual : importer.whole(*entry, 1, kMostOfASize);
}

double real_of(const Importer& importer, std::string_view key, double usual) {
  const ForeignEntry* entry = importer.entry_of(kMegaForm, key);
  return entry == nullptr ? usual : importer.number(*entry, 0, 1e12);
}

// The tokens of a tokenizer that has a known number of them; 0 when it is another.
int64_t tokenizer_vocabulary(const Importer& importer) {
  static constexpr std::pair<std::string_view, int64_t> kKnown[] = {
      {"GPT2BPETokenizer", 50257}, {"Llama2Tokenizer", 32000}, {"Llama3Tokenizer", 128256}};
  const std::string type = importer.word_of(kMegaForm, "tokenizer-type");
  for (const auto& [name, tokens] : kKnown)
    if (type == name) return tokens;
  if (type.empty() && importer.file_of(kMegaForm) != nullptr)
    for (const ForeignEntry& entry : importer.file_of(kMegaForm)->entries)
      if (entry.path == "vocab-file" && !entry.is_null) return 50257;  // a vocabulary of GPT-2
  if (const auto preset = model_config::published(importer.word_of(kMegaForm, "tokenizer-model")))
    return preset->config.vocab;
  return 0;
}

struct Traits {
  bool rotary = false, rms_norm = false, gated = false, tied = true, bias = true, qkv_bias = false;
};

Traits traits_of(const Importer& importer) {
  const auto on = [&](const char* key) { return importer.is_on(kMegaForm, key); };
  Traits traits;
  traits.rotary = importer.word_of(kMegaForm, "position-embedding-type") == "rope" ||
                  on("use-rotary-position-embeddings");
  traits.rms_norm = importer.word_of(kMegaForm, "normalization") == "RMSNorm";
  traits.gated = on("swiglu") || on("gated-linear-unit") ||
                 importer.word_of(kMegaForm, "activation-func") == "swiglu";
  traits.tied = !on("untie-embeddings-and-output-weights");
  traits.bias = !on("disable-bias-linear") &&
                importer.word_of(kMegaForm, "add-bias-linear") != "false" &&
                importer.word_of(kMegaForm, "add-bias-linear") != "False";
  traits.qkv_bias = on("add-qkv-bias");
  return traits;
}

// What is not as in octavo's family of that name.
std::string differences(const Importer& importer, const Traits& traits,
                        const model_config::ModelConfig& model) {
  std::vector<std::string> found;
  const auto note = [&](bool differs, const char* what) {
    if (differs) found.emplace_back(what);
  };
  if (model.is_gpt2()) {
    note(model.mlp != 4 * model.width, "an MLP that is not 4 times as wide");
    note(model.kv_heads != model.heads, "grouped queries");
    note(model.head_dim * model.heads != model.width, "heads of another width");
    note(!traits.tied, "a head beside the embedding");
    note(!traits.bias, "no biases");
  } else {
    note(!traits.rotary, "learned positions");
    note(!traits.rms_norm, "LayerNorm");
    note(!traits.gated, "no gate");
    note(traits.bias, "biases");
    note(real_of(importer, "rotary-percent", 1) != 1, "rotary positions of a part of each head");
  }
  note(importer.is_on(kMegaForm, "squared-relu"), "squared ReLU");
  note(importer.is_on(kMegaForm, "qk-layernorm"), "norms of queries and keys");
  return found.empty() ? "" : str("it has ", join(found, ", "));
}

ImportedModel described_model(const Importer& importer) {
  const Traits traits = traits_of(importer);
  ImportedModel model;
  model_config::ModelConfig& c = model.config;
  const bool llama = traits.rotary || traits.rms_norm || traits.gated;
  c.family = llama ? &model_config::kLlamaFamily : &model_config::kGpt2Family;
  c.layers = size_of(importer, "num-layers", 1);
  c.width = size_of(importer, "hidden-size", 1);
  c.heads = size_of(importer, "num-attention-heads", 1);
  // Megatron's own: 4 h, or 8/3 h down to a multiple of 64 with a gate.
  c.mlp = size_of(importer, "ffn-hidden-size",
                  traits.gated ? std::max<int64_t>(64, c.width * 8 / 3 / 64 * 64) : 4 * c.width);
  c.head_dim = size_of(importer, "kv-channels", std::max<int64_t>(1, c.width / c.heads));
  const bool grouped = importer.is_on(kMegaForm, "group-query-attention") ||
                       importer.word_of(kMegaForm, "group-query-attention").empty();
  c.kv_heads = grouped ? size_of(importer, "num-query-groups", c.heads) : c.heads;
  c.context = size_of(importer, "max-position-embeddings", size_of(importer, "seq-length", 1024));
  c.rope.theta = real_of(importer, "rotary-base", 10000);
  c.norm_eps = real_of(importer, "norm-epsilon", real_of(importer, "layernorm-epsilon", 1e-5));
  c.tied = traits.tied;
  c.qkv_bias = traits.qkv_bias || traits.bias;
  c.out_bias = c.mlp_bias = traits.bias;
  c.vocab = size_of(importer, "padded-vocab-size", size_of(importer, "vocab-size", 0));
  model.gated = traits.gated;
  model.name = str(c.layers, " layers, ", c.width, " wide");
  model.refusal = differences(importer, traits, c);
  return model;
}

void refuse_experts(Importer& importer) {
  for (const char* key : {"num-experts", "num-moe-experts", "multi-latent-attention"}) {
    const ForeignEntry* entry = importer.entry_of(kMegaForm, key);
    if (entry == nullptr || importer.word(*entry) == "false") continue;
    if (importer.word(*entry) == "1") continue;
    importer.find(
        kRefused, "other_model", *entry,
        "experts are not read from such a file, and there is no latent attention",
        "another model: neither its memory nor its speed can be forecast here",
        "keep Megatron for this one; octavo's own experts: octavo plan --model_name Qwen3-30B-A3B");
  }
}

// Sizes with which every product below fits into 63 bits.
bool is_plausible(const model_config::ModelConfig& c) {
  return c.layers <= 10000 && c.width <= 1 << 20 && c.mlp <= 1 << 22 && c.heads <= 1 << 14 &&
         c.kv_heads <= c.heads && c.head_dim <= 1 << 14 && c.vocab <= 1 << 24 &&
         c.context <= 1 << 24;
}

}  // namespace

void name_model(Importer& importer, const ForeignEntry& reason, ImportedModel model) {
  const model_config::ModelConfig& c = model.config;
  if (!model.refusal.empty())
    importer.find(kRepaired, "other_block", reason,
                  str(model.refusal, "; octavo's ", c.family->title, " has not"),
                  "another model of the same sizes: forecasts hold, their weights do not load",
                  str(c.family->title, "'s block of these sizes"));
  if (c.is_gpt2()) {
    importer.map_to(reason, "model_name", "custom");
    importer.map_to(reason, "n_layer", config::print_number(c.layers));
    importer.map_to(reason, "n_head", config::print_number(c.heads));
    importer.map_to(reason, "n_embd", config::print_number(c.width));
    importer.map_to(reason, "vocab_size", config::print_number(c.vocab));
    importer.result.model = std::move(model);
    return;
  }
  for (const std::string_view name : model_config::published_names()) {
    const model_config::ModelConfig known = model_config::published(name)->config;
    const bool same_sizes =
        known.family == c.family && known.layers == c.layers && known.width == c.width &&
        known.mlp == c.mlp && known.heads == c.heads && known.kv_heads == c.kv_heads &&
        known.head_dim == c.head_dim && known.tied == c.tied &&
        model_config::padded_vocab(known.vocab) == model_config::padded_vocab(c.vocab);
    if (!same_sizes) continue;
    model.name = str("the sizes of ", name);
    if (!model.refusal.empty() || known.rope.scaling || known.rope.theta != c.rope.theta) continue;
    importer.map_to(reason, "model_name", std::string(name), "the sizes are this model's");
    importer.map_to(reason, "init_from", "random");
    return;
  }
  importer.map_to(reason, "model_name", std::string(kModelFolder), "its config.json is written");
  importer.map_to(reason, "init_from", "random");
  importer.result.model = std::move(model);
}

void settle_megatron_model(Importer& importer) {
  importer.result.program = "Megatron on Transformer Engine";
  refuse_experts(importer);
  const ForeignEntry* reason = importer.entry_of(kMegaForm, "num-layers");
  const bool has_sizes = reason != nullptr &&
                         importer.entry_of(kMegaForm, "hidden-size") != nullptr &&
                         importer.entry_of(kMegaForm, "num-attention-heads") != nullptr;
  for (const std::string_view key : kModelKeys)
    if (const ForeignEntry* entry = importer.entry_of(kMegaForm, key))
      if (entry != reason || !has_sizes || importer.result.is_refused())
        importer.leave(*entry, "of the model; see the line of that name");
  if (!has_sizes || importer.result.is_refused()) return;
  ImportedModel model = described_model(importer);
  if (!is_plausible(model.config))
    fail(ExitCode::kUsage, "config", reason->where,
         ": wanted the sizes of a language model, found ", model.config.layers, " layers of ",
         model.config.width, " with ", model.config.heads, " heads in ", model.config.kv_heads,
         " groups; correct them and import again");
  if (model.config.vocab == 0) model.config.vocab = tokenizer_vocabulary(importer);
  if (model.config.vocab == 0) {
    model.config.vocab = model.config.is_gpt2() ? 50257 : 128256;
    importer.find(kNote, "vocabulary_assumed", *reason,
                  "no argument says how many tokens there are",
                  "embedding and head may be larger or smaller",
                  str(model.config.vocab, " tokens; vocab-size in their file says another number"));
  }
  name_model(importer, *reason, std::move(model));
}

}  // namespace octavo::migrate
