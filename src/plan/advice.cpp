#include "plan/advice.h"

#include <cstdio>

#include "base/error.h"
#include "config/rules.h"
#include "plan/shape.h"

namespace octavo::plan {
namespace {

using config::Settings;
using config::ShardingMode;
using config::StateType;
using MemoryOf = std::function<Memory(const Settings&)>;

std::string gigabytes(double bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f GB", bytes / kGiga);
  return text;
}

// Changes that save memory, the cheapest in time and quality first; each says whether it was one.
struct Change {
  const char* what;
  bool (*apply)(Settings&);
};

bool shard_states(Settings& s) {
  if (s.num_gpus < 2 ||
      (s.sharding_mode != ShardingMode::kNone && s.sharding_mode != ShardingMode::kDdp))
    return false;
  s.sharding_mode = ShardingMode::kZero1;
  return true;
}

bool shard_everything(Settings& s) {
  if (s.num_gpus < 2 || s.sharding_mode == ShardingMode::kFsdpFull) return false;
  s.sharding_mode = ShardingMode::kFsdpFull;
  return true;
}

bool shrink_moments(Settings& s) {
  if (s.moment_dtype != StateType::kFp32 || s.lora_rank > 0) return false;
  s.moment_dtype = StateType::kBf16;
  return true;
}

bool shrink_all_state(Settings& s) {
  if (s.lora_rank > 0 || s.moment_dtype == StateType::kFp8) return false;
  s.master_dtype = s.gradient_dtype = StateType::kBf16;
  s.moment_dtype = StateType::kFp8;
  return true;
}

bool pack_base(Settings& s) {
  if (s.lora_rank == 0 || s.lora_base == config::LoraBase::kFp8) return false;
  s.lora_base = config::LoraBase::kFp8;
  return true;
}

constexpr Change kBeforeBatch[] = {
    {"sharding_mode zero1: optimizer state is shared by the GPUs", shard_states},
    {"gradient_checkpointing: a third more GEMMs",
     [](Settings& s) {
       return s.gradient_checkpointing ? false : (s.gradient_checkpointing = true);
     }},
};
constexpr Change kBehindBatch[] = {
    {"sharding_mode fsdp_full: everything is shared by the GPUs", shard_everything},
    {"moment_dtype bf16", shrink_moments},
    {"master_dtype bf16, moment_dtype fp8, gradient_dtype bf16: 6 bytes a parameter for 18",
     shrink_all_state},
    {"lora_rank 16: adapters instead of all weights",
     [](Settings& s) { return s.lora_rank > 0 ? false : (s.lora_rank = 16) > 0; }},
    {"lora_base fp8: one byte for each frozen weight", pack_base},
};

class Search {
 public:
  Search(const Settings& settings, const MemoryOf& memory_of, double limit)
      : memory_of_(memory_of), limit_(limit), broken_(broken_rules(settings)) {
    advice_.settings = settings;
    // What was searched is settled; a change must not start another search.
    advice_.settings.auto_batch_size = false;
    advice_.settings.target_effective_batch_size = advice_.settings.max_batch_size = 0;
    now_ = memory_of_(advice_.settings);
  }

  void consider(const Change& change) {
    if (has_room(now_, limit_)) return;
    Settings next = advice_.settings;
    if (change.apply(next)) take_if_worth_it(next, change.what);
  }

  // The same samples in a step, in more and smaller micro-batches: the largest of them that fits,
  // or else single samples.
  void consider_smaller_batches() {
    if (has_room(now_, limit_)) return;
    const int64_t samples = advice_.settings.batch_size;
    Settings next = advice_.settings;
    for (int64_t size = samples - 1; size >= 1; --size) {
      if (samples % size != 0) continue;
      next.batch_size = size;
      next.gradient_accumulation_steps =
          advice_.settings.gradient_accumulation_steps * (samples / size);
      if (has_room(memory_of_(next), limit_)) break;
    }
    if (next.batch_size < samples)
      take_if_worth_it(
          next, str("batch_size ", next.batch_size, ", gradient_accumulation_steps ",
                    next.gradient_accumulation_steps, ": the same step in smaller micro-batches"));
  }

  Advice result() && {
    if (now_.total > limit_)
      advice_.lines.push_back("even all of these together do not fit: more GPUs, or larger ones");
    return std::move(advice_);
  }

 private:
  void take_if_worth_it(const Settings& next, const std::string& what) {
    constexpr double kWorthIt = 0.97;  // a change that saves less is none to propose
    const Memory then = memory_of_(next);
    if (then.total > kWorthIt * now_.total || broken_rules(next) > broken_) return;
    advice_.settings = next;
    now_ = then;
    advice_.lines.push_back(str(what, ": ", gigabytes(then.total)));
  }

  const MemoryOf& memory_of_;
  double limit_;
  Memory now_;
  size_t broken_;
  Advice advice_;
};

}  // namespace

size_t broken_rules(Settings s) {
  s.num_gpus = 1;
  return config::contradictions(s, config::reader::kTrain).size();
}

Advice memory_advice(const Settings& settings, const MemoryOf& memory_of, double limit) {
  Search search(settings, memory_of, limit);
  for (const Change& change : kBeforeBatch) search.consider(change);
  search.consider_smaller_batches();
  for (const Change& change : kBehindBatch) search.consider(change);
  return std::move(search).result();
}

}  // namespace octavo::plan
