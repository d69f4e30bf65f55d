#pragma once
// The mixture of a run's sources (data/mixture.h): made of the settings when the run begins, kept
// in its checkpoints, and changed from a resume on when the settings have changed.

#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "config/settings.h"
#include "data/mixed_tokens.h"
#include "data/mixture.h"
#include "monitor/step_record.h"
#include "train/progress.h"

namespace octavo::train {

std::shared_ptr<const data::Mixture> new_mixture(const config::Settings& settings, int ranks,
                                                 const data::MixedTokens& train);

// Of a checkpoint that is so far.
std::shared_ptr<const data::Mixture> resumed_mixture(const config::Settings& settings, int ranks,
                                                     const data::MixedTokens& train,
                                                     const Progress& progress, const Json& extra,
                                                     const std::string& source);
Json mixture_json(const data::Mixture& mixture);

// For people: the shares, and what comes of them in samples (from, to]: sources that leave, and
// weights that change.
std::string describe_shares(const data::MixedTokens& train, const data::Mixture& mixture,
                            uint64_t position);
// Sources that are read in blocks, and how (data/order.h).
std::vector<std::string> describe_orders(const data::MixedTokens& train,
                                         const data::Mixture& mixture, int64_t length);
std::vector<std::string> describe_changes(const data::MixedTokens& train,
                                          const data::Mixture& mixture, uint64_t from, uint64_t to);

std::vector<monitor::SourceUse> source_uses(const data::MixedTokens& train,
                                            const data::Position& position, int64_t length);
Json sources_receipt(const data::MixedTokens& train, const data::Position& position,
                     int64_t length);

}  // namespace octavo::train
