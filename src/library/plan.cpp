#include "library/octavo/plan.h"

#include <vector>

#include "config/parse.h"
#include "plan/report.h"

namespace octavo::v0 {

Forecast forecast(const std::map<std::string, std::string>& settings) {
  std::vector<std::string> words;
  for (const auto& [key, value] : settings) words.push_back("--" + key + "=" + value);
  const config::Parsed parsed = config::parse(words, {"plan", config::reader::kPlan, 0, false});
  const plan::Forecast made = plan::forecast(parsed.settings);
  return {.fits = made.fits(),
          .memory_bytes = made.memory().total,
          .usable_bytes = made.memory_limit,
          .tokens_per_second = made.chosen().time.tokens_per_s,
          .bf16_tokens_per_second = made.recipes.front().time.tokens_per_s,
          .gain = made.chosen().gain,
          .text = plan::text_of(made),
          .json = plan::json_of(made).dump(2)};
}

}  // namespace octavo::v0
