#include "config/mixture_keys.h"

#include <algorithm>
#include <filesystem>
#include <numeric>

#include "base/error.h"
#include "base/text.h"
#include "config/key_makers.h"
#include "config/verb_keys.h"

namespace octavo::config {
namespace {

using S = Settings;
constexpr double kLargestWeight = 1e15;
constexpr double kSmallestShare = 1e-6;  // as finely as a mixture is made (data/mixture.h)
constexpr size_t kMostSources = 256;
constexpr int64_t kMostEpochs = 1'000'000;
constexpr Readers kReaders = reader::kTrain | reader::kEval | reader::kPlan;

std::string_view without_spaces(std::string_view text) {
  while (text.starts_with(' ')) text.remove_prefix(1);
  while (text.ends_with(' ')) text.remove_suffix(1);
  return text;
}

template <typename T>
bool in_range(T value, T most) {
  return value >= 0 && value <= most;  // NaN is not
}

// A list of numbers from 0 to `most`; an empty text is an empty list.
template <typename T>
Key numbers_key(std::string name, std::vector<T> Settings::*member, T most, std::string help) {
  Key key{.name = std::move(name), .type = Type::kList, .help = std::move(help)};
  key.numbers = true;
  key.wanted = str("a list of ", std::is_integral_v<T> ? "integers" : "numbers", " from 0 to ",
                   print_number(most));
  key.store = [=](Settings& settings, std::span<const std::string> values) {
    std::vector<T> numbers;
    for (const std::string& text : values) {
      if (values.size() == 1 && text.empty()) break;
      const std::optional<T> number = parse_number<T>(without_spaces(text));
      if (!number || !in_range(*number, most)) return false;
      numbers.push_back(*number);
    }
    settings.*member = std::move(numbers);
    return true;
  };
  key.load = [=](const Settings& settings) {
    std::vector<std::string> texts;
    for (const T number : settings.*member) texts.push_back(print_number(number));
    return texts;
  };
  return key;
}

Key weights_schedule_key() {
  return schedule_key(
      "mixture_schedule", &S::mixture_schedule,
      "texts of a share of the run (above 0, below 1, ascending) and a weight for every entry of "
      "dataset, such as \"0.9 0.2 0.8\"",
      "Other weights later in the run: a list of texts, each a share of the run and a weight for "
      "every entry of dataset. [0.9 0.2 0.8]: for the last tenth of max_steps the weights are 0.2 "
      "and 0.8. A weight of 0 leaves a source out.",
      [](const std::vector<std::string>& texts) { return scheduled_weights(texts).has_value(); });
}

std::string one_path(const std::string& path) {
  const bool address = path.find("://") != path.npos;
  std::string text = address ? path : std::filesystem::path(path).lexically_normal().string();
  while (text.size() > 1 && text.ends_with('/')) text.pop_back();
  return text;
}

std::string counts_problem(const S& s) {
  const auto differs = [&](const char* key, size_t count) {
    return str(key, ": wanted one number for each of the ", s.dataset.size(),
               " entries of dataset, found ", count,
               "; give as many, or write them as entries of "
               "dataset: {path: …, weight: …, max_epochs: …}");
  };
  if (!s.dataset_weights.empty() && s.dataset_weights.size() != s.dataset.size())
    return differs("dataset_weights", s.dataset_weights.size());
  if (!s.dataset_max_epochs.empty() && s.dataset_max_epochs.size() != s.dataset.size())
    return differs("dataset_max_epochs", s.dataset_max_epochs.size());
  if (s.dataset.size() > kMostSources)
    return str("dataset: wanted at most ", kMostSources, " entries with weights, found ",
               s.dataset.size(), "; put those that belong together into one folder");
  std::vector<std::string> paths;
  for (const std::string& path : s.dataset) {
    if (std::ranges::find(paths, one_path(path)) != paths.end())
      return str("dataset: wanted each entry of a mixture once, found ", path,
                 " twice; keep one, with the sum of their weights");
    paths.push_back(one_path(path));
  }
  return "";
}

// One set of weights, of the run's begin or of a time in it.
std::string weights_problem(const S& s, const std::vector<double>& weights, const std::string& in) {
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  if (sum <= 0) return str(in, ": wanted a weight above 0, found none; give one");
  for (size_t i = 0; i < weights.size(); ++i)
    if (weights[i] > 0 && weights[i] < kSmallestShare * sum)
      return str(in, ": wanted shares of at least a millionth, found weight ",
                 print_number(weights[i]), " of ", print_number(sum), " for ", s.dataset[i],
                 "; raise it, or leave the entry out");
  return "";
}

std::string schedule_problem(const S& s, const std::vector<ScheduledWeights>& schedule) {
  if (schedule.empty()) return "";
  if (s.dataset_weights.empty())
    return "mixture_schedule: wanted the weights that the run begins with, found none; give each "
           "entry of dataset a weight (0: only later)";
  for (const ScheduledWeights& change : schedule) {
    if (change.weights.size() != s.dataset.size())
      return str("mixture_schedule: wanted a share of the run and ", s.dataset.size(),
                 " weights, one for each entry of dataset, found ", change.weights.size(),
                 " weights at ", print_number(change.at));
    if (std::string problem = weights_problem(s, change.weights,
                                              str("mixture_schedule at ", print_number(change.at)));
        !problem.empty())
      return problem;
  }
  return "";
}

}  // namespace

std::vector<Key> mixture_keys() {
  return {
      numbers_key(
          "dataset_weights", &S::dataset_weights, kLargestWeight,
          "A mixture: the share of the samples that each entry of dataset has, in any unit (0.7, "
          "0.3 or 7, 3). In a file the same as the weight of an entry: {path: web, weight: 0.7}. "
          "Each entry is then a source of its own, in its own shuffled order. Empty: all entries "
          "are one data set, or with dataset_max_epochs a mixture by size.")
          .read_by(kReaders),
      numbers_key("dataset_max_epochs", &S::dataset_max_epochs, kMostEpochs,
                  "Of a mixture: how often the samples of each entry of dataset may come; then the "
                  "source leaves and the others share its weight. 0: no bound. In a file the same "
                  "as max_epochs of an entry: {path: web, weight: 0.7, max_epochs: 4}.")
          .read_by(kReaders),
      weights_schedule_key().read_by(kReaders),
  };
}

std::optional<std::vector<ScheduledWeights>> scheduled_weights(
    const std::vector<std::string>& texts) {
  std::vector<ScheduledWeights> schedule;
  for (const std::string& text : texts) {
    std::vector<double> numbers;
    for (const std::string& word : split(text, ' ')) {
      if (word.empty()) continue;
      const std::optional<double> number = parse_number<double>(word);
      if (!number || !in_range(*number, kLargestWeight)) return std::nullopt;
      numbers.push_back(*number);
    }
    if (numbers.size() < 2 || numbers[0] <= 0 || numbers[0] >= 1) return std::nullopt;
    if (!schedule.empty() && numbers[0] <= schedule.back().at) return std::nullopt;
    schedule.push_back({numbers[0], {numbers.begin() + 1, numbers.end()}});
  }
  return schedule;
}

MixtureEntries mixture_entries(const YamlEntry& entry, const std::string& where) {
  MixtureEntries found;
  size_t weights = 0, epochs = 0;
  for (size_t i = 0; i < entry.values.size(); ++i) {
    std::string path = entry.values[i], weight, max_epochs = "0";
    const std::string item = str(where, ": dataset: entry ", i + 1, ": ");
    for (const auto& [name, value] : entry.fields[i]) {
      if (name == "path")
        path = value;
      else if (name == "weight")
        weight = value, ++weights;
      else if (name == "max_epochs")
        max_epochs = value, ++epochs;
      else
        fail(ExitCode::kUsage, "config", item, "wanted the fields path, weight and max_epochs, ",
             "found '", name.substr(0, 80), "'; write {path: FOLDER, weight: 0.7, max_epochs: 4}");
    }
    if (path.empty())
      fail(ExitCode::kUsage, "config", item,
           "wanted a path, found none; write {path: FOLDER, weight: 0.7}");
    const auto number = parse_number<double>(weight);
    if (!weight.empty() && (!number || !in_range(*number, kLargestWeight)))
      fail(ExitCode::kUsage, "config", item, "weight: wanted a number above 0, found '",
           weight.substr(0, 80), "'; write its share of the samples: weight: 0.7");
    const auto most = parse_number<int64_t>(max_epochs);
    if (!most || !in_range(*most, kMostEpochs))
      fail(ExitCode::kUsage, "config", item, "max_epochs: wanted an integer from 0 (no bound) to ",
           kMostEpochs, ", found '", max_epochs.substr(0, 80), "'; write max_epochs: 4");
    found.paths.push_back(path);
    found.weights.push_back(weight);
    found.max_epochs.push_back(max_epochs);
  }
  if (weights > 0 && weights < found.paths.size()) {
    const auto without = std::ranges::find(found.weights, "") - found.weights.begin();
    fail(ExitCode::kUsage, "config", where,
         ": dataset: wanted a weight for every entry or for "
         "none, found none for entry ",
         without + 1, " (", found.paths[static_cast<size_t>(without)],
         "); write {path: ", found.paths[static_cast<size_t>(without)], ", weight: 0.3}");
  }
  if (weights == 0) found.weights.clear();
  // Without weights the mixture is by size, which max_epochs asks for.
  if (epochs == 0) found.max_epochs.clear();
  return found;
}

std::string mixture_problem(const Settings& s) {
  const auto schedule = scheduled_weights(s.mixture_schedule);
  if (!is_mixture(s))
    return s.mixture_schedule.empty()
               ? ""
               : "mixture_schedule: wanted a mixture, found no weights; give each entry of dataset "
                 "a weight";
  if (std::string problem = counts_problem(s); !problem.empty()) return problem;
  if (!s.dataset_weights.empty())
    if (std::string problem = weights_problem(s, s.dataset_weights, "dataset_weights");
        !problem.empty())
      return problem;
  if (std::string problem = schedule_problem(s, *schedule); !problem.empty()) return problem;
  for (size_t i = 0; i < s.dataset_weights.size(); ++i) {
    const bool later = std::ranges::any_of(
        *schedule, [i](const ScheduledWeights& change) { return change.weights[i] > 0; });
    if (s.dataset_weights[i] <= 0 && !later)
      return str("dataset: wanted a weight above 0, found 0 for ", s.dataset[i],
                 ", which would never be trained on; leave the entry out, raise its weight, or "
                 "give it one later (mixture_schedule)");
  }
  return "";
}

std::string mixture_length_problem(const Settings& s) {
  if (!is_mixture(s) || s.max_steps > 0) return "";
  if (s.num_epochs > 0)
    return str("num_epochs ", s.num_epochs,
               ": a mixture has an epoch for each of its sources; "
               "give max_steps, or max_epochs for every entry of dataset");
  const bool all = !s.dataset_max_epochs.empty() &&
                   std::ranges::all_of(s.dataset_max_epochs, [](int64_t most) { return most > 0; });
  if (all && s.mixture_schedule.empty()) return "";
  return s.mixture_schedule.empty()
             ? "a mixture ends after max_steps, or when all its sources are used up; give "
               "max_steps, or max_epochs for every entry of dataset"
             : "mixture_schedule is in shares of max_steps, and none is given; give max_steps";
}

}  // namespace octavo::config
