#include "sweep/definition.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "config/key.h"
#include "config/key_makers.h"

namespace octavo::sweep {
namespace {

using config::YamlEntry;

constexpr std::string_view kMetrics[] = {"train/loss",        "val/loss",
                                         "train/grad_norm",   "train/penalty",
                                         "goodput",           "perf/step_seconds",
                                         "perf/mfu",          "perf/tokens_per_second",
                                         "data/wait",         "memory/peak_bytes",
                                         "memory/kept_bytes", "fp8/underflow",
                                         "fp8/saturation",    "fp8/sqnr_db",
                                         "fp8/channel_ratio", "fp8/fallbacks",
                                         "fp8/amax",          "eval/hellaswag_acc_norm"};
// As other programs write it.
constexpr std::pair<std::string_view, std::string_view> kOtherNames[] = {
    {"loss", "train/loss"},     {"train_loss", "train/loss"},   {"training_loss", "train/loss"},
    {"val_loss", "val/loss"},   {"eval_loss", "val/loss"},      {"eval/loss", "val/loss"},
    {"valid_loss", "val/loss"}, {"validation_loss", "val/loss"}};

// What W&B has, and this program has no use for.
constexpr std::pair<std::string_view, std::string_view> kIgnored[] = {
    {"program", "every trial is octavo train"},
    {"command", "every trial is octavo train"},
    {"project", "wandb_project of the configuration says it"},
    {"entity", "the sweep is kept in its own file"},
    {"controller", "agents choose trials themselves"},
    {"scheduler", "agents choose trials themselves"},
    {"description", "it is for readers"},
    {"apiVersion", "there is one form of the file"},
    {"kind", "there is one form of the file"},
    {"job", "every trial is octavo train"},
    {"image_uri", "every trial is octavo train"}};

class SweepReader {
 public:
  SweepReader(std::string_view yaml, const std::string& source) : source_(source) {
    sweep_.name = fs::path(source).stem().string();
    for (const YamlEntry& entry :
         config::parse_yaml(yaml, source, {.sections = true, .nulls = true}))
      take(entry);
  }

  Definition finish() {
    for (const std::string& name : order_)
      sweep_.parameters.push_back(parse_parameter(name, fields_.at(name), source_));
    if (sweep_.parameters.empty())
      fail(ExitCode::kUsage, "sweep", source_, ": wanted parameters, found none");
    choose_method();
    if (!metric_given_) note("no metric: val/loss is minimized");
    if (early_given_) choose_bands();
    return std::move(sweep_);
  }

 private:
  void note(const std::string& text) { sweep_.notes.push_back(source_ + ": " + text); }

  // Entries of a list (command) and of a section come one by one: each is said once.
  void ignore(const YamlEntry& entry, std::string_view why) {
    const std::string top = split(entry.name, '.').front();
    const std::string text = str(top, " is not used: ", why);
    if (sweep_.notes.empty() || !sweep_.notes.back().ends_with(text)) note(text);
  }

  void take(const YamlEntry& entry) {
    const std::vector<std::string> parts = split(entry.name, '.');
    if (parts.front() == "parameters") return take_parameter(entry, parts);
    if (parts.front() == "metric") return take_metric(entry);
    if (parts.front() == "early_terminate") return take_early(entry);
    for (const auto& [name, why] : kIgnored)
      if (parts.front() == name) return ignore(entry, why);
    if (entry.name == "name") {
      sweep_.name = single_of(source_, entry);
    } else if (entry.name == "method") {
      take_method(entry);
    } else if (entry.name == "run_cap") {
      sweep_.run_cap = count_of(entry, kMostTrials);
    } else {
      unknown(entry, parts.front(),
              {"method", "metric", "parameters", "early_terminate", "run_cap", "name", "program",
               "command", "project", "entity", "description"});
    }
  }

  [[noreturn]] void unknown(const YamlEntry& entry, const std::string& found,
                            const std::vector<std::string_view>& known) const {
    const std::string nearest = nearest_name(found, known);
    std::string all;
    for (std::string_view name : known) all += (all.empty() ? "" : ", ") + std::string(name);
    refuse_entry(
        source_, entry,
        str("unknown; ", nearest.empty() ? "there are " + all : "did you mean " + nearest + "?"));
  }

