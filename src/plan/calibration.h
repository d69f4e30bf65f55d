#pragma once
// The constants that no data sheet gives, fitted by bench/calibrate_plan.py to published
// measurements.

#include <map>
#include <string>
#include <string_view>

namespace octavo::plan {

// Power of a family's GPUs over that of the family whose rates it shares: large GEMMs are bound by
// power. 1 for the others.
double power_of(std::string_view family);

class Calibration {
 public:
  static const Calibration& fitted();  // the committed table

  // A constant, or what follows from others (calibration.cpp); an error when there is neither.
  double of(std::string_view name) const;
  void set(const std::string& name, double value) { values_[name] = value; }
  const std::map<std::string, double, std::less<>>& values() const { return values_; }

 private:
  double of_stack(std::string_view stack, std::string_view what) const;
  double of_family(std::string_view family, std::string_view what) const;

  std::map<std::string, double, std::less<>> values_;
};

}  // namespace octavo::plan
