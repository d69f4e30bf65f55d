#include "verify/finding.h"

namespace octavo::verify {

std::string_view name_of(Status status) {
  constexpr std::string_view kNames[] = {"ok", "note", "warn", "fail", "not checked"};
  return kNames[static_cast<size_t>(status)];
}

std::string_view name_of(Section section) {
  constexpr std::string_view kNames[] = {"GPU",
                                         "libraries",
                                         "environment variables",
                                         "network",
                                         "machine",
                                         "kernels against the reference",
                                         "training",
                                         "speed",
                                         "Python environment",
                                         "versions that fit together",
                                         "known-bad combinations",
                                         "the run's settings",
                                         "the run's data",
                                         "the run's memory, time and disk",
                                         "the run's safety: resuming, watching, comparing"};
  return kNames[static_cast<size_t>(section)];
}

Count count(const std::vector<Finding>& findings) {
  Count sums;
  for (const Finding& f : findings) {
    int* const counters[] = {&sums.ok, &sums.note, &sums.warn, &sums.fail, &sums.not_checked};
    ++*counters[static_cast<size_t>(f.status)];
  }
  return sums;
}

}  // namespace octavo::verify
