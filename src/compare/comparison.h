#pragma once
// Pairs of runs, judged together: one interval and one verdict for each bound, and one for all.

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "compare/pair_results.h"
#include "compare/verdict.h"

namespace octavo::compare {

struct Bounds {
  double train_gap = 0.5, validation_gap = 0.5;  // percent
  double hellaswag_drop = 1;                     // points
  double speedup = 0;                            // 0: none on a CPU, 1 on a GPU
  double tail_share = 0.25;
  double memory_gap = 0;  // percent; 0: judged on a GPU, for the reader alone
};

// One line of the table.
struct Judgement {
  std::string name;       // "training loss"
  std::string a, b, gap;  // as a reader wants them; "" when there is none
  std::string bound;      // "at most +2%"; "" when nothing was asked
  std::optional<Interval> interval;
  Verdict verdict = Verdict::kNotAsked;
  std::string why;     // what the interval is over, or what is missing
  bool counts = true;  // in the verdict on the runs
  // Pairs that a verdict takes, as far as is known; 0: none is open, or no number would do.
  int64_t seeds_wanted = 0;
};

struct Comparison {
  std::string label_a, label_b;
  std::vector<Pair> pairs;  // one for each seed
  std::vector<Judgement> judgements;
  std::vector<std::string> remarks;
  Verdict verdict = Verdict::kNotEnoughData;
  bool on_cpu = false;
};

Comparison judge(std::vector<Pair> pairs, const Bounds& bounds);

// How long runs must be for their last part to have the steps that a verdict needs.
int64_t steps_for_verdict(const Bounds& bounds);

std::string text_of(const Comparison& comparison);
nlohmann::ordered_json json_of(const Comparison& comparison, const Bounds& bounds);
std::string page_of(const Comparison& comparison, const Bounds& bounds);  // HTML

// "-0.12% [-0.30, +0.05]"
std::string percent_text(const Interval& interval, bool open = false);

}  // namespace octavo::compare
