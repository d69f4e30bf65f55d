#pragma once
// Which files of a data set repository are a split. The card (README.md) says it under `configs:`
// when it says it at all; otherwise the names do, by the rules of the Hugging Face `datasets`
// library: "train-00000-of-00032.parquet", a folder or a word "train", or nothing at all (then
// everything is train).

#include <string>
#include <vector>

namespace octavo::hub {

struct SplitRequest {
  std::string id;      // in messages
  std::string split;   // "train", "train_1M", …
  std::string subset;  // "": the default one
};

// Names of `names` (sorted) that are the split; one format only. Fails with the splits that exist
// when there is none. `card` may be empty.
std::vector<std::string> files_of_split(const std::vector<std::string>& names,
                                        const std::string& card, const SplitRequest& request);

// Names like "x-00001-of-00004.parquet" whose companions are not all there.
bool shards_missing(const std::vector<std::string>& files);

// As files_of_split matches the card's patterns: * and ? stay inside a folder's name, ** does not.
bool path_match(std::string_view pattern, std::string_view name);

}  // namespace octavo::hub
