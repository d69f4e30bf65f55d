#pragma once

#include "checkpoint/checkpoint.h"
#include "checkpoint/test_util.h"

namespace octavo::checkpoint {

// Every tensor and `extra` carry `mark`, so that a mixture of two saves shows.
inline State sample_state(int64_t step, double mark, int64_t rows = 4) {
  State state;
  state.step = step;
  state.tokens = static_cast<uint64_t>(step) * 1024;
  state.precision = "FP8";
  state.recipe = "delayed";
  state.has_val_loss = true;
  state.val_loss = mark / 7;
  state.extra = {{"mark", mark}, {"data", {{"position", 1234567890123456789ull}}}};
  at::Tensor weight = at::empty({rows, 16}, at::kBFloat16);
  auto* values = weight.data_ptr<at::BFloat16>();
  for (int64_t i = 0; i < weight.numel(); ++i) values[i] = static_cast<float>(mark);
  at::Tensor moment = at::empty({rows, 16}, at::kFloat);
  auto* moments = moment.data_ptr<float>();
  for (int64_t i = 0; i < moment.numel(); ++i) moments[i] = static_cast<float>(mark);
  state.groups["model"] = {{"wte.weight", weight}, {"h.0.bias", weight[0]}};
  state.groups["optimizer"] = {{"wte.weight.exp_avg", moment}};
  return state;
}

// "" when `state` is what sample_state(step, its own mark) made, else what is not.
inline std::string mixture(const State& state) {
  double mark = state.extra.at("mark").get<double>();
  if (state.val_loss != mark / 7) return "val_loss";
  State wanted = sample_state(state.step, mark, state.groups.at("model")[1].second.size(0));
  for (const auto& group : wanted.groups)
    for (const auto& item : group.second) {
      bool found = false;
      for (const auto& other : state.groups.at(group.first))
        found = found || (other.first == item.first && same_bits(other.second, item.second));
      if (!found) return group.first + "/" + item.first;
    }
  return "";
}

}  // namespace octavo::checkpoint