  int64_t count_of(const YamlEntry& entry, int64_t most) const {
    const auto count = config::parse_number<int64_t>(single_of(source_, entry));
    if (!count || *count < 1 || *count > most)
      refuse_entry(source_, entry,
                   str("wanted an integer from 1 to ", most, ", found '",
                       entry.values.front().substr(0, 40), "'"));
    return *count;
  }

  void take_method(const YamlEntry& entry) {
    const std::string& text = single_of(source_, entry);
    for (const Method method : {Method::kGrid, Method::kRandom, Method::kBayes})
      if (text == name_of(method)) {
        sweep_.method = method;
        method_given_ = true;
        return;
      }
    refuse_entry(source_, entry, "wanted grid, random or bayes, found '" + text + "'");
  }

  void take_metric(const YamlEntry& entry) {
    metric_given_ = true;
    if (entry.name == "metric.name") {
      take_metric_name(entry, single_of(source_, entry));
    } else if (entry.name == "metric.goal") {
      const std::string& goal = single_of(source_, entry);
      if (goal != "minimize" && goal != "maximize")
        refuse_entry(source_, entry, "wanted minimize or maximize, found '" + goal + "'");
      sweep_.maximize = goal == "maximize";
    } else if (entry.name == "metric.target") {
      sweep_.target = number_of(source_, entry);
    } else if (entry.name.starts_with("metric.impute")) {
      note(entry.name + " is not used: a trial that failed has no value and is left out");
    } else {
      unknown(entry, entry.name.substr(entry.name.find('.') + 1), {"name", "goal", "target"});
    }
  }

  void take_metric_name(const YamlEntry& entry, const std::string& name) {
    for (const auto& [other, ours] : kOtherNames)
      if (name == other) {
        note(str("metric ", name, ": octavo writes it as ", ours));
        sweep_.metric = ours;
        return;
      }
    if (std::ranges::find(kMetrics, name) == std::end(kMetrics))
      unknown(entry, name, {std::begin(kMetrics), std::end(kMetrics)});
    sweep_.metric = name;
  }

  void take_parameter(const YamlEntry& entry, const std::vector<std::string>& parts) {
    if (parts.size() < 3)
      refuse_entry(source_, entry,
                   "wanted a section with value, values or min and max, such as\n"
                   "  parameters:\n    learning_rate:\n      values: [0.001, 0.003]");
    const config::Key* key = config::find_key(parts[1]);
    if (key == nullptr) {
      const std::string nearest = config::nearest_key(parts[1]);
      refuse_entry(source_, entry,
                   str("unknown key '", parts[1].substr(0, 80), "'; ",
                       nearest.empty() ? "see octavo config show for all keys"
                                       : "did you mean " + nearest + "?"));
    }
    if (parts.size() > 3 || parts[2] == "parameters")
      refuse_entry(source_, entry,
                   "nested parameters: octavo's keys are flat; write every key under parameters");
    if ((key->readers & config::reader::kTrain) == 0)
      refuse_entry(source_, entry, "train does not read " + key->name);
    if (std::ranges::find(kGivenKeys, key->name) != std::end(kGivenKeys))
      refuse_entry(source_, entry, "every trial is given its own by the sweep; leave it out");
    const auto [name, is_new] = given_names_.emplace(key->name, parts[1]);
    if (name->second != parts[1])
      refuse_entry(source_, entry, "the same key as " + name->second + "; keep one of them");
    if (is_new) order_.push_back(key->name);
    YamlEntry field = entry;
    field.name = parts[2];
    fields_[key->name].push_back(std::move(field));
  }

  void take_early(const YamlEntry& entry) {
    early_given_ = true;
    const std::string name = entry.name.substr(std::min(entry.name.size(), entry.name.find('.')));
    if (name == ".type") {
      if (single_of(source_, entry) != "hyperband")
        refuse_entry(source_, entry, "wanted hyperband, found '" + entry.values.front() + "'");
    } else if (name == ".min_iter") {
      min_iter_ = count_of(entry, int64_t{1} << 40);
    } else if (name == ".max_iter") {
      max_iter_ = count_of(entry, int64_t{1} << 40);
    } else if (name == ".s") {
      brackets_ = count_of(entry, 100);
    } else if (name == ".eta") {
      sweep_.hyperband.eta = number_of(source_, entry);
      if (!(sweep_.hyperband.eta > 1 && sweep_.hyperband.eta <= 1e6))
        refuse_entry(source_, entry, "wanted more than 1, found " + entry.values.front());
    } else if (name == ".strict") {
      const auto strict = config::parse_bool(single_of(source_, entry));
      if (!strict) refuse_entry(source_, entry, "wanted true or false");
      sweep_.hyperband.strict = *strict;
    } else {
      unknown(entry, name.substr(std::min<size_t>(1, name.size())),
              {"type", "min_iter", "max_iter", "s", "eta", "strict"});
    }
  }

