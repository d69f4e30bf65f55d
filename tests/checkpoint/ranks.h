#pragma once
// A model of several ranks in one process: threads, each with its rows.

#include <ATen/ATen.h>

#include <thread>

#include "checkpoint/saver.h"
#include "checkpoint/test_util.h"

namespace octavo::checkpoint {

using Tensors = std::map<std::string, at::Tensor>;

// The rows of rank r of n, as sharding cuts them.
inline std::pair<int64_t, int64_t> rows_of(int64_t rows, int rank, int ranks) {
  const int64_t chunk = (rows + ranks - 1) / ranks;
  const int64_t first = std::min(rows, rank * chunk);
  return {first, std::min(rows, first + chunk) - first};
}

// Matrices that are sharded, a vector and a number that are not, moments in FP8 with their scales;
// `mark` makes every save another one.
struct WholeModel {
  explicit WholeModel(double mark, int64_t rows = 37) {
    const auto numbers = [&](const std::vector<int64_t>& shape, double plus) {
      const int64_t count = c10::multiply_integers(shape);
      return (at::arange(count, at::kFloat) / 7 + mark + plus).reshape(shape);
    };
    model["a.weight"] = numbers({rows, 128}, 0);
    model["b.weight"] = numbers({5, 16}, 1).to(at::kBFloat16);  // ranks of 8 have no row of it
    model["a.bias"] = numbers({11}, 2);
    optimizer["m.a.weight"] = numbers({rows, 128}, 3).to(at::kByte);
    optimizer["m_scale.a.weight"] = numbers({rows}, 4);  // 128 numbers share one
    optimizer["v.a.bias"] = numbers({11}, 5);
    fp8["scale"] = numbers({}, 6);
  }
  Tensors model, optimizer, fp8;
  std::map<std::string, Tensors> groups() const {
    return {{"model", model}, {"optimizer", optimizer}, {"fp8", fp8}};
  }
  static bool is_sharded(const std::string& name) { return name.ends_with("weight"); }
};

inline State state_of_shard(const WholeModel& whole, int64_t step, double mark, int shard,
                            int shards) {
  State state;
  state.step = step;
  state.extra = {{"mark", mark}};
  for (const auto& [group, tensors] : whole.groups())
    for (const auto& [name, tensor] : tensors) {
      if (!WholeModel::is_sharded(name) || shards == 1) {
        state.groups[group].emplace_back(name, tensor);
        continue;
      }
      const auto [first, count] = rows_of(tensor.size(0), shard, shards);
      state.groups[group].emplace_back(name, tensor.narrow(0, first, count).clone());
      state.slices[group][name] = {tensor.sizes().vec(), first};
    }
  return state;
}

struct RankOutcome {
  fs::path path;
  std::string error;
};

// All ranks save together, each on a thread. `except`: a rank that does not come.
inline std::vector<RankOutcome> save_together(const fs::path& folder, int64_t step, double mark,
                                              int ranks, int shards, const std::string& token,
                                              int except = -1, double timeout = 20,
                                              int64_t rows = 37) {
  const WholeModel whole(mark, rows);
  std::vector<RankOutcome> outcomes(static_cast<size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    if (rank == except) continue;
    threads.emplace_back([&, rank] {
      auto& outcome = outcomes[static_cast<size_t>(rank)];
      try {
        Saver saver(folder, {.part = {rank, ranks, shards, token}, .timeout = timeout});
        outcome.path = saver.save(state_of_shard(whole, step, mark, rank % shards, shards),
                                  {.best = false, .keep = 2});
      } catch (const std::exception& error) {
        outcome.error = error.what();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  return outcomes;
}

// "" when every rank of `ranks` finds its rows, else the first difference.
inline std::string difference(const State& state, int ranks) {
  const double mark = state.extra.at("mark").get<double>();
  const WholeModel whole(mark);
  for (const auto& [group, tensors] : whole.groups())
    for (const auto& [name, wanted] : tensors) {
      if (!same_bits(tensor(state, group, name), wanted)) return "whole " + name;
      if (!WholeModel::is_sharded(name)) continue;
      for (int rank = 0; rank < ranks; ++rank) {
        const auto [first, count] = rows_of(wanted.size(0), rank, ranks);
        if (!same_bits(rows(state, group, name, first, count), wanted.narrow(0, first, count)))
          return name + " of rank " + std::to_string(rank) + " of " + std::to_string(ranks);
      }
    }
  return "";
}

}  // namespace octavo::checkpoint
