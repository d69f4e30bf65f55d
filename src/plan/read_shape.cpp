#include "plan/shape.h"

#include "base/error.h"
#include "base/json.h"
#include "base/model_file.h"
#include "hub/hub.h"

namespace octavo::plan {
namespace {

constexpr int64_t kVocabularyMultiple = 64;  // the embedding's rows are padded to it
int64_t padded(int64_t vocab) {
  return (vocab + kVocabularyMultiple - 1) / kVocabularyMultiple * kVocabularyMultiple;
}

Shape gpt2_shape(std::string name, int64_t layers, int64_t heads, int64_t width, int64_t vocab,
                 int64_t positions) {
  Shape shape;
  shape.name = std::move(name);
  shape.layers = layers;
  shape.hidden = width;
  shape.ffn = 4 * width;
  shape.heads = shape.kv_heads = heads;
  shape.head_dim = width / heads;
  shape.vocab = padded(vocab);
  shape.positions = positions;
  shape.gated = false;
  shape.tied = shape.biases = true;
  return shape;
}

// A count of a config.json, bounded so that no product of them can overflow.
int64_t bounded(const Json& object, const char* name, int64_t most, const std::string& source) {
  const int64_t value = json_int(object, name, source);
  if (value < 1 || value > most)
    fail(ExitCode::kDamaged, "plan",
         str(source, ": ", name, ": wanted 1 to ", most, ", found ", value));
  return value;
}

int64_t bounded_or(const Json& object, const char* name, int64_t most, int64_t missing,
                   const std::string& source) {
  const auto found = object.find(name);
  return found == object.end() || found->is_null() ? missing : bounded(object, name, most, source);
}

constexpr int64_t kMostLayers = 1000, kMostWidth = int64_t{1} << 17, kMostVocab = int64_t{1} << 24;

Shape llama_shape(const Json& object, const std::string& type, const std::string& source) {
  Shape shape;
  shape.layers = bounded(object, "num_hidden_layers", kMostLayers, source);
  shape.hidden = bounded(object, "hidden_size", kMostWidth, source);
  shape.ffn = bounded(object, "intermediate_size", kMostWidth, source);
  shape.heads = bounded(object, "num_attention_heads", kMostLayers, source);
  shape.kv_heads = bounded_or(object, "num_key_value_heads", kMostLayers, shape.heads, source);
  shape.head_dim = bounded_or(object, "head_dim", 1024, shape.hidden / shape.heads, source);
  shape.vocab = padded(bounded(object, "vocab_size", kMostVocab, source));
  const auto tied = object.find("tie_word_embeddings");
  shape.tied = tied != object.end() && tied->is_boolean() && tied->get<bool>();
  shape.qkv_bias = type == "qwen2";
  return shape;
}

Shape shape_of_file(const fs::path& path, const std::string& name) {
  const Json object = read_json(path);
  const std::string source = path.string();
  const std::string type = json_string(object, "model_type", source);
  Shape shape;
  if (type == "gpt2") {
    shape = gpt2_shape(name, bounded(object, "n_layer", kMostLayers, source),
                       bounded(object, "n_head", kMostLayers, source),
                       bounded(object, "n_embd", kMostWidth, source),
                       bounded(object, "vocab_size", kMostVocab, source),
                       bounded(object, "n_positions", kMostVocab, source));
    shape.ffn = bounded_or(object, "n_inner", kMostWidth, shape.ffn, source);
    if (shape.hidden % shape.heads != 0)
      fail(ExitCode::kDamaged, "plan",
           str(source, ": n_embd ", shape.hidden, " is not a multiple of n_head ", shape.heads));
  } else if (type == "llama" || type == "qwen2" || type == "mistral") {
    shape = llama_shape(object, type, source);
  } else {
    fail(ExitCode::kUsage, "plan",
         str(source, ": wanted model_type gpt2, llama, mistral or qwen2, found ", type));
  }
  shape.name = name;
  return shape;
}

struct Preset {
  const char* name;
  int64_t layers, heads, width;
};
constexpr Preset kGpt2[] = {{"gpt2", 12, 12, 768},
                            {"gpt2-medium", 24, 16, 1024},
                            {"gpt2-large", 36, 20, 1280},
                            {"gpt2-xl", 48, 25, 1600}};

// Shapes that people plan for before they have a file of them. {name, layers, hidden, ffn, heads,
// key-value heads, head size, vocabulary, tied, biases on q, k, v}
struct Known {
  const char* name;
  int64_t layers, hidden, ffn, heads, kv_heads, head_dim, vocab;
  bool tied, qkv_bias;
};
constexpr Known kKnown[] = {
    {"llama-3.2-1b", 16, 2048, 8192, 32, 8, 64, 128256, true, false},
    {"llama-3.2-3b", 28, 3072, 8192, 24, 8, 128, 128256, true, false},
    {"llama-3.1-8b", 32, 4096, 14336, 32, 8, 128, 128256, false, false},
    {"llama-3.1-70b", 80, 8192, 28672, 64, 8, 128, 128256, false, false},
    {"llama-3.1-405b", 126, 16384, 53248, 128, 8, 128, 128256, false, false},
    {"llama-2-7b", 32, 4096, 11008, 32, 32, 128, 32000, false, false},
    {"qwen2.5-0.5b", 24, 896, 4864, 14, 2, 64, 151936, true, true},
    {"qwen2.5-1.5b", 28, 1536, 8960, 12, 2, 128, 151936, true, true},
    {"qwen2.5-3b", 36, 2048, 11008, 16, 2, 128, 151936, true, true},
    {"qwen2.5-7b", 28, 3584, 18944, 28, 4, 128, 152064, false, true},
    {"qwen2.5-14b", 48, 5120, 13824, 40, 8, 128, 152064, false, true},
};

// "meta-llama/Llama-3.1-8B-Instruct" and "llama-3.1-8b" are one shape.
std::string plain_name(std::string name) {
  if (const size_t slash = name.rfind('/'); slash != std::string::npos) name.erase(0, slash + 1);
  for (char& letter : name)
    if (letter >= 'A' && letter <= 'Z') letter = static_cast<char>(letter - 'A' + 'a');
  for (const std::string suffix : {"-instruct", "-base"})
    if (name.ends_with(suffix)) name.erase(name.size() - suffix.size());
  return name;
}

}  // namespace

Shape shape_of(const config::Settings& settings) {
  const std::string& name = settings.model_name;
  Shape shape;
  bool found = false;
  for (const Preset& preset : kGpt2)
    if (name == preset.name) {
      shape = gpt2_shape(name, settings.n_layer > 0 ? settings.n_layer : preset.layers,
                         settings.n_head > 0 ? settings.n_head : preset.heads,
                         settings.n_embd > 0 ? settings.n_embd : preset.width,
                         vocabulary_of(settings), settings.max_seq_length);
      found = true;
    }
  if (name == "custom") {
    if (settings.n_layer < 1 || settings.n_head < 1 || settings.n_embd < 1)
      fail(ExitCode::kUsage, "plan",
           "model_name custom: wanted n_layer, n_head and n_embd of at least 1");
    shape = gpt2_shape(name, settings.n_layer, settings.n_head, settings.n_embd,
                       vocabulary_of(settings), settings.max_seq_length);
    found = true;
  }
  if (found) return shape;
  const fs::path file = fs::path(name) / "config.json";
  if (fs::exists(file)) return shape_of_file(model_file(name, "config.json"), name);
  const std::string plain = plain_name(name);
  for (const Known& known : kKnown)
    if (plain == known.name) {
      shape.name = known.name;
      shape.layers = known.layers, shape.hidden = known.hidden, shape.ffn = known.ffn;
      shape.heads = known.heads, shape.kv_heads = known.kv_heads;
      shape.head_dim = known.head_dim, shape.vocab = padded(known.vocab);
      shape.tied = known.tied, shape.qkv_bias = known.qkv_bias;
      return shape;
    }
  hub::Options options = hub::model_options(settings);
  options.parts = hub::Parts::kTokenizer;
  return shape_of_file(hub::resolve_model(name, options) / "config.json", name);
}

}  // namespace octavo::plan
