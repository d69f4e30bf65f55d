#pragma once
// How much each parameter has to do with the metric, as far as these trials can tell.

#include "sweep/store.h"

namespace octavo::sweep {

struct Importance {
  std::string parameter;
  // Numbers: Spearman's rank correlation with the metric, from -1 (the metric falls as the
  // parameter rises) to 1. Words: the share of the ranks' spread that lies between the words, as a
  // root (the correlation ratio), from 0 to 1.
  double correlation = 0;
  bool ordered = true;  // numbers
};
std::string correlation_text(const Importance& entry);  // with a sign where it has one

// Of the parameters that vary, strongest first. Trials that finished or were stopped early count;
// empty when these are fewer than four.
std::vector<Importance> importances(const Definition& definition, const std::vector<Trial>& trials);

// 1 for the smallest; equal values share the mean of their ranks.
std::vector<double> ranks_of(const std::vector<double>& values);

}  // namespace octavo::sweep
