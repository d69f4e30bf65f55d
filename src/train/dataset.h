#pragma once
// The data a run trains on: a prepared folder, or text that is prepared into the cache on first
// use.

#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/file.h"
#include "config/settings.h"
#include "data/token_data.h"
#include "tokenizer/tokenizer.h"

namespace octavo::train {

struct DataSet {
  std::shared_ptr<data::TokenData> train, val;  // val: null when the data has no validation split
  std::string tokenizer;                        // name to load it by
};

// The micro-batches of a step. All are read first: each loss token counts the same, however many a
// micro-batch has.
struct StepData {
  std::vector<data::Batch> batches;
  double tokens = 0;         // in the loss: of this rank, then of all
  std::exception_ptr error;  // what reading met, for the step that wants the data
};

// Where the data of a run stands.
struct DataState {
  std::unique_ptr<tokenizer::Tokenizer> tokenizer;
  std::shared_ptr<data::TokenData> train, val;  // val: null when there is no validation split
  std::unique_ptr<data::Loader> loader;         // of train
  std::optional<StepData> next;                 // of the next step, when there are several ranks
  int64_t samples_left_out = 0;                 // on this rank, because their tokens are damaged
  fs::path hellaswag;                           // what eval_hellaswag names; "": not asked
};

// Where open_data_set() looks, and whether prepared data is there. Prepares nothing; names of
// models and data sets are looked up as the key `offline` says. One for each source of a mixture.
struct DataPosition {
  fs::path folder;
  bool is_prepared = false;
};
std::vector<DataPosition> data_positions(const config::Settings& settings);
// What is prepared there.
DataSet open_prepared(const config::Settings& settings, const std::vector<fs::path>& folders);

// Turns a tokenizer's name on the hub into its folder, and names the tokenizer where the key does
// not: the model's own (data/default_tokenizer.h), or what the prepared data was made with. Data of
// bytes for a model that has a tokenizer is refused until the key says that it is meant.
void settle_tokenizer(config::Settings& resolved);

DataSet open_data_set(const config::Settings& settings);

inline bool skips_damaged(const config::Settings& settings) {
  return settings.data_damage == config::DataDamage::kSkip;
}
// For the loader's key of this name.
inline int32_t document_end(const config::Settings& settings, const tokenizer::Tokenizer& of_data) {
  return settings.document_mask ? static_cast<int32_t>(of_data.end_of_document()) : -1;
}

}  // namespace octavo::train
