#include "train/step_graph.h"

#include "base/error.h"
#include "base/first_line.h"
#include "base/log.h"
#include "engine/allocator.h"
#include "engine/range.h"
#include "engine/torch_version.h"
#include "nn/fp8_layer.h"
#include "train/lora_run.h"
#include "train/trained_model.h"

namespace octavo::train {
namespace {

// Before that, libraries are loaded, workspaces made and kernels chosen.
constexpr int64_t kWarmUpSteps = 3;

// Why no step of this run can be a graph; "" when it can.
std::string refusal_of(const TrainedModel& trained, const config::Settings& settings, int ranks,
                       const data::TokenData& data) {
  const config::ShardingMode mode = settings.sharding_mode;
  const bool whole = mode == config::ShardingMode::kNone || mode == config::ShardingMode::kDdp;
  if (ranks > 1 && !whole)
    return "sharding_mode has collectives in every pass, and those are not captured; with ddp "
           "they are in the last pass of a step alone";
  if (data.sample_length() > 0 || settings.document_mask)
    return "documents begin elsewhere in every batch, and a graph has such numbers built in";
  if (trained.lora != nullptr && trained.lora->options().dropout > 0)
    return "the inputs that lora_dropout drops are drawn on the host";
  if (trained.fp8_decision && trained.fp8_decision->runs == fp8::Runs::kNative &&
      fp8::is_stochastic(trained.fp8_decision->options, fp8::Role::kGradient))
    return "what stochastic rounding draws by is a number of the host; fp4_stochastic_rounding "
           "false has none";
  if (trained.model->routing() != nullptr)
    return "how many rows each expert has is data, which the host waits for";
  for (const auto& layer : trained.model->linears())
    if (layer->weight->codes.defined())
      return "frozen weights in FP8 (lora_base) are decoded on the host";
  return "";
}

// What a capture changes on the host although nothing ran yet.
struct HostState {
  explicit HostState(const TrainedModel& trained) {
    for (const auto& p : trained_params(trained)) {
      gradients.push_back(p->grad);
      fresh.push_back(p->grad_fresh);
    }
    for (const auto& layer : trained.model->linears()) gemm_counts.push_back(layer->gemm_counts);
  }
  void restore_gradients(const TrainedModel& trained) const {
    for (size_t i = 0; i < gradients.size(); ++i) {
      trained_params(trained)[i]->grad = gradients[i];
      trained_params(trained)[i]->grad_fresh = fresh[i];
    }
  }
  // Returns what was counted since.
  std::vector<std::array<nn::Linear::GemmCounts, 3>> restore_counts(
      const TrainedModel& trained) const {
    auto counted = gemm_counts;
    for (size_t i = 0; i < gemm_counts.size(); ++i) {
      auto& now = trained.model->linears()[i]->gemm_counts;
      for (size_t k = 0; k < now.size(); ++k)
        counted[i][k] = {now[k].fp8 - gemm_counts[i][k].fp8,
                         now[k].other - gemm_counts[i][k].other};
      now = gemm_counts[i];
    }
    return counted;
  }
  std::vector<at::Tensor> gradients;
  std::vector<bool> fresh;
  std::vector<std::array<nn::Linear::GemmCounts, 3>> gemm_counts;
};

// A layer may put its gradient into another tensor than before. Graphs that add to gradients want
// them at one place: where they were before, or, after the first micro-batch, in FP32 tensors of
// their own, as sums over micro-batches are.
void settle_gradients(const nn::ParamList& params, const std::vector<at::Tensor>& before,
                      bool where_they_were) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> from, to;
  for (size_t i = 0; i < params.size(); ++i) {
    at::Tensor& now = params[i]->grad;
    if (!before[i].defined() || now.is_same(before[i])) continue;
    from.push_back(now);
    now = where_they_were ? before[i] : at::empty(now.sizes(), now.options().dtype(at::kFloat));
    to.push_back(now);
  }
  if (!from.empty()) engine::libtorch::foreach_copy(to, from);
}

}  // namespace

StepGraph::StepGraph(const TrainedModel& trained, const config::Settings& settings, int ranks,
                     const data::TokenData& data)
    : last_is_captured_(ranks == 1), warm_up_(kWarmUpSteps) {
  if (!trained.device().is_cuda())
    fail(ExitCode::kUsage, "train", "cuda_graph: wanted a GPU, found ", trained.device().str(),
         ", which has no CUDA graphs; leave cuda_graph out");
  if (const std::string reason = refusal_of(trained, settings, ranks, data); !reason.empty())
    refuse(reason);
  else if (!last_is_captured_)
    log_info("cuda_graph: the last pass of a step runs eagerly: its collectives are not captured");
}

void StepGraph::refuse(const std::string& reason) {
  refused_ = reason;
  log_warn("cuda_graph: every step runs eagerly: " + reason);
}

