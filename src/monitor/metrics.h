#pragma once
// A step record as names and numbers: the same names for every sink.

#include <string>
#include <vector>

#include "monitor/step_record.h"

namespace octavo::monitor {

struct Metric {
  std::string name;
  double value = 0;
};

using Metrics = std::vector<Metric>;

Metrics metrics_of(const StepRecord& record);
Metrics metrics_of(const EvalRecord& record);
Metrics metrics_of(const TaskRecord& record);

// Counts between edges at powers of two (zeros have a place of their own at the left): scales and
// magnitudes spread over octaves. Numbers that are not finite are left out.
struct Histogram {
  std::string name;
  double least = 0, most = 0, sum = 0, sum_of_squares = 0;
  int64_t count = 0;
  std::vector<double> edges;    // one more than counts
  std::vector<int64_t> counts;  // edges[i] <= x < edges[i + 1]; the last has its right edge too
};

// Of numbers that are not negative; empty counts when none is finite.
Histogram histogram_of(std::string name, const std::vector<double>& values);

// Scales of the forward and of the backward pass, and amaxes, of a step that took statistics.
std::vector<Histogram> histograms_of(const StepRecord& record);

}  // namespace octavo::monitor
