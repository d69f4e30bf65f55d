#pragma once
// The data a run trains on: a prepared folder, or text that is prepared into the cache on first
// use.

#include <memory>
#include <string>

#include "config/settings.h"
#include "data/token_data.h"

namespace octavo::train {

struct DataSet {
  std::shared_ptr<data::TokenData> train, val;  // val: null when the data has no validation split
  std::string tokenizer;                        // name to load it by
};

DataSet open_data_set(const config::Settings& settings);

}  // namespace octavo::train
