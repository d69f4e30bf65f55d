#pragma once
// FP8 statistics of every quantized tensor over a run.

#include <map>
#include <string>
#include <vector>

#include "base/json.h"
#include "run_report/buckets.h"

namespace octavo::run_report {

enum class TensorField : uint8_t {
  kSqnr,        // dB
  kUnderflow,   // percent
  kSaturation,  // percent
  kScale,       // log2
  kAmax,        // log2
  kCount
};

struct TensorRow {
  std::string layer, tensor;
  int64_t troubles = 0;  // steps in which it was in trouble
  std::string trouble;   // the last one
  int64_t trouble_step = -1;
};

class TensorHistory {
 public:
  TensorHistory();
  // `tensors`: "fp8/tensors" of a step's record.
  void add(int64_t step, const Json& tensors);
  // Joins steps until rows times columns fit into the page.
  void narrow();

  const std::vector<TensorRow>& rows() const { return rows_; }
  const Buckets& buckets() const { return buckets_; }
  Cell cell(size_t row, TensorField field, size_t bucket) const;
  int64_t last_step() const { return last_step_; }  // with statistics; -1: none
  int64_t left_out() const { return left_out_; }    // values of tensors beyond the most rows

 private:
  size_t row_of(const std::string& layer, const std::string& tensor);

  std::vector<TensorRow> rows_;
  std::map<std::pair<std::string, std::string>, size_t> index_;
  Buckets buckets_;
  int64_t last_step_ = -1, left_out_ = 0;
};

}  // namespace octavo::run_report
