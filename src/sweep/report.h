#pragma once
// What came of a sweep: for a terminal, for programs and as a page.

#include <nlohmann/json.hpp>

#include "sweep/importance.h"

namespace octavo::sweep {

struct Report {
  SweepPlan plan;
  Definition definition;
  int64_t total = 0;
  Counts counts;
  std::vector<Trial> trials;  // the best first, those without a metric last
  std::vector<Importance> importance;
  bool has_best = false;  // the first trial is it
};

Report report_of(Store& store);

std::string status_text(const Report& report);  // counts, the best, what is left
std::string report_text(const Report& report);  // and the table of trials
nlohmann::ordered_json report_json(const Report& report);
std::string report_html(const Report& report);  // one file, which needs no network

// For the files of this module: the cells of one trial, and the names above them.
std::vector<std::string> table_head(const Report& report);
std::vector<std::string> table_row(const Report& report, const Trial& trial);
std::string metric_text(const Trial& trial);  // "–" when there is none

}  // namespace octavo::sweep
