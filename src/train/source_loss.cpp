#include "train/source_loss.h"

#include <ATen/ATen.h>

#include "base/error.h"

namespace octavo::train {

// A table of sources and rows, with zeros where a row is another's, so that a loss that is not
// finite stays with its source. Additions in a fixed order; index_add_ has none on a GPU. No number
// of the host is in it: a CUDA graph can replay it.
at::Tensor sums_by_source(const at::Tensor& each, const models::BatchSources& sources) {
  const at::NoGradGuard no_grad;
  const int64_t rows = sources.of_rows.size(0), count = sources.numbers.size(0);
  const at::Tensor of_rows = each.select(1, 0).view({rows, -1}).sum(1);
  const at::Tensor sums = at::zeros({2 * count}, each.options());
  at::Tensor losses = sums.narrow(0, 0, count);
  const at::Tensor is_of = at::eq(sources.numbers.unsqueeze(1), sources.of_rows.unsqueeze(0));
  at::sum_out(losses, at::where(is_of, of_rows.unsqueeze(0), losses.unsqueeze(1)), 1);
  sums.narrow(0, count, count).copy_(sources.tokens);
  return sums;
}

void report_losses(const std::vector<double>& sums, std::vector<monitor::SourceUse>& sources) {
  if (sums.empty()) return;
  const size_t count = sources.size();
  OCTAVO_ASSERT(sums.size() == 2 * count);
  for (size_t k = 0; k < count; ++k)
    if (sums[count + k] > 0) sources[k].loss = sums[k] / sums[count + k];
}

}  // namespace octavo::train
