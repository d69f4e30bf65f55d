#pragma once
// What was found out about the FP8 of a model.

#include <string>
#include <vector>

#include "diagnose/what_if.h"
#include "nn/fp8_model.h"
#include "train/reporting/fp8_report.h"

namespace octavo::diagnose {

struct Advice {
  bool needed = false;  // a layer is sick without it; otherwise it is worth a thought
  std::string what;     // to change
  std::string evidence;
  std::vector<std::string> flags = {};  // the change as train takes it; empty: no flag makes it
};

struct Diagnosis {
  std::string model, weights, data;  // whose numbers
  double parameters = 0;
  int64_t tokens = 0;
  int64_t passes_before = 0;  // from which delayed took its factors
  std::string precision;      // as the step line shows it
  bool was_asked_for = true;  // FP8; otherwise this is what it would be
  fp8::Options in_use;
  std::vector<train::GemmLine> coverage;
  std::vector<nn::Fp8TensorReport> health;  // of what runs in FP8, worst first
  std::vector<LayerStats> layers;           // every linear layer, in FP8 or not
  std::vector<Advice> advice;

  // A layer in FP8 of which a tensor is in trouble.
  std::vector<std::string> sick_layers() const;
};

// Troubled tensors before healthy ones, then by signal to noise.
void sort_worst_first(std::vector<nn::Fp8TensorReport>& reports);

// Mean squared error of the GEMMs over the layers on which the variant is legal, as a root; and
// on how many it is not.
struct VariantSummary {
  double error = 0;
  int64_t layers = 0, refused = 0, troubled = 0;
};
VariantSummary summarize(const std::vector<LayerStats>& layers, const Variant& variant);

// What to change, with the evidence: what is needed first.
std::vector<Advice> advise(const Diagnosis& found);

}  // namespace octavo::diagnose
