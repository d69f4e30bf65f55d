#pragma once
// A sweep as its W&B YAML says it: how trials are chosen, what they are judged by, and which keys
// of the configuration they set.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/yaml.h"
#include "sweep/parameter.h"

namespace octavo::sweep {

inline constexpr int64_t kMostTrials = 100'000;

// Keys of which every trial is given its own, by the sweep.
inline constexpr std::string_view kGivenKeys[] = {"run_name",      "runs_dir", "checkpoint_dir",
                                                  "resume",        "trace",    "list_checkpoints",
                                                  "wandb_run_name"};

enum class Method { kGrid, kRandom, kBayes };
std::string_view name_of(Method method);

// Early termination: at each of these iterations (records of the metric) a trial that is not among
// the best 1/eta of those that came so far is stopped.
struct Hyperband {
  std::vector<int64_t> bands;  // rising; empty: no early termination
  double eta = 3;
  bool strict = false;  // judge by the value at the band, not by the best until now
};

struct Definition {
  std::string name;
  Method method = Method::kGrid;
  std::string metric = "val/loss";
  bool maximize = false;
  std::optional<double> target;  // no new trial begins once one has reached it
  std::vector<Parameter> parameters;
  Hyperband hyperband;
  int64_t run_cap = 0;             // 0: none
  std::vector<std::string> notes;  // what was left out or filled in, for the user to read
};

// Everything wrong is an Error (kUsage) with file and line.
Definition parse_definition(std::string_view yaml, const std::string& source);

// Trials in all: the grid's, or run_cap; 0 when nothing bounds them.
int64_t trial_count(const Definition& definition);

// Is `a` better than `b`? Never when it is not a number.
bool is_better(const Definition& definition, double a, double b);

// The words of the file's form, for its schema: metrics, distributions, and what has no use here.
std::vector<std::string_view> metric_names();
std::vector<std::string_view> distribution_names();
std::vector<std::string_view> ignored_names();

// Inside a definition's file, for the files of this module.
[[noreturn]] void refuse_entry(const std::string& source, const config::YamlEntry& entry,
                               const std::string& problem);
double number_of(const std::string& source, const config::YamlEntry& entry);
const std::string& single_of(const std::string& source, const config::YamlEntry& entry);
// The parameter that these entries (named as in W&B: value, values, min, …) describe.
Parameter parse_parameter(const std::string& name, const std::vector<config::YamlEntry>& fields,
                          const std::string& source);

}  // namespace octavo::sweep
