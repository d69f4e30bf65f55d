#pragma once
// One parameter of a sweep: what values it takes and how they are drawn. Every distribution is a
// function from (0, 1): what draws well there draws well from all of them.

#include <cstddef>
#include <string>
#include <vector>

namespace octavo::sweep {

enum class Kind { kConstant, kCategorical, kInteger, kUniform, kLogUniform, kNormal, kLogNormal };

struct Parameter {
  std::string name;  // of the key, never an alias
  Kind kind = Kind::kConstant;
  std::vector<std::string> values;    // one of a constant, all of a categorical
  std::vector<double> probabilities;  // of the values; empty: all the same
  double low = 0, high = 1;           // integer (both included), uniform and log-uniform
  double mu = 0, sigma = 1;           // normal; of the logarithm: log-normal
  double step = 0;                    // values are multiples of it; 0: any
};

// What u in (0, 1) stands for, as text that a flag takes.
std::string value_at(const Parameter& parameter, double u);
// Which of a categorical's values that is.
size_t index_at(const Parameter& parameter, double u);
// A categorical's u in the middle of the value's share.
double middle_of(const Parameter& parameter, size_t index);

bool varies(const Parameter& parameter);
bool is_countable(const Parameter& parameter);  // can be part of a grid
bool is_logarithmic(const Parameter& parameter);
// Every value of a countable parameter, at most `most` of them; an Error when there are more.
std::vector<std::string> all_values(const Parameter& parameter, size_t most);

}  // namespace octavo::sweep
