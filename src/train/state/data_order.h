#pragma once
// The order of a run's samples (data/order.h): chosen when the run begins, and kept in its
// checkpoints, so that a resume goes on in it whatever a later version or another step would
// choose.

#include <string>

#include "base/json.h"
#include "config/settings.h"
#include "data/token_data.h"

namespace octavo::train {

data::Order new_order(const config::Settings& settings, int ranks, const data::TokenData& train);

// For people; "": every sample by itself.
std::string describe_order(const data::Order& order, int64_t length, const data::TokenData& train);

// Null: every sample by itself.
Json order_json(const data::Order& order);
// Of a checkpoint. Those from before there was a choice have none: every sample by itself.
data::Order saved_order(const Json& extra, const std::string& source);

}  // namespace octavo::train
