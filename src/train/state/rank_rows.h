#pragma once
// What this rank has of a checkpoint's tensors: the rows of its masters and moments, to a
// checkpoint and back. Whole tensors where nothing is spread.

#include <functional>
#include <string>
#include <unordered_map>
#include <utility>

#include "checkpoint/checkpoint.h"
#include "nn/param.h"
#include "optim/optimizer.h"

namespace octavo::train {

using ParamsByName = std::unordered_map<std::string, nn::ParamPtr>;
ParamsByName by_name(const nn::ParamList& params);
// "m_scale.h.0.weight" -> "h.0.weight", and whether it is a scale.
std::pair<std::string, bool> parameter_of(const std::string& moment);

// Masters, and the optimizer's moments of these parameters.
void add_masters(const nn::ParamList& params, const char* group, checkpoint::State& state);
void add_moments(const nn::ParamList& params, const optim::Optimizer& optimizer,
                 checkpoint::State& state);

// The stored rows of a master; fails when there are none or the shape is another.
// `who` and `advice` go into the message: "weight", "resume with …".
at::Tensor stored_master(const checkpoint::State& state, const char* group, const nn::Param& param,
                         const std::string& who, const std::string& advice);

// For AdamW::load().
std::function<at::Tensor(const std::string&)> moment_finder(const checkpoint::State& state,
                                                            const nn::ParamList& params);

}  // namespace octavo::train
