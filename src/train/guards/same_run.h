#pragma once
// Ranks that train the same: nodes are started one by one, and a config or a data set that is older
// on one of them makes no error by itself.

#include <string>

#include "config/settings.h"
#include "data/token_data.h"
#include "dist/world.h"

namespace octavo::train {

// Keys and values, a line each, of what all ranks must have been told alike. Paths of data and what
// is a node's own business (threads, sinks, caches) are not in it.
std::string settings_of_all_ranks(const config::Settings& settings);

// Fails by name on a rank whose data is not that of the first rank. All ranks call it.
void check_same_data(dist::World& world, const data::TokenData& data);

}  // namespace octavo::train
