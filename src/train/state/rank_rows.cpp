#include "train/state/rank_rows.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <unordered_map>

#include "base/error.h"
#include "kernels/adamw_storage.h"

namespace octavo::train {
namespace {

constexpr const char* kOptimizer = "optimizer";

// A range of the first dimension.
struct Rows {
  int64_t first = 0, count = 0;
};

Rows rows_of(const nn::Param& p) {
  // A rank beyond the last row has none of them.
  return {std::min(p.first_row, p.sizes()[0]), p.master.size(0)};
}

// Of the scales of moments in FP8: a rank's rows begin with a block.
Rows scales_of(const nn::Param& p) {
  const Rows rows = rows_of(p);
  const int64_t columns = p.count() / p.sizes()[0];
  const int64_t first = rows.first * columns;
  OCTAVO_ASSERT(rows.count == 0 || first % adamw::kBlock == 0);
  return {rows.count == 0 ? adamw::block_count(p.count()) : first / adamw::kBlock,
          adamw::block_count(rows.count * columns)};
}

}  // namespace

std::pair<std::string, bool> parameter_of(const std::string& moment) {
  const size_t dot = moment.find('.');
  return {moment.substr(dot + 1), moment.substr(0, dot).ends_with("_scale")};
}

ParamsByName by_name(const nn::ParamList& params) {
  ParamsByName found;
  for (const auto& p : params) found.emplace(p->name, p);
  return found;
}

void add_masters(const nn::ParamList& params, const char* group, checkpoint::State& state) {
  for (const auto& p : params) {
    state.groups[group].emplace_back(p->name, p->master);
    if (p->spreads_masters) state.slices[group][p->name] = {p->sizes().vec(), rows_of(*p).first};
  }
}

void add_moments(const nn::ParamList& params, const optim::Optimizer& optimizer,
                 checkpoint::State& state) {
  const ParamsByName all = by_name(params);
  state.groups[kOptimizer] = optimizer.state();
  for (const auto& [name, values] : state.groups[kOptimizer]) {
    const auto [param, is_scale] = parameter_of(name);
    const auto found = all.find(param);
    if (found == all.end() || !found->second->spreads_masters) continue;
    const nn::Param& p = *found->second;
    state.slices[kOptimizer][name] =
        is_scale ? checkpoint::Slice{{adamw::block_count(p.count())}, scales_of(p).first}
                 : checkpoint::Slice{p.sizes().vec(), rows_of(p).first};
  }
}

at::Tensor stored_master(const checkpoint::State& state, const char* group, const nn::Param& param,
                         const std::string& who, const std::string& advice) {
  const at::Tensor* outline = nullptr;
  const auto tensors = state.groups.find(group);
  if (tensors != state.groups.end())
    for (const auto& item : tensors->second)
      if (item.first == param.name) outline = &item.second;
  if (outline == nullptr || outline->sizes() != param.sizes())
    fail(ExitCode::kUsage, "train", who, " '", param.name, "': wanted shape ", param.sizes(),
         ", the checkpoint has ", outline != nullptr ? octavo::str(outline->sizes()) : "none", "; ",
         advice);
  if (!param.spreads_masters) return checkpoint::tensor(state, group, param.name);
  const Rows rows = rows_of(param);
  return checkpoint::rows(state, group, param.name, rows.first, rows.count);
}

std::function<at::Tensor(const std::string&)> moment_finder(const checkpoint::State& state,
                                                            const nn::ParamList& params) {
  if (!state.groups.contains(kOptimizer))
    fail(ExitCode::kDamaged, "train", "wanted a group '", kOptimizer,
         "' in the checkpoint, found none");
  return [state, all = by_name(params)](const std::string& name) {
    const auto [param, is_scale] = parameter_of(name);
    const auto found = all.find(param);
    if (found == all.end() || !found->second->spreads_masters)
      return checkpoint::tensor(state, kOptimizer, name);
    const Rows rows = is_scale ? scales_of(*found->second) : rows_of(*found->second);
    return checkpoint::rows(state, kOptimizer, name, rows.first, rows.count);
  };
}

}  // namespace octavo::train
