#include "plan/forecast.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "plan/batch_size.h"
#include "plan/fp8_layers.h"
#include "plan/reasons.h"

namespace octavo::plan {
namespace {

using config::Settings;
using config::ShardingMode;
using config::StateType;

Sharding sharding_of(const Settings& s) {
  switch (s.sharding_mode) {
    case ShardingMode::kNone:
      return s.num_gpus > 1 ? Sharding::kDdp : Sharding::kNone;
    case ShardingMode::kDdp:
      return Sharding::kDdp;
    case ShardingMode::kZero1:
      return Sharding::kZero1;
    case ShardingMode::kZero2:
      return Sharding::kZero2;
    case ShardingMode::kFsdpFull:
    case ShardingMode::kHybrid:
      break;
  }
  return Sharding::kFull;
}

// GPUs that share one copy; 0: all.
int64_t shard_group(const Settings& s, const Gpu& gpu) {
  const bool hybrid = s.sharding_mode == ShardingMode::kHybrid;
  return hybrid ? std::min<int64_t>(s.num_gpus, gpu.gpus_per_node) : 0;
}

// What the linear layers run in, and which of them.
void run_in(Workload& work, RecipeOrBf16 recipe, const Settings& s) {
  work.recipe = recipe;
  work.fp8_shares = recipe ? fp8_shares(work.shape, s.fp8_skip, *recipe) : std::vector<double>();
}

Workload workload(const Settings& s, const Shape& shape, const Gpu& gpu) {
  Workload work;
  work.shape = shape;
  work.gpu = &gpu;
  work.gpus = s.num_gpus;
  work.batch = s.batch_size;
  work.length = s.max_seq_length;
  work.accumulation = s.gradient_accumulation_steps;
  work.sharding = sharding_of(s);
  work.shard_group = shard_group(s, gpu);
  work.gradient_bytes = bytes_of(s.grad_reduce_dtype);
  work.fp8_gather = s.fp8_all_gather;
  work.recompute = s.gradient_checkpointing ? Recompute::kFull : Recompute::kNone;
  // As train::weight_copies has it.
  if (work.sharding == Sharding::kFull && s.num_gpus > 1)
    work.weight_codes = WeightCodes::kGather;
  else if (s.gradient_checkpointing)
    work.weight_codes = WeightCodes::kGemm;
  work.sums_at_end = work.is_own = true;
  work.lora_rank = s.lora_rank;
  work.lora_targets = lora_targets(s);
  // Master and moments are read and written, the gradient is read, the BF16 copy written.
  const double copy = s.master_dtype == StateType::kFp32 ? 2 : 0;
  work.optimizer_bytes = 2 * bytes_of(s.master_dtype) + 4 * bytes_of(s.moment_dtype) +
                         bytes_of(s.gradient_dtype) + copy;
  return work;
}

std::string capability_text(int capability) {
  return str("compute capability ", capability / 10, ".", capability % 10);
}

// Which GPUs have the recipe: "native from compute capability 9.0 on".
std::string where_native(const fp8::ComputeCapabilities& native) {
  if (native.first == native.last)
    return str("native on ", capability_text(native.first), " alone");
  if (native.last == fp8::ComputeCapabilities::kNewest)
    return str("native from ", capability_text(native.first), " on");
  if (native.first < 100 && native.last >= 100)
    return str("for ", capability_text(native.first), " to ", native.last / 10, ".x");
  return str("for compute capability ", native.first / 10);
}

// What runs where a GPU has not the recipe, as fp8::decide has it.
RecipeOrBf16 recipe_that_runs(const Gpu& gpu, RecipeOrBf16 recipe) {
  if (!recipe || is_native(gpu, recipe)) return recipe;
  const RecipeOrBf16 fallback = fp8::traits_of(*recipe).fallback;
  return is_native(gpu, fallback) ? fallback : kBf16;
}

std::string refusal_of(const Gpu& gpu, RecipeOrBf16 recipe) {
  if (!recipe || is_native(gpu, recipe)) return "";
  if (gpu.fp8_tflops == 0) return str(gpu.title, " has no FP8 units: BF16 would run");
  const std::string where =
      str(name_of(recipe), " is ", where_native(fp8::traits_of(*recipe).native));
  const RecipeOrBf16 runs = recipe_that_runs(gpu, recipe);
  return runs ? str(where, ": ", gpu.title, " falls back to ", name_of(runs)) : where;
}

// The recipe whose codes are kept and sent. A CPU rehearses what was asked for.
RecipeOrBf16 recipe_of_codes(const Forecast& f) {
  const RecipeOrBf16 runs = recipe_that_runs(*f.gpu, f.wanted);
  return runs && !f.cpu ? runs : f.wanted;
}

// In which weights travel: BF16 where a GPU has no FP8 units.
RecipeOrBf16 codes_sent(const Forecast& f) {
  return f.cpu ? f.wanted : recipe_that_runs(*f.gpu, f.wanted);
}

// What the costs are of: token_budget, the steps that another program's file asks for, or a
// billion.
double tokens_to_train(const Settings& s, const Forecast& f) {
  if (s.token_budget > 0) return static_cast<double>(s.token_budget);
  if (f.cost_steps == 0) return kGiga;
  return static_cast<double>(f.cost_steps) * static_cast<double>(f.gpus) *
         static_cast<double>(f.batch) * static_cast<double>(f.accumulation) *
         static_cast<double>(f.length);
}

Costs costs_of(const Settings& s, const Forecast& f, const StepTime& time, double goodput) {
  Costs costs;
  costs.tokens = tokens_to_train(s, f);
  const double gpus = static_cast<double>(s.num_gpus);
  costs.hours = costs.tokens / (time.tokens_per_s * gpus * goodput) / 3600;
  costs.gpu_hours = costs.hours * gpus;
  costs.money = costs.gpu_hours * s.gpu_price;
  return costs;
}

MemoryWork work_on_gpus(const Settings& s, const Forecast& f) {
  MemoryWork work = memory_work(s, f.shape);
  work.gpus = s.num_gpus;
  work.shard_group = shard_group(s, *f.gpu);
  work.sharding = sharding_of(s);
  if (const RecipeOrBf16 coded = recipe_of_codes(f)) {
    work.recipe = *coded;
    work.fp8_shares = fp8_shares(f.shape, s.fp8_skip, *coded);
  }
  work.fp8 = f.wants_fp8;
  work.capability = f.gpu->capability;
  return work;
}

// As the user's machine was found to need it: what the formulas do not see is kept as a part.
Memory measured_memory(const MemoryWork& work, const Forecast& f) {
  Memory m = memory(work);
  const double more = (f.measured.memory - 1) * m.total;
  m.fragmentation += more;
  m.total += more;
  return m;
}

// Train searches the batch by passes that it measures; here the forecast says what fits.
void settle_batch(Settings& s, Forecast& f) {
  MemoryWork work = work_on_gpus(s, f);
  f.cpu = work.cpu;
  f.memory_limit = usable_bytes(*f.gpu);
  if (f.cpu && s.auto_batch_size) {
    f.batch_note = "auto_batch_size: of a CPU only train can say what fits";
    s.auto_batch_size = false;
  } else {
    const BatchChoice choice = chosen_batch(
        s,
        [&](const BatchChoice& tried) {
          work.batch = tried.batch, work.accumulation = tried.accumulation;
          return measured_memory(work, f).total;
        },
        f.memory_limit);
    s.batch_size = choice.batch;
    s.gradient_accumulation_steps = choice.accumulation;
    f.batch_note = choice.why;
  }
  f.batch = s.batch_size;
  f.accumulation = s.gradient_accumulation_steps;
}

void forecast_memory(const Settings& s, Forecast& f) {
  MemoryWork work = work_on_gpus(s, f);
  work.fp8 = true;
  f.fp8_memory = measured_memory(work, f);
  work.fp8 = false;
  f.bf16_memory = measured_memory(work, f);
  if (f.cpu || f.fits()) return;
  f.advice = memory_advice(
      s, [&](const Settings& changed) { return measured_memory(work_on_gpus(changed, f), f); },
      f.memory_limit);
}

StepTime measured_time(const Workload& work, const Calibration& calibration,
                       const Measured& measured) {
  StepTime time = step_time(work, calibration);
  for (double* part : {&time.gemms, &time.adapters, &time.head, &time.attention, &time.elementwise,
                       &time.quantize, &time.optimizer, &time.collectives, &time.host, &time.total})
    *part *= measured.step;
  time.tokens_per_s /= measured.step;
  return time;
}

// What single changes would make of the run; of another program's file nothing, whose switches are
// not ours.
std::vector<Lever> levers_of(const Settings& s, const Forecast& f, const Calibration& calibration) {
  if (!f.program.empty() || f.cpu || !f.fits()) return {};
  return levers(s, [&](const Settings& changed) {
    Workload work = workload(changed, f.shape, *f.gpu);
    if (f.wants_fp8)
      run_in(work, recipe_that_runs(*f.gpu, config::fp8_recipe_of(changed)), changed);
    Forecast with = f;
    with.wanted = f.wants_fp8 ? RecipeOrBf16(config::fp8_recipe_of(changed)) : kBf16;
    const Memory memory = measured_memory(work_on_gpus(changed, with), with);
    return Tried{measured_time(work, calibration, f.measured).tokens_per_s, memory.total,
                 has_room(memory, f.memory_limit)};
  });
}

std::vector<std::string> reasons_for(Workload work, RecipeOrBf16 wanted, const Settings& s,
                                     const Calibration& calibration) {
  std::vector<std::string> lines;
  const std::string refusal = refusal_of(*work.gpu, wanted);
  if (!refusal.empty()) lines.push_back(refusal);
  run_in(work, recipe_that_runs(*work.gpu, wanted), s);
  if (work.recipe == kBf16) return lines;
  for (std::string& line : gain_reasons(work, calibration)) lines.push_back(std::move(line));
  return lines;
}

}  // namespace

const RecipeForecast& Forecast::chosen() const {
  for (const RecipeForecast& recipe : recipes)
    if (recipe.recipe == wanted) return recipe;
  return recipes.front();
}

Failures failures(double hours_between, double checkpoint_seconds, double restart_seconds) {
  Failures result;
  result.hours_between = hours_between;
  const double between = hours_between * 3600;
  result.checkpoint_interval =
      std::min(between, std::sqrt(2 * std::max(1.0, checkpoint_seconds) * between));
  const double lost = checkpoint_seconds / result.checkpoint_interval +
                      (result.checkpoint_interval / 2 + restart_seconds) / between;
  result.goodput = 1 / (1 + lost);
  return result;
}

Forecast forecast(const Settings& given, const OtherProgram& other, const Measured& measured) {
  Settings s = given;
  Forecast result;
  result.measured = measured;
  result.shape = other.shape ? *other.shape : shape_of(s);
  result.program = other.name;
  result.stack = other.stack;
  result.gpu = &wanted_gpu(s.gpu);
  result.gpus = s.num_gpus;
  result.length = s.max_seq_length, result.lora_rank = s.lora_rank;
  result.lora_targets = lora_targets(s);
  result.sharding = sharding_of(s);
  result.wants_fp8 = s.use_fp8 || s.mixed_precision == config::Precision::kFp8;
  if (result.wants_fp8) result.wanted = config::fp8_recipe_of(s);

  settle_batch(s, result);
  result.settings = result.advice.settings = s;
  forecast_memory(s, result);
  Workload work = workload(s, result.shape, *result.gpu);
  run_in(work, result.wants_fp8 ? codes_sent(result) : kBf16, s);
  result.traffic = traffic(traffic_work(work, work.recipe));
  work.stack = other.stack;
  if (!other.name.empty()) {  // when others quantize and sum is not known: as the fitted rows
    work.weight_codes = WeightCodes::kStep;
    work.sums_at_end = work.is_own = false;
  }
  if (other.selective_recompute && work.recompute == Recompute::kNone)
    work.recompute = Recompute::kSelective;
  const Calibration calibration = calibrated(Calibration::fitted(), *result.gpu, measured);
  std::vector<RecipeOrBf16> all = {kBf16};
  all.insert(all.end(), std::begin(fp8::kRecipes), std::end(fp8::kRecipes));
  if (result.wants_fp8 && fp8::is_fp4(*result.wanted)) all.push_back(result.wanted);
  for (const RecipeOrBf16 recipe : all) {
    RecipeForecast row;
    row.recipe = recipe;
    row.refusal = refusal_of(*result.gpu, recipe);
    row.runs = recipe_that_runs(*result.gpu, recipe);
    run_in(work, row.runs, s);
    row.time = measured_time(work, calibration, measured);
    if (!result.recipes.empty())
      row.gain = row.time.tokens_per_s / result.recipes.front().time.tokens_per_s;
    result.recipes.push_back(row);
  }
  result.reasons =
      reasons_for(work, result.wants_fp8 ? result.wanted : fp8::kDefaultRecipe, s, calibration);
  result.levers = levers_of(s, result, calibration);
  result.failures = failures(s.gpu_hours_per_failure / static_cast<double>(s.num_gpus),
                             s.checkpoint_seconds, s.restart_seconds);
  result.cost_steps = s.token_budget > 0 ? 0 : other.steps;
  result.bf16_costs = costs_of(s, result, result.recipes.front().time, result.failures.goodput);
  result.wanted_costs = costs_of(s, result, result.chosen().time, result.failures.goodput);
  return result;
}

}  // namespace octavo::plan
