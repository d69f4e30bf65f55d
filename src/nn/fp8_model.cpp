#include "nn/fp8_model.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <span>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "fp8/legality.h"

namespace octavo::nn {
namespace {

using fp8::Direction;
using fp8::Role;

// A layer is moved to BF16 when this many statistics in a row found it in trouble.
constexpr int64_t kPatience = 2;
// Delayed factors are 1 in the first step and come from one step in the second: not yet a verdict.
constexpr int64_t kNotJudged = 2;
// Delayed scales: a tensor is named when its largest magnitude is so many times what its format
// holds, or when it does not fit for so many steps in a row. Up to 512 / 448 rounding is as usual,
// and a little more in a step or two is what scales of earlier steps are like.
constexpr double kFarTooFull = 4, kTooFull = 512.0 / 448;
constexpr int64_t kTooFullSteps = 10;

std::string tensor_name(const Fp8Layer::Measured& m) {
  return str(name_of(m.role), m.direction == Direction::kColumn ? " (columns)" : "");
}

void check_skip(const std::vector<std::string>& patterns, const LinearList& layers,
                int64_t blocks) {
  std::vector<fp8::LayerName> names;
  for (const auto& layer : layers) names.push_back({layer->name, layer->block});
  const std::string problem = fp8::skip_problem(patterns, names, blocks);
  if (!problem.empty()) fail(ExitCode::kUsage, "nn", problem);
}

// It is done where the tokens are (engine/padded_fp8_linear.h), which the receipt counts.
void say_padding(fp8::Recipe recipe, int64_t tokens) {
  const int64_t missing = fp8::padding(recipe, tokens);
  if (missing > 0)
    log_info(str("fp8: micro-batches of ", tokens, " tokens are padded by ", missing,
                 " rows of zeros to ", tokens + missing, " in FP8 GEMMs: fp8_recipe ",
                 config::name_of(recipe), " wants a multiple of ",
                 fp8::traits_of(recipe).token_multiple,
                 "; the results are the same, and a length that needs none is faster"));
}

}  // namespace

Fp8Model::Fp8Model(const engine::Engine& engine, const LinearList& layers,
                   const Fp8ModelOptions& options)
    : options_(options) {
  shared_.engine = &engine;
  shared_.options = options.fp8;
  shared_.copies = options.copies;
  shared_.scaling = Fp8Scaling(engine, options.fp8);
  shared_.seed = options.seed;
  const int64_t blocks = layers.empty() ? 0 : layers.back()->block + 1;
  const bool by_default = options.skip.empty();
  if (by_default) options_.skip = fp8::default_skip(options.fp8.recipe, blocks);
  check_skip(options_.skip, layers, blocks);
  if (by_default && !options_.skip.empty())
    log_info(str("fp8: blocks that stay in BF16: fp8_skip ", join(options_.skip, ","), " of ",
                 blocks, ", the default of fp8_recipe ", config::name_of(options.fp8.recipe),
                 "; fp8_skip none has all in it"));
  say_padding(options.fp8.recipe, options.tokens);
  for (const auto& layer : layers) {
    Fp8LayerPlan plan{layer, {}};
    const auto w = layer->weight->sizes();
    const std::string pattern = fp8::skipped_by(options_.skip, layer->name, layer->block, blocks);
    if (!pattern.empty())
      plan.reason = str("fp8_skip ", pattern, by_default ? " (default)" : "");
    else
      plan.reason = fp8::refusal(options.fp8.recipe, w[0], w[1]);
    if (plan.reason.empty()) {
      layer->fp8 = std::make_unique<Fp8Layer>(shared_, layer->name);
      shared_.layers.push_back(layer.get());
    }
    plan_.push_back(std::move(plan));
  }
  if (layers_in_fp8() == 0)
    fail(ExitCode::kUsage, "nn", "FP8 was asked for and no layer can run in it (",
         plan_.empty() ? "the model has no linear layers" : plan_.front().reason,
         "); change the sizes, fp8_recipe or fp8_skip, or train in bf16");
  troubled_.assign(plan_.size(), 0);
}

Fp8Model::~Fp8Model() {
  for (const auto& plan : plan_) plan.layer->fp8.reset();  // they refer to what goes now
}

int64_t Fp8Model::layers_in_fp8() const {
  return std::ranges::count_if(plan_, [](const auto& p) { return p.reason.empty(); });
}

void Fp8Model::begin_step(int64_t step) {
  const bool anew = step_ == 0 && fp8::uses_history(options_.fp8.recipe) && !loaded_;
  if (anew) first_judged_ = step + kNotJudged;
  step_ = step;
  passes_ = 0;
  stats_.reset();
  fill_.clear();
  // After a dropped step the guard must know why before the next ones are dropped too.
  const bool due = step % std::max<int64_t>(options_.stats_freq, 1) == 0 || dropped_;
  shared_.measuring = options_.stats_freq > 0 && due;
  dropped_ = false;
  // An evaluation may have quantized the weights already, unmeasured. Under delayed scaling the
  // factors are new, also those of frozen weights, and every step records a magnitude. Weights that
  // the last step changed are let go before the first new one is made, so that every step takes the
  // same memory.
  const bool all = shared_.measuring || fp8::uses_history(shared_.options.recipe);
  for (const auto& plan : plan_)
    if (plan.layer->fp8 != nullptr && (all || plan.layer->weight->trainable))
      plan.layer->fp8->forget_weight();
}

void Fp8Model::forget_weights() {
  for (const auto& plan : plan_)
    if (plan.layer->fp8 != nullptr) {
      plan.layer->fp8->forget_weight();
      plan.layer->fp8->forget_parts();
    }
}

at::Tensor Fp8Model::amaxes() {
  return shared_.scaling.empty() ? at::Tensor() : shared_.scaling.amaxes();
}

at::Tensor Fp8Model::step_magnitudes() {
  return shared_.scaling.empty() ? at::Tensor() : shared_.scaling.step_magnitudes();
}

double Fp8Model::take_magnitudes(const at::Tensor& on_host) {
  Fp8Scaling::Filled filled = shared_.scaling.filled(on_host);
  fill_ = std::move(filled.fill);
  return filled.magnitudes;
}

bool Fp8Model::updates_each_pass() const {
  return options_.fp8.update == fp8::Update::kPass && !shared_.scaling.empty();
}

void Fp8Model::finish_pass() {
  if (updates_each_pass()) shared_.scaling.finish_pass((step_ - 1) * options_.passes + ++passes_);
}

void Fp8Model::forget_magnitudes() {
  shared_.scaling.drop_step();
  passes_ = 0;
}

std::vector<Fp8TensorReport> Fp8Model::finish_step() {
  shared_.scaling.finish_step(updates_each_pass() ? step_ * options_.passes : step_);
  judge_fill();
  return collect();
}

std::vector<Fp8TensorReport> Fp8Model::drop_step() {
  dropped_ = true;
  forget_magnitudes();
  forget_weights();  // the next step records their magnitudes again
  return collect();
}

void Fp8Model::abandon_step() {
  forget_magnitudes();
  shared_.measuring = false;
  stats_.reset();
  for (const auto& plan : plan_)
    if (plan.layer->fp8 != nullptr) plan.layer->fp8->take_measured();
  forget_weights();
}

void Fp8Model::resize_passes(int64_t tokens, int64_t passes) {
  options_.tokens = tokens;
  options_.passes = passes;
  say_padding(options_.fp8.recipe, tokens);
}

void Fp8Model::start_anew() {
  shared_.scaling.start_anew();
  shared_.measuring = false;
  stats_.reset();
  fill_.clear();
  overfull_.clear();
  troubled_.assign(plan_.size(), 0);
  step_ = passes_ = first_judged_ = 0;
  loaded_ = dropped_ = false;
  for (const auto& plan : plan_)
    if (plan.layer->fp8 != nullptr) plan.layer->fp8->take_measured();
  forget_weights();
}

at::Tensor Fp8Model::stats() const {
  std::vector<at::Tensor> all;
  for (const auto& plan : plan_)
    if (plan.layer->fp8 != nullptr)
      for (const auto& m : plan.layer->fp8->measured()) all.push_back(m.stats);
  return all.empty() ? at::Tensor() : at::cat(all);
}

// One report for each tensor of each layer, over the micro-batches.
std::vector<Fp8TensorReport> Fp8Model::read_measured() {
  std::vector<Fp8TensorReport> reports;
  const at::Tensor here = stats();
  if (!here.defined()) return reports;
  if (!stats_.defined() || stats_.numel() != here.numel()) stats_ = here.cpu();
  const at::Tensor on_host = std::exchange(stats_, {}).contiguous();
  const auto* next = on_host.const_data_ptr<double>();
  for (const auto& plan : plan_) {
    if (plan.layer->fp8 == nullptr) continue;
    const size_t first = reports.size();
    for (const auto& m : plan.layer->fp8->take_measured()) {
      const auto found =
          fp8::from_stats(std::span<const double, fp8::kHealthStats>(next, fp8::kHealthStats));
      fp8::Channels channels;
      if (m.stats.numel() == fp8::kHealthStats + fp8::kChannelStats)
        channels = fp8::channels_from(std::span<const double, fp8::kChannelStats>(
            next + fp8::kHealthStats, fp8::kChannelStats));
      next += m.stats.numel();
      const std::string tensor = tensor_name(m);
      const auto known =
          std::find_if(reports.begin() + static_cast<std::ptrdiff_t>(first), reports.end(),
                       [&](const Fp8TensorReport& r) { return r.tensor == tensor; });
      if (known == reports.end()) {
        reports.push_back({plan.layer->name, tensor, m.role, found, {}, channels});
      } else {
        known->health += found;  // another micro-batch
        known->channels.merge(channels);
      }
    }
  }
  return reports;
}

std::vector<Fp8TensorReport> Fp8Model::collect() {
  if (!shared_.measuring) return {};
  shared_.measuring = false;
  const bool early = step_ < first_judged_;
  std::vector<Fp8TensorReport> reports = read_measured();
  if (options_.over_ranks) {
    // A verdict must be the same on all of them: they would part ways otherwise.
    std::vector<fp8::TensorHealth*> all;
    for (auto& r : reports) all.push_back(&r.health);
    options_.over_ranks(all);
  }
  if (!early)
    for (auto& r : reports) r.trouble = fp8::health_problem(r.health);
  if (options_.guard != config::Fp8Guard::kOff && !early) judge(reports);
  return reports;
}

void Fp8Model::judge(const std::vector<Fp8TensorReport>& reports) {
  std::map<std::string_view, std::vector<std::string>> troubles;  // by layer; experts are many
  for (const auto& r : reports)
    if (!r.trouble.empty()) troubles[r.layer].push_back(r.tensor + ": " + r.trouble);
  for (size_t i = 0; i < plan_.size(); ++i) {
    const auto& plan = plan_[i];
    if (!plan.reason.empty()) continue;
    const std::vector<std::string>& found = troubles[plan.layer->name];
    troubled_[i] = found.empty() ? 0 : troubled_[i] + 1;
    if (found.empty()) continue;
    ++warnings_;
    log_warn(str("fp8: step ", step_, ": ", plan.layer->name, ": ", join(found, "; ")));
    if (options_.guard == config::Fp8Guard::kFallback && troubled_[i] >= kPatience)
      fall_back({plan.layer->name, join(found, "; "), step_});
  }
}

// Named once for each time that it begins.
void Fp8Model::judge_fill() {
  const std::vector<double> fill = std::exchange(fill_, {});
  if (fill.empty() || options_.guard == config::Fp8Guard::kOff || step_ < first_judged_) return;
  overfull_.resize(fill.size());
  for (size_t i = 0; i < fill.size(); ++i) {
    const double full = fill[i];
    const Overfull before = overfull_[i],
                   now{full > kTooFull ? before.steps + 1 : 0, full > kFarTooFull};
    overfull_[i] = now;
    if (!(now.far && !before.far) && now.steps != kTooFullSteps) continue;
    ++warnings_;
    log_warn(str("fp8: step ", step_, ": ", shared_.scaling.name(i), ": its largest magnitude is ",
                 std::round(10 * full) / 10, " times what its scale leaves room for",
                 now.steps > 1 ? str(", for ", now.steps, " steps") : "",
                 ": values saturate. Take fp8_margin 1 or more, or fp8_recipe current"));
  }
}

Fp8GuardMemory Fp8Model::guard_memory() const {
  Fp8GuardMemory memory{.troubled = {}, .first_judged = first_judged_, .dropped = dropped_};
  for (size_t i = 0; i < plan_.size(); ++i)
    if (troubled_[i] > 0) memory.troubled.emplace_back(plan_[i].layer->name, troubled_[i]);
  return memory;
}

void Fp8Model::remember(const Fp8GuardMemory& memory) {
  first_judged_ = memory.first_judged;
  dropped_ = memory.dropped;
  for (size_t i = 0; i < plan_.size(); ++i)
    for (const auto& [layer, count] : memory.troubled)
      if (layer == plan_[i].layer->name) troubled_[i] = count;
}

void Fp8Model::fall_back(const Fp8Fallback& fallback) {
  const auto plan =
      std::ranges::find_if(plan_, [&](const auto& p) { return p.layer->name == fallback.layer; });
  if (plan == plan_.end() || !plan->reason.empty()) return;
  plan->layer->fp8.reset();
  plan->reason = str("fp8_guard at step ", fallback.step, ": ", fallback.reason);
  fallbacks_.push_back(fallback);
  log_warn(str("fp8: ", fallback.layer, " continues in BF16 from step ", fallback.step + 1, " (",
               fallback.reason, ")"));
}

}  // namespace octavo::nn
