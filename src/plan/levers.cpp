#include "plan/levers.h"

#include <algorithm>

#include "base/error.h"
#include "fp8/recipe_traits.h"
#include "plan/advice.h"

namespace octavo::plan {
namespace {

using config::Settings;
using config::ShardingMode;
using config::StateType;

class LeverSearch {
 public:
  LeverSearch(const Settings& settings, const std::function<Tried(const Settings&)>& try_out)
      : given_(settings),
        try_out_(try_out),
        broken_(broken_rules(settings)),
        now_(try_out(settings).tokens_per_s) {}

  void consider(const Settings& changed, const std::string& what) {
    constexpr double kWorthIt = 1.02;
    if (broken_rules(changed) > broken_) return;
    const Tried then = try_out_(changed);
    if (!then.fits || then.tokens_per_s < kWorthIt * now_) return;
    found_.push_back({what, then.tokens_per_s / now_, then.bytes, changed});
  }

  void no_recompute() {
    if (!given_.gradient_checkpointing) return;
    Settings s = given_;
    s.gradient_checkpointing = false;
    consider(s, "gradient_checkpointing false");
  }

  // The same samples in a step, in fewer and larger micro-batches.
  void larger_batches() {
    for (int64_t times = 2; times <= given_.gradient_accumulation_steps; times *= 2) {
      if (given_.gradient_accumulation_steps % times != 0) break;
      Settings s = given_;
      s.batch_size *= times;
      s.gradient_accumulation_steps /= times;
      consider(s, str("batch_size ", s.batch_size, ", gradient_accumulation_steps ",
                      s.gradient_accumulation_steps));
    }
  }

  void other_sharding() {
    if (given_.num_gpus < 2) return;
    for (const ShardingMode mode : {ShardingMode::kDdp, ShardingMode::kZero1, ShardingMode::kZero2,
                                    ShardingMode::kHybrid, ShardingMode::kFsdpFull}) {
      Settings s = given_;
      s.sharding_mode = mode;
      if (mode != given_.sharding_mode) consider(s, str("sharding_mode ", config::name_of(mode)));
    }
  }

  void fewer_bytes() {
    Settings s = given_;
    s.grad_reduce_dtype = StateType::kBf16;
    if (given_.num_gpus > 1 && given_.grad_reduce_dtype != StateType::kBf16)
      consider(s, "grad_reduce_dtype bf16");
    s = given_;
    s.fp8_all_gather = true;
    if (given_.num_gpus > 1 && !given_.fp8_all_gather) consider(s, "fp8_all_gather true");
  }

  void other_recipe() {
    if (!given_.use_fp8 && given_.mixed_precision != config::Precision::kFp8) return;
    for (const fp8::Recipe recipe : fp8::kRecipes) {
      if (recipe == config::fp8_recipe_of(given_)) continue;
      Settings s = given_;
      s.fp8_recipe = recipe;
      s.fp8_scenario = config::Fp8Scenario::kNone;
      consider(s, str("fp8_recipe ", config::name_of(recipe)));
    }
  }

  std::vector<Lever> result() && {
    std::ranges::stable_sort(found_,
                             [](const Lever& a, const Lever& b) { return a.gain > b.gain; });
    return std::move(found_);
  }

 private:
  const Settings& given_;
  const std::function<Tried(const Settings&)>& try_out_;
  size_t broken_;
  double now_;
  std::vector<Lever> found_;
};

}  // namespace

std::vector<Lever> levers(const Settings& settings,
                          const std::function<Tried(const Settings&)>& try_out) {
  LeverSearch search(settings, try_out);
  search.no_recompute();
  search.larger_batches();
  search.other_sharding();
  search.fewer_bytes();
  search.other_recipe();
  return std::move(search).result();
}

}  // namespace octavo::plan
