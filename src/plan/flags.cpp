#include "plan/flags.h"

#include "base/text.h"
#include "config/key.h"

namespace octavo::plan {

std::set<std::string> changed_keys(const config::Settings& before, const config::Settings& after) {
  std::set<std::string> names;
  for (const config::Key& key : config::keys())
    if (key.load(before) != key.load(after)) names.insert(key.name);
  return names;
}

std::vector<std::string> train_flags(const config::Settings& settings,
                                     const std::set<std::string>& names) {
  std::vector<std::string> flags;
  for (const config::Key& key : config::keys()) {
    if (!names.contains(key.name) || (key.readers & config::reader::kTrain) == 0) continue;
    const std::vector<std::string> values = key.load(settings);
    if (key.type == config::Type::kBool) {
      flags.push_back((values.front() == "true" ? "--" : "--no_") + key.name);
      continue;
    }
    flags.push_back("--" + key.name);
    flags.push_back(join(values, ","));
  }
  return flags;
}

}  // namespace octavo::plan
