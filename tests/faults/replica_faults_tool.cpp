// usage: replica_faults_tool MODE FLIPS DATA
// A real training of three replicas (or two, MODE two) in which bits are flipped: rank, tensor and
// kind must be named. MODE: ddp | low | zero1 | zero2 | fsdp | hybrid | lora | fp8 | two. The last
// line is JSON.
#include <ATen/ATen.h>
#include <stdlib.h>

#include <cstdio>
#include <iostream>

#include "base/json.h"
#include "base/random.h"
#include "dist/ranks.h"
#include "train/guards/replica_check.h"
#include "train/run.h"
#include "train/step.h"

namespace octavo::train {
namespace {

constexpr int kLateSteps = 3;  // between a flip and the comparison that finds it

config::Settings settings_of(const std::string& mode, const std::string& data) {
  using config::ShardingMode;
  config::Settings s;
  s.model_name = "custom";
  s.n_layer = 2;
  s.n_head = 2;
  s.n_embd = 64;
  s.max_seq_length = 32;
  s.dataset = {data};
  s.batch_size = 1;
  s.max_steps = 100'000;
  s.warmup_steps = 10;
  s.learning_rate = 1e-3;
  s.num_threads = 1;
  if (mode == "zero1") s.sharding_mode = ShardingMode::kZero1;
  if (mode == "zero2") s.sharding_mode = ShardingMode::kZero2;
  if (mode == "fsdp") s.sharding_mode = ShardingMode::kFsdpFull;
  if (mode == "hybrid") s.sharding_mode = ShardingMode::kHybrid;
  if (mode == "low") {
    s.master_dtype = s.gradient_dtype = config::StateType::kBf16;
    s.moment_dtype = config::StateType::kFp8;
  }
  if (mode == "lora") s.lora_rank = 4;
  if (mode == "fp8") s.use_fp8 = true;
  return s;
}

// As a launcher would: hybrid has three nodes of two ranks.
void set_rank_variables(launch::RankInfo rank_info, const std::string& mode) {
  if (mode == "hybrid") {
    rank_info.nodes = 3;
    rank_info.local_ranks = 2;
    rank_info.node = rank_info.rank / 2;
    rank_info.local_rank = rank_info.rank % 2;
  }
  for (const auto& [name, value] : launch::variables_of(rank_info))
    ::setenv(name.c_str(), value.c_str(), 1);
}

void flip(const at::Tensor& values, uint64_t bit) {
  static_cast<uint8_t*>(values.data_ptr())[bit / 8] ^= static_cast<uint8_t>(1U << (bit % 8));
}

struct Flip {
  int rank = 0;
  size_t tensor = 0;  // in the list
  uint64_t random = 0;

  uint64_t bit(const at::Tensor& values) const { return random % (8 * values.nbytes()); }
};

// The same on all ranks: a rank, a kind, a parameter that has it, and one of its bits.
Flip draw(const std::vector<dist::Replicated>& list, int ranks, uint64_t number) {
  const auto random = philox(20261115, stream_of("flips"), number);
  std::vector<std::string> kinds;
  for (const auto& it : list)
    if (std::ranges::find(kinds, it.kind) == kinds.end()) kinds.push_back(it.kind);
  const std::string& kind = kinds[random[0] % kinds.size()];
  std::vector<size_t> candidates;
  for (size_t i = 0; i < list.size(); ++i)
    if (list[i].kind == kind) candidates.push_back(i);
  return {.rank = static_cast<int>(random[1] % static_cast<uint32_t>(ranks)),
          .tensor = candidates[random[2] % candidates.size()],
          .random = mix64(random[3] + (uint64_t{random[0]} << 32))};
}

struct Counts {
  int64_t tried = 0, attributed = 0, clean_checks = 0, false_alarms = 0, late = 0,
          late_attributed = 0, undone = 0, undone_alike = 0;
};

class Faults {
 public:
  Faults(Run& run, std::string mode, int64_t flips)
      : run_(run), mode_(std::move(mode)), flips_(flips) {}

