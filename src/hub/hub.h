#pragma once
// Names to files. A model or data set is given as a path or as the name that the Hugging Face hub
// knows it by ("meta-llama/Llama-3.2-1B", also "name@revision"). A path that exists is taken as it
// is; then the Hugging Face cache on this machine is looked into; then the files are downloaded
// into that cache, in its own layout, so that other tools find what we fetched and we what they
// fetched. Only what is needed is downloaded: no pickles, no other formats of the same weights.

#include <string>
#include <vector>

#include "base/file.h"
#include "config/settings.h"

namespace octavo::hub {

enum class Parts {
  kModel,           // config, weights and tokenizer
  kTokenizer,       // config and tokenizer only
  kTokenizerAlone,  // tokenizer.json: the repository need not be a model's
};

struct Options {
  bool offline = false;           // never ask the network; HF_HUB_OFFLINE=1 says the same
  std::string revision = "main";  // branch, tag or commit; "name@revision" beats it
  Parts parts = Parts::kModel;
  std::string subset;  // of a data set that has several ("main" of gsm8k); "": its default
};

// As the keys offline and revision say. A data set's revision is in its name, not in the key.
Options model_options(const config::Settings& settings);
Options dataset_options(const config::Settings& settings);

// Whether this can only be a name on the hub: "org/name" or "name", optionally "@revision", and
// nothing of that path exists.
bool is_hub_name(const std::string& name);

// Says at once, and without the network, that a well-known model is of a family that is not
// implemented (gpt-oss, Phi-4); what is in a folder or in the cache is left to its config.json.
void refuse_other_family(const std::string& name);

// The folder with config.json, tokenizer.json and (parts) the safetensors files.
fs::path resolve_model(const std::string& name, const Options& options);

// Whether the key tokenizer means a name on the hub: "org/name", or what octavo names lists, where
// nothing of that path exists.
bool is_hub_tokenizer(const std::string& name);
// What the key tokenizer names, for tokenizer::load_tokenizer(): of a name on the hub the folder
// with its tokenizer.json; bytes and paths as they are. The key `revision` is the model's:
// "org/name@revision" has its own.
std::string resolve_tokenizer(const std::string& name, const config::Settings& settings);

struct Dataset {
  fs::path folder;  // what the files' names are relative to
  std::string split;
  std::vector<fs::path> files;  // in the order of their names in the repository
};

// The files of one split: parquet, arrow, jsonl, json or txt, one format only. `split` "" means
// train. A path that is a file is that file, whatever the split.
Dataset resolve_dataset(const std::string& name, const std::string& split, const Options& options);

}  // namespace octavo::hub
