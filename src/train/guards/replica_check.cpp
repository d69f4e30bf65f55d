#include "train/guards/replica_check.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/log.h"
#include "base/progress.h"
#include "base/text.h"
#include "train/lora_run.h"
#include "train/state/rank_rows.h"

namespace octavo::train {
namespace {

// Rows that are spread have replicas where other nodes hold the same.
class ReplicatedList {
 public:
  explicit ReplicatedList(bool rows_have_replicas) : rows_have_replicas_(rows_have_replicas) {}
  void add(const std::string& parameter, const std::string& kind, const at::Tensor& values,
           bool own_rows) {
    if (own_rows && !rows_have_replicas_) return;
    list_.push_back({parameter, kind, values, own_rows});
  }
  std::vector<dist::Replicated> take() { return std::move(list_); }

 private:
  bool rows_have_replicas_;
  std::vector<dist::Replicated> list_;
};

void add_weights(const nn::Param& p, bool weights_stay, ReplicatedList& list) {
  if (p.codes.defined()) {
    list.add(p.name, "frozen FP8 codes", p.codes, false);
    list.add(p.name, "frozen FP8 scales", p.scales, false);
  }
  if (p.master.defined())
    list.add(p.name, p.trainable ? "master weights" : "frozen weights", p.master,
             p.spreads_masters);
  const bool is_gathered = p.spreads_masters && weights_stay;  // whole, though its master is not
  const at::Tensor copy = is_gathered ? p.compute : p.master_copy();
  if (copy.defined())
    list.add(p.name, "weights to compute with", copy, p.spreads_masters && !is_gathered);
}

void add_replicated_moments(const optim::Optimizer& optimizer, const nn::ParamList& params,
                            ReplicatedList& list) {
  static const std::map<std::string, const char*> kMomentKinds = {
      {"m", "first moments"},
      {"v", "second moments"},
      {"m_scale", "scales of first moments"},
      {"v_scale", "scales of second moments"}};
  const ParamsByName all = by_name(params);
  for (const auto& [name, values] : optimizer.state()) {
    const std::string parameter = parameter_of(name).first;
    list.add(parameter, kMomentKinds.at(name.substr(0, name.find('.'))), values,
             all.at(parameter)->spreads_masters);
  }
}

std::string without_replica(const config::Settings& settings, const dist::World& world,
                            const std::vector<dist::Replicated>& tensors) {
  const auto shards = dist::shards_of(settings.sharding_mode, world);
  const bool rows_have =
      std::ranges::any_of(tensors, [](const dist::Replicated& t) { return t.own_rows; });
  if (!shards.masters || rows_have) return "";
  return octavo::str(
      "; without a replica, so not compared: the rows that each rank keeps of matrices' master "
      "weights and moments",
      shards.weights ? " and weights" : "", " (sharding_mode ",
      config::name_of(settings.sharding_mode), ")");
}

void announce_checks(const config::Settings& settings, const dist::World& world,
                     const std::vector<dist::Replicated>& tensors) {
  if (!world.is_first()) return;
  double bytes = 0;
  std::vector<std::string> kinds;
  for (const auto& it : tensors) {
    bytes += static_cast<double>(it.values.nbytes());
    if (std::ranges::find(kinds, it.kind) == kinds.end()) kinds.push_back(it.kind);
  }
  log_info(octavo::str("replicas: ", tensors.size(), " tensors, ", format_count(bytes),
                       " bytes on each rank, are compared every ", settings.replica_check_freq,
                       " steps and before checkpoints (", join(kinds, ", "), ")",
                       without_replica(settings, world, tensors),
                       world.size() == 2 ? "; of two, the wrong one cannot be told" : ""));
}

std::string advice(const dist::ReplicaDifference& found) {
  std::vector<std::string> ranks;
  for (const int rank : found.ranks()) ranks.push_back(std::to_string(rank));
  return octavo::str(
      found.has_majority() ? "Take the machine of rank " : "Test the machines of ranks ",
      join(ranks, ", "),
      found.has_majority() ? " out of the run and test its memory and processor" : "",
      ", then continue with --resume latest: every checkpoint was compared before it was written. "
      "When machines differ from the first step on, they are of several kinds or run several "
      "versions; replica_check_freq 0 trains on them all the same");
}

void end_when_different(Guards& guards, int64_t step,
                        const std::vector<dist::Replicated>& tensors) {
  const auto found = guards.replicas->compare(tensors, step);
  if (!found) return;
  Incident incident;
  incident.kind = IncidentKind::kReplicasDiffer;
  incident.step = step;
  incident.what = found->text();
  incident.ranks = found->ranks();
  incident.cause = Cause::kHardware;
  incident.evidence = "ranks that apply the same updates hold different numbers";
  incident.action = "run ended";
  guards.incidents.push_back(std::move(incident));
  fail(ExitCode::kGuard, "train", found->text(), ". ", advice(*found));
}

}  // namespace

std::vector<dist::Replicated> replicated_tensors(const config::Settings& settings,
                                                 dist::World& world, TrainedModel& trained) {
  const auto shards = dist::shards_of(settings.sharding_mode, world);
  const nn::ParamList params = all_params(trained);
  // Weights that an update changed may still be on their way.
  if (shards.masters && !shards.weights)
    for (const auto& p : params) trained.sharding->before_forward(p->unit);
  ReplicatedList list(world.replicas().size() > 1);
  for (const auto& p : params) add_weights(*p, !shards.weights, list);
  add_replicated_moments(*trained.optimizer, params, list);
  if (trained.fp8 != nullptr)
    for (const auto& [name, values] : trained.fp8->replicated_state())
      list.add(name, "FP8 scaling state", values, false);
  return list.take();
}

void start_replica_checks(Run& run) {
  if (run.world.size() == 1) return;
  if (run.settings.replica_check_freq == 0 || !run.trained.has_numbers) {
    if (run.world.is_first())
      log_info(octavo::str("replicas are not compared: ", run.settings.replica_check_freq == 0
                                                              ? "replica_check_freq is 0"
                                                              : "the device is fake"));
    return;
  }
  run.guards.replicas = std::make_unique<dist::Replicas>(run.world, run.trained.device());
  const std::vector<dist::Replicated> tensors =
      replicated_tensors(run.settings, run.world, run.trained);
  announce_checks(run.settings, run.world, tensors);
  end_when_different(run.guards, run.progress.step, tensors);
}

void check_replicas(Run& run, bool saves) {
  if (run.guards.replicas == nullptr) return;
  if (saves || run.progress.step % run.settings.replica_check_freq == 0)
    end_when_different(run.guards, run.progress.step,
                       replicated_tensors(run.settings, run.world, run.trained));
}

Json replicas_receipt(const Guards& guards) {
  return guards.replicas != nullptr ? guards.replicas->receipt() : Json();
}

}  // namespace octavo::train