  Counts inject() {
    const auto start = std::chrono::steady_clock::now();
    for (int64_t i = 0; i < flips_; ++i) {
      train_step(run_);
      expect_alike();
      flip_and_find(static_cast<uint64_t>(i));
      expect_alike();
      if (i % 10 == 9) {
        flip_and_find_later(static_cast<uint64_t>(i));
        flip_a_copy(static_cast<uint64_t>(i));
      }
      if (i % 20 == 19) say(i + 1, start);
    }
    return counts_;
  }

 private:
  void say(int64_t done, std::chrono::steady_clock::time_point start) const {
    if (!run_.world.is_first()) return;
    const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start;
    std::printf("%s: %ld of %ld flips, %ld attributed, %.0f s left\n", mode_.c_str(), done, flips_,
                counts_.attributed,
                spent.count() / static_cast<double>(done) * static_cast<double>(flips_ - done));
    std::fflush(stdout);
  }

  std::optional<dist::ReplicaDifference> compare() {
    return run_.guards.replicas->compare(
        replicated_tensors(run_.settings, run_.world, run_.trained), run_.progress.step);
  }

  // Whether all ranks think so.
  bool agreed(bool holds) {
    at::Tensor against = at::full({1}, holds ? 0.0 : 1.0, at::kDouble);
    run_.world.sum(against, "verdicts");
    return against.item<double>() == 0;
  }

  void expect_alike() {
    const auto found = compare();
    ++counts_.clean_checks;
    if (agreed(!found)) return;
    ++counts_.false_alarms;
    if (found) log_error("a false alarm: " + found->text());
  }

  bool names(const std::optional<dist::ReplicaDifference>& found, const dist::Replicated& hit,
             int rank) const {
    if (!found || found->tensors.size() != 1 || found->step != run_.progress.step) return false;
    const auto& named = found->tensors[0];
    const bool two = run_.world.size() == 2;
    const std::vector<int> wanted = two ? std::vector<int>{0, 1} : std::vector<int>{rank};
    return named.parameter == hit.parameter && named.kind == hit.kind &&
           named.odd.has_majority == !two && named.odd.ranks == wanted;
  }

  void flip_and_find(uint64_t number) {
    const auto list = replicated_tensors(run_.settings, run_.world, run_.trained);
    const Flip it = draw(list, run_.world.size(), number);
    const dist::Replicated& hit = list[it.tensor];
    const bool mine = it.rank == run_.world.rank();
    if (mine) flip(hit.values, it.bit(hit.values));
    const auto found = compare();
    if (mine) flip(hit.values, it.bit(hit.values));
    ++counts_.tried;
    if (agreed(names(found, hit, it.rank)))
      ++counts_.attributed;
    else
      log_error(str("flip ", number, " of ", hit.kind, " of ", hit.parameter, " on rank ", it.rank,
                    ": ", found ? found->text() : "not found"));
  }

  // A tensor of this kind, or the list's size.
  static size_t one_of(const std::vector<dist::Replicated>& list, const std::string& kind,
                       uint64_t number) {
    std::vector<size_t> candidates;
    for (size_t i = 0; i < list.size(); ++i)
      if (list[i].kind == kind) candidates.push_back(i);
    return candidates.empty() ? list.size() : candidates[mix64(number) % candidates.size()];
  }

  // A difference of masters stays where it is, however many steps later it is looked for.
  void flip_and_find_later(uint64_t number) {
    auto list = replicated_tensors(run_.settings, run_.world, run_.trained);
    const size_t at = one_of(list, "master weights", number);
    if (at == list.size() || list[at].own_rows) return;
    const dist::Replicated hit = list[at];
    const int rank = static_cast<int>(number / 10 % static_cast<uint64_t>(run_.world.size()));
    const auto size = static_cast<uint64_t>(hit.values.element_size());
    const uint64_t element = mix64(number + 7) % static_cast<uint64_t>(hit.values.numel());
    const uint64_t bit = 8 * size * element + (size == 4 ? 18 : 5);  // of the mantissa
    if (rank == run_.world.rank()) flip(hit.values, bit);
    for (int i = 0; i < kLateSteps; ++i) train_step(run_);
    const auto found = compare();
    bool right = found && found->last_alike == run_.progress.step - kLateSteps;
    bool has_master = false;
    for (const auto& named : right ? found->tensors : decltype(found->tensors){}) {
      has_master = has_master || named.kind == hit.kind;
      right = right && named.parameter == hit.parameter &&
              (run_.world.size() == 2 || named.odd.ranks == std::vector<int>{rank});
    }
    ++counts_.late;
    if (agreed(right && has_master))
      ++counts_.late_attributed;
    else
      log_error(str("late flip of ", hit.parameter, " on rank ", rank, ": ",
                    found ? found->text() : "not found"));
    heal(hit.parameter, (rank + 1) % run_.world.size());
  }

