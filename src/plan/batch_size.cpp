#include "plan/batch_size.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "base/error.h"
#include "config/key.h"
#include "fp8/legality.h"

namespace octavo::plan {
namespace {

constexpr int64_t kMostSamples = 65536;     // of a pass: batch_size's own range
constexpr int64_t kMostTokens = 1ll << 31;  // of a pass

// Ascending: those that make `samples` (0: any) in whole passes, and that the recipe takes.
std::vector<int64_t> batch_sizes(const config::Settings& s, int64_t samples, int64_t most) {
  const bool fp8 = s.use_fp8 || s.mixed_precision == config::Precision::kFp8;
  most = std::min({most, kMostSamples, kMostTokens / s.max_seq_length});
  if (samples > 0) most = std::min(most, samples);
  std::vector<int64_t> sizes, unpadded;
  for (int64_t size = 1; size <= most; ++size) {
    if (samples > 0 && samples % size != 0) continue;
    sizes.push_back(size);
    if (fp8 && fp8::padding(config::fp8_recipe_of(s), size * s.max_seq_length) == 0)
      unpadded.push_back(size);
  }
  // Padding costs time: it is for lengths that no size makes a multiple of.
  if (!unpadded.empty()) sizes = std::move(unpadded);
  if (sizes.empty())
    fail(ExitCode::kUsage, "plan", "no micro-batch of at most ", most, " samples of ",
         s.max_seq_length, " tokens makes the ", samples, " samples that a step has on a GPU",
         "; change target_effective_batch_size or max_batch_size");
  return sizes;
}

// The largest of `sizes` (ascending) that fits; nothing when none does. `search_all`: a larger size
// may fit where a smaller one does not.
std::optional<int64_t> largest_that_fits(const std::vector<int64_t>& sizes, bool search_all,
                                         const std::function<bool(int64_t)>& fits) {
  if (search_all) {
    const auto found = std::find_if(sizes.rbegin(), sizes.rend(), fits);
    return found == sizes.rend() ? std::nullopt : std::optional(*found);
  }
  const auto above = std::partition_point(sizes.begin(), sizes.end(), fits);
  return above == sizes.begin() ? std::nullopt : std::optional(*(above - 1));
}

}  // namespace

BatchChoice chosen_batch(const config::Settings& s,
                         const std::function<double(const BatchChoice&)>& bytes, double limit) {
  const int64_t target = s.target_effective_batch_size;
  if (!s.auto_batch_size && target == 0 && s.max_batch_size == 0)
    return {s.batch_size, s.gradient_accumulation_steps, ""};
  const int64_t samples =
      target > 0 ? std::max<int64_t>(1, (target + s.num_gpus / 2) / s.num_gpus) : 0;
  int64_t most = s.auto_batch_size ? kMostSamples : s.batch_size;
  if (s.max_batch_size > 0) most = std::min(most, s.max_batch_size);
  const std::vector<int64_t> sizes = batch_sizes(s, samples, most);
  const auto of_size = [&](int64_t size) {
    return BatchChoice{size, samples > 0 ? samples / size : s.gradient_accumulation_steps, ""};
  };
  if (!s.auto_batch_size) {
    BatchChoice choice = of_size(sizes.back());
    choice.why = target > 0 ? "target_effective_batch_size" : "max_batch_size";
    return choice;
  }
  // With a target fewer passes go with a larger size, and a step of one pass keeps less (gradients
  // in BF16, codes of recipes that are not symmetric). Else memory grows with the size.
  const std::optional<int64_t> fitting = largest_that_fits(
      sizes, samples > 0, [&](int64_t size) { return bytes(of_size(size)) <= limit; });
  BatchChoice choice = of_size(fitting.value_or(sizes.front()));
  const bool bounded = fitting == sizes.back() && (s.max_batch_size > 0 || target > 0);
  choice.why = !fitting  ? "auto_batch_size: not even this fits"
               : bounded ? "auto_batch_size: as large as it may be"
                         : "auto_batch_size: the largest that fits";
  return choice;
}

}  // namespace octavo::plan
