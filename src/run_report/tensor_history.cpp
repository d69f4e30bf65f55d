#include "run_report/tensor_history.h"

#include <algorithm>
#include <cmath>

#include "run_report/json_values.h"

namespace octavo::run_report {
namespace {

constexpr size_t kMostRows = 2000, kMostColumns = 128, kLeastColumns = 8;
constexpr size_t kMostCells = 200 * kMostColumns;  // about 1 MB of the page
constexpr size_t kLongestName = 160, kLongestTrouble = 240;
constexpr auto kFields = static_cast<size_t>(TensorField::kCount);

size_t field_of(size_t row, TensorField field) {
  return row * kFields + static_cast<size_t>(field);
}

// A scale or amax of zero has no place on a logarithmic axis, and counts as lost.
double log2_of(const Json& tensor, const char* name) {
  const auto value = finite_in(tensor, name);
  return value && *value > 0 ? std::log2(*value) : std::nan("");
}

}  // namespace

TensorHistory::TensorHistory() : buckets_(kMostColumns) {}

size_t TensorHistory::row_of(const std::string& layer, const std::string& tensor) {
  const auto known = index_.find({layer, tensor});
  if (known != index_.end()) return known->second;
  if (rows_.size() >= kMostRows) return rows_.size();
  index_[{layer, tensor}] = rows_.size();
  rows_.push_back({layer, tensor, 0, "", -1});
  return rows_.size() - 1;
}

void TensorHistory::add(int64_t step, const Json& tensors) {
  if (!tensors.is_array() || tensors.empty()) return;
  buckets_.begin(step);
  last_step_ = std::max(last_step_, step);
  for (const Json& tensor : tensors) {
    if (!tensor.is_object()) continue;
    const size_t row =
        row_of(text_in(tensor, "layer", kLongestName), text_in(tensor, "tensor", kLongestName));
    if (row >= rows_.size()) {
      ++left_out_;
      continue;
    }
    const auto add = [&](TensorField field, double value) {
      buckets_.add(field_of(row, field), value);
    };
    const auto plain = [&](const char* name) {
      return finite_in(tensor, name).value_or(std::nan(""));
    };
    add(TensorField::kSqnr, plain("sqnr_db"));
    add(TensorField::kUnderflow, plain("underflow_percent"));
    add(TensorField::kSaturation, plain("saturation_percent"));
    add(TensorField::kScale, log2_of(tensor, "scale"));
    add(TensorField::kAmax, log2_of(tensor, "amax"));
    if (std::string trouble = text_in(tensor, "trouble", kLongestTrouble); !trouble.empty()) {
      rows_[row].trouble = std::move(trouble);
      rows_[row].trouble_step = step;
      ++rows_[row].troubles;
    }
  }
}

void TensorHistory::narrow() {
  if (!rows_.empty()) buckets_.narrow(std::max(kLeastColumns, kMostCells / rows_.size()));
}

Cell TensorHistory::cell(size_t row, TensorField field, size_t bucket) const {
  return buckets_.cell(field_of(row, field), bucket);
}

}  // namespace octavo::run_report
