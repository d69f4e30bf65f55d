#pragma once
// What a preparation is: its inputs, what its tokens depend on, and what stands in dataset.json.

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "data/dataset_index.h"
#include "data/encode.h"
#include "data/input_sets.h"
#include "data/prepare.h"
#include "data/row_plan.h"
#include "data/sources.h"
#include "tokenizer/tokenizer.h"

namespace octavo::data {

// Where tokens come from and what becomes of them, once the inputs have been looked at.
struct Inputs {
  std::vector<Source> sources;
  size_t first_val = 0;  // the sources from here on are validation; sources.size(): none is
  RowPlan rows;
};

Inputs find_inputs(const PrepareOptions& options, const tokenizer::Tokenizer& tokenizer);

// Without shards. The sources are hashed.
DatasetIndex make_index(const PrepareOptions& options, const tokenizer::Tokenizer& tokenizer,
                        const Inputs& inputs);

// The finished data set in `folder` when it is this one; nothing when there is none or it lost
// shards.
std::optional<DatasetIndex> find_finished(const fs::path& folder, const DatasetIndex& wanted);

// Removes what a killed process left: temporary files, and shards that are not `kept`.
void remove_leftovers(const fs::path& folder, const std::set<std::string>& kept);

EncodeContext make_context(const PrepareOptions& options, const tokenizer::Tokenizer& tokenizer,
                           const Inputs& inputs);

// The data set is complete but for its index, which this writes.
void finish_index(const PrepareOptions& options, const Tally& tally, DatasetIndex& index);

// The result when there was nothing to do.
PrepareResult describe_finished(const PrepareOptions& options, const DatasetIndex& index);

PrepareResult summarise(const DatasetIndex& index);

}  // namespace octavo::data