  // A copy that the next update makes anew is alike again after it.
  void flip_a_copy(uint64_t number) {
    auto list = replicated_tensors(run_.settings, run_.world, run_.trained);
    const size_t at = one_of(list, "weights to compute with", number);
    if (at == list.size()) return;
    const auto size = static_cast<uint64_t>(list[at].values.element_size());
    const uint64_t element = mix64(number) % static_cast<uint64_t>(list[at].values.numel());
    if (run_.world.rank() == 1) flip(list[at].values, 8 * size * element + 3);
    train_step(run_);
    ++counts_.undone;
    if (agreed(!compare())) ++counts_.undone_alike;
  }

  // Everything of a parameter as `source` has it.
  void heal(const std::string& parameter, int source) {
    for (const auto& it : replicated_tensors(run_.settings, run_.world, run_.trained)) {
      if (it.parameter != parameter) continue;
      const at::Tensor bytes = it.values.view({-1}).view(at::kByte);
      at::Tensor right = run_.world.rank() == source ? bytes.clone() : at::zeros_like(bytes);
      run_.world.sum(right, "a healed tensor");
      bytes.copy_(right);
    }
  }

  Run& run_;
  std::string mode_;
  int64_t flips_;
  Counts counts_;
};

void run_rank(const launch::RankInfo& rank_info, const std::string& mode, int64_t flips,
              const std::string& data) {
  set_rank_variables(rank_info, mode);
  at::set_num_threads(1);
  const auto run = assemble(settings_of(mode, data));
  start_replica_checks(*run);
  for (int i = 0; i < 3; ++i) train_step(*run);
  const Counts c = Faults(*run, mode, flips).inject();
  run->world.barrier("the end");
  if (!run->world.is_first()) return;
  const Json receipt = replicas_receipt(run->guards);
  const Json line = {{"mode", mode},
                     {"tried", c.tried},
                     {"attributed", c.attributed},
                     {"clean_checks", c.clean_checks},
                     {"false_alarms", c.false_alarms},
                     {"late", c.late},
                     {"late_attributed", c.late_attributed},
                     {"undone", c.undone},
                     {"undone_alike", c.undone_alike},
                     {"tensors", receipt["tensors"]},
                     {"steps", run->progress.step}};
  std::printf("%s\n", line.dump().c_str());
  std::fflush(stdout);
}

int run_tool(const std::string& mode, int64_t flips, const std::string& data) {
  const int count = mode == "two" ? 2 : mode == "hybrid" ? 6 : 3;
  dist::Ranks ranks(count, true, [&](const launch::RankInfo& rank_info) {
    run_rank(rank_info, mode, flips, data);
  });
  int worst = 0;
  for (int rank = 0; rank < count; ++rank) {
    const int code = ranks.end_of(rank, std::chrono::minutes(10));
    if (code != 0) worst = 1;
    if (code != 0 || ranks.said(rank).find("] [error]") != std::string::npos)
      std::cerr << "rank " << rank << " ended with " << code << ":\n" << ranks.said(rank);
  }
  return worst;
}

}  // namespace
}  // namespace octavo::train

int main(int count, char** words) {
  if (count != 4) {
    std::cerr << "usage: replica_faults_tool MODE FLIPS DATA\n";
    return 2;
  }
  return octavo::train::run_tool(words[1], std::stoll(words[2]), words[3]);
}
