#include "config/length_keys.h"

#include "base/error.h"
#include "base/text.h"
#include "config/key_makers.h"
#include "config/verb_keys.h"

namespace octavo::config {

Key length_key() {
  return schedule_key(
             "length_schedule", &Settings::length_schedule,
             "texts of a share of the run (from 0, below 1, ascending) and a length in tokens, "
             "such as \"0 512\"",
             "Shorter sequences in a part of the run: a list of texts, each a share of the run and "
             "a length that divides max_seq_length. [0 512, 0.1 2048]: 512 tokens for the first "
             "tenth of max_steps, then 2048. A sample is cut into sequences that do not see each "
             "other, so every step has the same tokens. Validation is at max_seq_length.",
             [](const std::vector<std::string>& texts) {
               return scheduled_lengths(texts).has_value();
             })
      .read_by(reader::kTrain);
}

std::optional<std::vector<ScheduledLength>> scheduled_lengths(
    const std::vector<std::string>& texts) {
  std::vector<ScheduledLength> schedule;
  for (const std::string& text : texts) {
    std::vector<std::string> words = split(text, ' ');
    std::erase(words, "");
    if (words.size() != 2) return std::nullopt;
    const auto at = parse_number<double>(words[0]);
    const auto length = parse_number<int64_t>(words[1]);
    if (!at || !(*at >= 0 && *at < 1) || !length || *length < 1) return std::nullopt;
    if (!schedule.empty() && *at <= schedule.back().at) return std::nullopt;
    schedule.push_back({*at, *length});
  }
  return schedule;
}

std::string length_problem(const Settings& s) {
  const auto schedule = scheduled_lengths(s.length_schedule);
  for (const ScheduledLength& stage : *schedule)
    if (stage.length > s.max_seq_length || s.max_seq_length % stage.length != 0)
      return str("length_schedule: wanted lengths that divide max_seq_length ", s.max_seq_length,
                 ", found ", stage.length, "; give ", s.max_seq_length / 2, ", or max_seq_length ",
                 stage.length, " and more");
  if (!s.length_schedule.empty() && s.max_steps == 0)
    return "length_schedule is in shares of max_steps, and none is given; give max_steps";
  return "";
}

}  // namespace octavo::config
