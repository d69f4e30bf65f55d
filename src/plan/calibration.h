#pragma once
// The constants that no data sheet gives, fitted by bench/calibrate_plan.py to published
// measurements.

#include <map>
#include <string>
#include <string_view>

namespace octavo::plan {

class Calibration {
 public:
  static const Calibration& fitted();  // the committed table

  double of(std::string_view name) const;  // an error when the table lacks it
  void set(const std::string& name, double value) { values_[name] = value; }
  const std::map<std::string, double, std::less<>>& values() const { return values_; }

 private:
  std::map<std::string, double, std::less<>> values_;
};

}  // namespace octavo::plan
