#include "train/state/fp8_persist.h"

#include "base/error.h"
#include "base/json.h"
#include "base/log.h"
#include "train/model_factory.h"
#include "train/reporting/fp8_report.h"

namespace octavo::train {
namespace {

Json to_json(const nn::Fp8GuardMemory& memory) {
  Json troubled = Json::array();
  for (const auto& [layer, count] : memory.troubled)
    troubled.push_back({{"layer", layer}, {"count", count}});
  return {
      {"troubled", troubled}, {"first_judged", memory.first_judged}, {"dropped", memory.dropped}};
}

void resume_guard(nn::Fp8Model& fp8, const Json& kept, const std::string& source) {
  for (const Json& f : json_field(kept, "fallbacks", Json::value_t::array, source))
    fp8.fall_back({json_string(f, "layer", source), json_string(f, "reason", source),
                   json_int(f, "step", source)});
  const Json& guard = json_field(kept, "guard", Json::value_t::object, source);
  nn::Fp8GuardMemory memory;
  for (const Json& t : json_field(guard, "troubled", Json::value_t::array, source))
    memory.troubled.emplace_back(json_string(t, "layer", source), json_int(t, "count", source));
  memory.first_judged = json_int(guard, "first_judged", source);
  memory.dropped = json_field(guard, "dropped", Json::value_t::boolean, source).get<bool>();
  fp8.remember(memory);
}

void resume_scaling(nn::Fp8Model& fp8, const checkpoint::State& state) {
  const auto missing = fp8.load(finder(state, "fp8"));
  if (!missing.empty())
    log_warn(str("resume: no FP8 scaling state for ", missing.size(), " tensors, ", missing.front(),
                 " first; they start anew"));
}

}  // namespace

void save_fp8(const TrainedModel& trained, checkpoint::State& state) {
  if (trained.fp8 == nullptr) return;
  state.recipe = config::name_of(trained.fp8->options().recipe);
  state.extra["fp8"] = {{"format", fp8::format_name(trained.fp8->options())},
                        {"fallbacks", to_json(trained.fp8->fallbacks())},
                        {"guard", to_json(trained.fp8->guard_memory())}};
  auto tensors = trained.fp8->state();
  if (!tensors.empty()) state.groups["fp8"] = std::move(tensors);
}

void resume_fp8(TrainedModel& trained, const checkpoint::State& state, const std::string& source) {
  const auto describe = [](const std::string& recipe, const std::string& format) {
    return str("FP8 ", recipe, " ", format);
  };
  const bool was_fp8 = !state.recipe.empty();
  const Json& kept =
      was_fp8 ? json_field(state.extra, "fp8", Json::value_t::object, source) : state.extra;
  const std::string then =
      was_fp8 ? describe(state.recipe, json_string(kept, "format", source)) : state.precision;
  const std::string now =
      trained.fp8 == nullptr ? trained.precision()
                             : describe(std::string(config::name_of(trained.fp8->options().recipe)),
                                        std::string(fp8::format_name(trained.fp8->options())));
  if (trained.fp8 != nullptr) trained.fp8->start_anew();  // a rollback comes after steps
  if (trained.fp8 != nullptr && then == now) {
    resume_guard(*trained.fp8, kept, source);
    if (state.groups.contains("fp8")) resume_scaling(*trained.fp8, state);
    return;
  }
  if (then == now) return;
  // Factors, and what the guard thought of them, are worth nothing under other rules.
  log_info(str("resume: the checkpoint was trained in ", then, ", training continues in ", now,
               trained.fp8 == nullptr             ? ""
               : trained.fp8->fallbacks().empty() ? "; the FP8 scaling state starts anew"
                                                  : "; the FP8 scaling state starts anew, layers "
                                                    "that left FP8 stay in BF16"));
}

}  // namespace octavo::train