  void choose_method() {
    const bool countable = std::ranges::all_of(sweep_.parameters, is_countable);
    if (!method_given_) {
      sweep_.method = countable ? Method::kGrid : Method::kRandom;
      note(str("no method: ", name_of(sweep_.method), " is used, because the parameters are ",
               countable ? "lists" : "ranges"));
    }
    if (sweep_.method != Method::kGrid) return;
    for (const Parameter& p : sweep_.parameters)
      if (!is_countable(p) || !p.probabilities.empty())
        fail(ExitCode::kUsage, "sweep", source_, ": ", p.name,
             ": method grid wants value, values, int_uniform or q_uniform; use random or bayes, or "
             "list the values");
    trial_count(sweep_);  // not too many
  }

  // As W&B counts them: min_iter, min_iter * eta, …; or max_iter / eta, max_iter / eta², … (s of
  // them).
  void choose_bands() {
    const double eta = sweep_.hyperband.eta;
    std::vector<int64_t>& bands = sweep_.hyperband.bands;
    if (max_iter_ > 0 && brackets_ > 0) {
      double band = static_cast<double>(max_iter_);
      for (int64_t i = 0; i < brackets_ && (band /= eta) >= 1; ++i)
        bands.push_back(static_cast<int64_t>(band));
    } else if (min_iter_ > 0) {
      for (double band = static_cast<double>(min_iter_); band < 1e12 && bands.size() < 100;
           band *= eta)
        bands.push_back(static_cast<int64_t>(band));
    }
    std::ranges::sort(bands);
    bands.erase(std::unique(bands.begin(), bands.end()), bands.end());
    if (bands.empty())
      fail(ExitCode::kUsage, "sweep", source_,
           ": early_terminate: wanted type hyperband with min_iter, or with max_iter and s, such "
           "that a bracket is at iteration 1 or later");
  }

  const std::string& source_;
  Definition sweep_;
  bool method_given_ = false, metric_given_ = false, early_given_ = false;
  int64_t min_iter_ = 0, max_iter_ = 0, brackets_ = 0;
  std::vector<std::string> order_;                        // keys as the file has them
  std::map<std::string, std::string> given_names_;        // by key: the name in the file
  std::map<std::string, std::vector<YamlEntry>> fields_;  // by key
};

}  // namespace

std::string_view name_of(Method method) {
  return method == Method::kGrid ? "grid" : method == Method::kRandom ? "random" : "bayes";
}

std::vector<std::string_view> metric_names() {
  std::vector<std::string_view> names(std::begin(kMetrics), std::end(kMetrics));
  for (const auto& [other, ours] : kOtherNames) names.push_back(other);
  return names;
}

std::vector<std::string_view> ignored_names() {
  std::vector<std::string_view> names;
  for (const auto& [name, why] : kIgnored) names.push_back(name);
  return names;
}

Definition parse_definition(std::string_view yaml, const std::string& source) {
  return SweepReader(yaml, source).finish();
}

int64_t trial_count(const Definition& sweep) {
  if (sweep.method != Method::kGrid) return sweep.run_cap;
  int64_t count = 1;
  for (const Parameter& p : sweep.parameters) {
    count *= static_cast<int64_t>(all_values(p, kMostTrials).size());
    if (count > kMostTrials)
      fail(ExitCode::kUsage, "sweep", sweep.name, ": wanted at most ", kMostTrials,
           " trials in a grid, found more; list fewer values or use method random");
  }
  return sweep.run_cap > 0 ? std::min(count, sweep.run_cap) : count;
}

bool is_better(const Definition& sweep, double a, double b) {
  if (!std::isfinite(a)) return false;
  if (!std::isfinite(b)) return true;
  return sweep.maximize ? a > b : a < b;
}

}  // namespace octavo::sweep
