#pragma once
// The data sets of one preparation: which part of each is validation, and what became of its
// documents.

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"
#include "data/encode.h"
#include "data/prepare.h"
#include "data/sources.h"

namespace octavo::data {

// The data sets of the options; all inputs are one when they name none.
std::vector<InputSet> sets_of(const PrepareOptions& options);

// Whether data sets that have nothing to validate on each hold out a part of their own, which
// earlier versions took from the last of them.
bool holds_out_by_set(const PrepareOptions& options);

// Training sources of all sets, then validation sources; the number of the former.
size_t list_set_sources(const PrepareOptions& options, std::vector<Source>& sources);

// Of each source. The sources from `first_val` on are validation as a whole.
std::vector<ValidationCut> validation_cuts(const PrepareOptions& options,
                                           const std::vector<Source>& sources,
                                           const std::vector<uint64_t>& begins, size_t first_val);

// What was made of each data set so far.
class Tally {
 public:
  explicit Tally(const PrepareOptions& options);
  void add(const EncodedUnit& unit, size_t set);
  // Of a part of the documents: what a preparation that was interrupted had, or what another
  // process encoded.
  Json to_json() const;
  void add(const Json& json, const std::string& source);
  uint64_t duplicates() const { return duplicates_; }
  // What came before is not known: the data sets are not described.
  void forget() { known_ = false; }

  // Warns of documents that did not come through whole, and fails when more rows than
  // max_skipped_rows were left out.
  void check(const PrepareOptions& options) const;

 private:
  struct Set {
    std::string name, validation;
    uint64_t train_documents = 0, val_documents = 0, val_tokens = 0;
  };
  std::vector<Set> sets_;
  bool known_ = true;
  uint64_t empty_texts_ = 0, empty_answers_ = 0, too_long_ = 0, cut_ = 0, special_ = 0,
           duplicates_ = 0;
  std::vector<std::string> places_;  // of the first rows that were left out
};

// One line for each data set: what it trains and validates on. `sets`: of Tally::to_json() or a
// dataset.json.
std::vector<std::string> describe_sets(const Json& sets, const std::string& source);

}  // namespace octavo::data
