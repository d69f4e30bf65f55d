#include "train/lora_run.h"

#include <ATen/ATen.h>

#include "base/error.h"
#include "base/log.h"
#include "base/progress.h"
#include "train/reporting/fp8_report.h"
#include "train/state/rank_rows.h"

namespace octavo::train {
namespace {

nn::LoraOptions options_of(const config::Settings& s) {
  return {.rank = s.lora_rank,
          .alpha = s.lora_alpha > 0 ? s.lora_alpha : 2 * static_cast<double>(s.lora_rank),
          .dropout = s.lora_dropout,
          .seed = static_cast<uint64_t>(s.seed),
          .targets = s.lora_target_modules};
}

// Copies stored adapters into the ones that were made.
void load_adapters(const nn::Lora& lora, const checkpoint::State& state,
                   const std::string& source) {
  const at::NoGradGuard no_grad;
  for (const auto& p : lora.params())
    p->master.copy_(
        stored_master(state, "adapter", *p, source + ": adapter",
                      "resume with the lora_rank and lora_target_modules it was made with"));
  if (state.groups.at("adapter").size() != lora.params().size())
    fail(ExitCode::kUsage, "train", source, ": has ", state.groups.at("adapter").size(),
         " adapter matrices, these settings make ", lora.params().size(),
         "; resume with the lora_target_modules it was made with");
  nn::refresh_compute(lora.params());
}

}  // namespace

std::vector<nn::Lora::LayerOf> lora_layers(const models::Model& model) {
  std::vector<nn::Lora::LayerOf> layers;
  for (const auto& layer : model.linears())
    if (!layer->expert) layers.push_back({layer, model.modules_of(*layer)});
  return layers;
}

void start_lora(const config::Settings& s, TrainedModel& trained) {
  if (s.lora_rank == 0) return;
  trained.lora =
      std::make_unique<nn::Lora>(*trained.engine, lora_layers(*trained.model), options_of(s));
  if (trained.model->routing() != nullptr)
    log_info("adapters: experts and routers have none and stay frozen");
  const double base = static_cast<double>(models::parameter_count(*trained.model));
  log_info(octavo::str(
      "adapters: rank ", s.lora_rank, " on ", trained.lora->modules().size(), " modules, ",
      format_count(static_cast<double>(nn::count_of(trained.lora->params()))),
      " parameters trained beside ", format_count(base), " frozen ones (kept in ",
      s.lora_base == config::LoraBase::kFp8 ? "FP8" : trained.plain_precision(), ")"));
}

const nn::ParamList& trained_params(const TrainedModel& trained) {
  return trained.lora != nullptr ? trained.lora->params() : trained.model->params();
}

nn::ParamList all_params(const TrainedModel& trained) {
  nn::ParamList params = trained.model->params();
  if (trained.lora != nullptr)
    params.insert(params.end(), trained.lora->params().begin(), trained.lora->params().end());
  return params;
}

double flops_per_token(const TrainedModel& trained, int64_t length) {
  const double all = trained.model->flops_per_token(length);
  if (trained.lora == nullptr) return all;
  double frozen = static_cast<double>(trained.model->head()->count());
  if (const nn::Routing* routing = trained.model->routing())
    frozen += static_cast<double>(routing->sizes().weights);
  for (const auto& layer : trained.model->linears())
    frozen += layer->share * static_cast<double>(layer->weight->count());
  return all - 2 * frozen + trained.lora->flops_per_token();
}

void save_lora(const TrainedModel& trained, checkpoint::State& state) {
  add_masters(trained.lora->params(), "adapter", state);
  const nn::LoraOptions& o = trained.lora->options();
  state.extra["lora"] = {
      {"rank", o.rank}, {"alpha", o.alpha}, {"dropout", o.dropout}, {"targets", o.targets}};
  save_base(trained.base, state.extra["lora"]);
}

bool is_lora(const checkpoint::State& state) {
  return state.groups.contains("adapter");
}

void resume_lora(TrainedModel& trained, const checkpoint::State& state, const std::string& source) {
  if (!is_lora(state))
    fail(ExitCode::kUsage, "train", source,
         ": wanted adapters (lora_rank is set), found the weights of a whole model; start from it "
         "with --init_from, or leave lora_rank out");
  check_same_base(stored_base(state, source), trained.base, source);
  load_adapters(*trained.lora, state, source);
}

std::unique_ptr<nn::Lora> attach_lora(const engine::Engine& engine, const models::Model& model,
                                      const checkpoint::State& state, const std::string& source) {
  const Json& kept = json_field(state.extra, "lora", Json::value_t::object, source);
  nn::LoraOptions options{
      .rank = json_int(kept, "rank", source),
      .alpha = json_field(kept, "alpha", Json::value_t::number_float, source).get<double>(),
      .dropout = json_field(kept, "dropout", Json::value_t::number_float, source).get<double>()};
  if (options.rank < 1 || options.rank > 1 << 16)
    fail(ExitCode::kDamaged, "train", source, ": wanted a LoRA rank in 1..65536, found ",
         options.rank);
  for (const Json& t : json_field(kept, "targets", Json::value_t::array, source))
    options.targets.push_back(t.get<std::string>());
  auto lora = std::make_unique<nn::Lora>(engine, lora_layers(model), options);
  load_adapters(*lora, state, source);
  return lora;
}

void merge_lora(const engine::Engine& engine, models::Model& model, const checkpoint::State& state,
                const std::string& source) {
  attach_lora(engine, model, state, source)->merge();
}

Json lora_receipt(const TrainedModel& trained, int64_t length) {
  if (trained.lora == nullptr) return nullptr;
  const nn::LoraOptions& o = trained.lora->options();
  const double share = trained.lora->flops_per_token() / flops_per_token(trained, length);
  const double fp8 = fp8_share(gemm_lines(trained, length));
  return {{"rank", o.rank},
          {"alpha", o.alpha},
          {"dropout", o.dropout},
          {"modules", trained.lora->modules().size()},
          {"parameters", nn::count_of(trained.lora->params())},
          {"flops_share", share},
          {"fp8_flops_share", fp8},
          // If GEMMs in FP8 take half the time and nothing else changes.
          {"largest_fp8_gain", 1 / (1 - fp8 / 2)}};
}

}  // namespace octavo::train