void StepGraph::log_once(bool& said, const std::string& what) {
  if (!said) log_info("cuda_graph: " + what);
  said = true;
}

void StepGraph::forget() {
  if (first_.graph == nullptr) return;
  later_ = {};
  first_ = {};
  gradients_.clear();
  frozen_.clear();
  input_ = {};
  warm_up_ = 1;
}

void StepGraph::begin_step(const TrainedModel& trained, double share, bool accumulates) {
  const size_t fallbacks = trained.fp8 != nullptr ? trained.fp8->fallbacks().size() : 0;
  if (fallbacks != fallbacks_ && first_.graph != nullptr) {
    log_info("cuda_graph: captured again after a step, since a layer has left FP8");
    forget();
  }
  fallbacks_ = fallbacks;
  const bool captured = first_.graph != nullptr, same = !captured || share == share_;
  const bool measuring = trained.fp8 != nullptr && trained.fp8->measuring();
  if (measuring) log_once(said_measuring_, "steps that take FP8 statistics run eagerly");
  if (!same) log_once(said_share_, "steps with fewer loss tokens than others run eagerly");
  const bool capturable = accumulates || last_is_captured_;
  if (!capturable && refused_.empty())
    log_once(said_only_pass_,
             "steps of one pass run eagerly: it has the ranks' collectives; with "
             "gradient_accumulation_steps above 1 the passes before the last are graphs");
  replays_ = refused_.empty() && warm_up_ == 0 && same && !measuring && capturable;
  if (warm_up_ > 0 && !measuring) --warm_up_;
  ++(replays_ ? replayed_ : eager_);
  if (!captured) share_ = share;
}

bool StepGraph::capture(TrainedModel& trained, bool accumulates, Captured& into, const Pass& pass) {
  const bool is_first = &into == &first_;
  if (is_first) {
    // The graph's memory is its own; what eager steps have left is of no use to it.
    engine::trim_memory(trained.device());
    for (const auto& layer : trained.model->linears())
      if (layer->fp8 != nullptr && !layer->weight->trainable)
        frozen_.push_back(layer->fp8->kept_weight());
  }
  const HostState before(trained);
  const auto work = [&] {
    into.result = pass(input_);
    if (accumulates) settle_gradients(trained_params(trained), before.gradients, !is_first);
  };
  std::string problem;
  try {
    into.graph = engine::make_graph(trained.device());
    into.graph->capture(work, is_first ? nullptr : first_.graph.get());
  } catch (const c10::Error& error) {
    problem = error.what_without_backtrace();
  } catch (const Error& error) {
    problem = error.what();
  }
  into.gemm_counts = before.restore_counts(trained);
  if (problem.empty()) {
    ++captures_;
    gradients_.clear();
    for (const auto& p : trained_params(trained))
      gradients_.push_back(p->grad_fresh ? at::Tensor() : p->grad);
    return true;
  }
  before.restore_gradients(trained);
  if (trained.fp8 != nullptr) trained.fp8->forget_weights();
  into = {};
  refuse("a pass could not be captured: " + first_line(problem));
  return false;
}

MicroBatch StepGraph::run(TrainedModel& trained, const data::Batch& batch, double share,
                          Place place, const Pass& pass) {
  const nn::ParamList& params = trained_params(trained);
  const bool is_first = params.front()->grad_fresh;
  if (is_first && first_.graph != nullptr && batch.starts != starts_) {
    log_info("cuda_graph: captured again after a step, since sequences have another length");
    forget();
  }
  if (is_first) begin_step(trained, share, place.accumulates);
  if (!replays_ || (place.is_last && !last_is_captured_))
    return pass(models::to_device(batch, trained.device()));
  if (input_.packed.defined()) {
    replace(input_, batch);
  } else {
    input_ = models::to_device(batch, trained.device());
    starts_ = batch.starts;
  }
  Captured& captured = is_first ? first_ : later_;
  if (captured.graph == nullptr && !capture(trained, place.accumulates, captured, pass)) {
    replays_ = false;
    --replayed_;
    ++eager_;
    return pass(input_);
  }
  const engine::Range range("replay");
  captured.graph->replay();
  for (size_t i = 0; i < params.size(); ++i) {
    if (!gradients_[i].defined()) continue;
    params[i]->grad = gradients_[i];
    params[i]->grad_fresh = false;
  }
  for (size_t i = 0; i < captured.gemm_counts.size(); ++i)
    for (size_t k = 0; k < captured.gemm_counts[i].size(); ++k) {
      trained.model->linears()[i]->gemm_counts[k].fp8 += captured.gemm_counts[i][k].fp8;
      trained.model->linears()[i]->gemm_counts[k].other += captured.gemm_counts[i][k].other;
    }
  return captured.result;
}

Json StepGraph::receipt() const {
  return {{"replayed_steps", replayed_},
          {"eager_steps", eager_},
          {"captures", captures_},
          {"refused", refused_}};
}

}  // namespace octavo::train
