#include "config/rules.h"

#include <algorithm>

#include "base/text.h"
#include "config/length_keys.h"
#include "config/mixture_keys.h"

namespace octavo::config {
namespace {

bool one_length(const Settings& s) {
  return s.max_steps == 0 || s.num_epochs == 0;
}

bool warmup_fits(const Settings& s) {
  return s.max_steps == 0 || s.warmup_steps <= s.max_steps;
}

bool heads_divide_width(const Settings& s) {
  return s.n_head == 0 || s.n_embd == 0 || s.n_embd % s.n_head == 0;
}

bool custom_has_sizes(const Settings& s) {
  return s.model_name != "custom" || (s.n_layer > 0 && s.n_head > 0 && s.n_embd > 0);
}

bool evaluation_has_data(const Settings& s) {
  return s.eval_freq == 0 || s.val_fraction > 0 || !s.val_split_name.empty();
}

// The run's folders must stay inside runs_dir and checkpoint_dir, beside the links there.
bool run_name_is_a_name(const Settings& s) {
  for (const char c : s.run_name)
    if (c == '/' || static_cast<unsigned char>(c) < 0x20) return false;
  for (const char* taken : {"latest", "best", "best_model"})
    if (s.run_name == taken) return false;
  return !s.run_name.starts_with('.') && !s.run_name.starts_with("step-") &&
         s.run_name.size() <= 200;
}

bool one_precision(const Settings& s) {
  return !s.use_fp8 || s.mixed_precision != Precision::kFp32;
}

bool low_state_has_low_products(const Settings& s) {
  const bool low = s.master_dtype != StateType::kFp32 || s.gradient_dtype != StateType::kFp32;
  const bool packed = s.lora_rank > 0 && s.lora_base == LoraBase::kFp8;
  return !(low || packed) || s.mixed_precision != Precision::kFp32;
}

bool balance_is_a_weight(const Settings& s) {
  return s.router_aux_loss_coef == -1 || s.router_aux_loss_coef >= 0;
}

bool train_counts_its_ranks(const Settings& s) {
  return s.num_gpus == 1;
}

bool packed_weights_stay(const Settings& s) {
  const bool leave =
      s.sharding_mode == ShardingMode::kFsdpFull || s.sharding_mode == ShardingMode::kHybrid;
  return s.lora_rank == 0 || s.lora_base != LoraBase::kFp8 || !leave;
}

bool graph_has_gpu(const Settings& s) {
  return !s.cuda_graph || s.device != DeviceChoice::kCpu;
}

bool one_recipe(const Settings& s) {
  return s.fp8_recipe == fp8_recipe_of(s) || s.fp8_recipe == Settings{}.fp8_recipe;
}

bool one_backend(const Settings& s) {
  return !s.use_te || s.fp8_backend == Fp8Backend::kAuto || s.fp8_backend == Fp8Backend::kTe;
}

bool native_is_no_rehearsal(const Settings& s) {
  return s.fp8_execution != Fp8Execution::kNative || s.fp8_backend != Fp8Backend::kRehearse;
}

constexpr Rule kRules[] = {
    {"one_length", reader::kTrain,
     "max_steps and num_epochs both say how long to train; give one and leave the other out",
     one_length, "max_steps num_epochs"},
    {"warmup_fits", reader::kTrain | reader::kSchedule,
     "warmup_steps must not exceed max_steps, or learning_rate is never reached; lower it or "
     "give -1",
     warmup_fits, "warmup_steps max_steps"},
    {"train_counts_its_ranks", reader::kTrain,
     "num_gpus is for octavo plan: train has as many ranks as its launcher starts (octavo launch "
     "--nproc 8); leave it out",
     train_counts_its_ranks, "num_gpus"},
    {"packed_weights_stay", reader::kTrain,
     "lora_base fp8 keeps the base model in codes on every rank, and sharding_mode fsdp_full and "
     "hybrid spread it in BF16; take lora_base bf16, or sharding_mode ddp, zero1 or zero2",
     packed_weights_stay, "lora_base sharding_mode"},
    {"heads_divide_width", reader::kTrain,
     "n_head must divide n_embd, because every head is n_embd / n_head wide; change one of them",
     heads_divide_width, "n_embd n_head"},
    {"custom_has_sizes", reader::kTrain,
     "model_name custom takes its size from n_layer, n_head and n_embd; give all three",
     custom_has_sizes, "model_name n_layer n_head n_embd"},
    {"evaluation_has_data", reader::kTrain,
     "eval_freq asks for evaluations and val_fraction 0 leaves nothing to evaluate on; set "
     "eval_freq 0 or keep a "
     "fraction",
     evaluation_has_data, "eval_freq val_fraction val_split_name"},
    {"run_name_is_a_name", reader::kTrain,
     "run_name names a folder inside runs_dir and checkpoint_dir: at most 200 bytes, no '/', no "
     "control characters, not hidden (.x), not latest, best, best_model or step-…, which have a "
     "meaning there",
     run_name_is_a_name, "run_name"},
    {"one_precision", reader::kTrain,
     "use_fp8, mixed_precision and the flags fp8_recipe and fp8_scenario must agree about FP8 "
     "where they stand side by side (all as flags, or all in the file); leave one of them out",
     one_precision, "use_fp8 mixed_precision"},
    {"low_state_has_low_products", reader::kTrain,
     "mixed_precision fp32 computes with FP32 weights and gradients, and master_dtype, "
     "gradient_dtype or lora_base asks for fewer bits; take mixed_precision bf16 or fp8, or leave "
     "them out",
     low_state_has_low_products, "mixed_precision master_dtype gradient_dtype lora_base"},
    {"balance_is_a_weight", reader::kTrain,
     "router_aux_loss_coef is the weight of a loss, of at least 0, or -1 for what the model's "
     "config.json says; give one of them",
     balance_is_a_weight, "router_aux_loss_coef"},
    {"graph_has_gpu", reader::kTrain,
     "cuda_graph launches a GPU's work as a whole, and device cpu has no GPU; leave one of them "
     "out",
     graph_has_gpu, "cuda_graph device"},
    {"one_recipe", reader::kTrain,
     "fp8_scenario mxfp8 is fp8_recipe mxfp8, and fp8_recipe asks for another; leave one of "
     "them out",
     one_recipe, "fp8_scenario fp8_recipe"},
    {"one_backend", reader::kTrain,
     "use_te is fp8_backend te, and fp8_backend asks for another; leave one of them out",
     one_backend, "use_te fp8_backend"},
    {"native_is_no_rehearsal", reader::kTrain,
     "fp8_execution native runs on FP8 matrix units and fp8_backend rehearse on BF16 ones; "
     "leave one of them out",
     native_is_no_rehearsal, "fp8_execution fp8_backend"},
};

// Rules with words of their own for each way to break them.
void add_length_problem(const Settings& settings, Readers readers,
                        const std::set<std::string>& open_keys, std::vector<std::string>& lines) {
  for (const char* key : {"length_schedule", "max_seq_length", "max_steps"})
    if (open_keys.contains(key)) return;
  if (!(readers & reader::kTrain)) return;
  if (std::string problem = length_problem(settings); !problem.empty())
    lines.push_back(std::move(problem));
}

void add_mixture_problems(const Settings& settings, Readers readers,
                          const std::set<std::string>& open_keys, std::vector<std::string>& lines) {
  for (const char* key : {"dataset", "dataset_weights", "dataset_max_epochs", "mixture_schedule"})
    if (open_keys.contains(key)) return;
  if (!(readers & (reader::kTrain | reader::kEval | reader::kPlan))) return;
  std::string problem = mixture_problem(settings);
  if (problem.empty() && (readers & reader::kTrain)) problem = mixture_length_problem(settings);
  if (!problem.empty()) lines.push_back(std::move(problem));
}

struct LocalPath {
  const char* key;
  std::string Settings::*value;
};

constexpr LocalPath kLocalPaths[] = {
    {"checkpoint_dir", &Settings::checkpoint_dir},
    {"runs_dir", &Settings::runs_dir},
    {"data_cache", &Settings::data_cache},
    {"trace", &Settings::trace},
    {"output", &Settings::output},
    {"log_dir", &Settings::log_dir},
    {"database", &Settings::database},
    {"slurm", &Settings::slurm},
    {"kubernetes", &Settings::kubernetes},
};

// "s3://…" would become a folder named "s3:". Shown is the scheme alone.
void add_address_problems(const Settings& settings, Readers readers,
                          const std::set<std::string>& open_keys, std::vector<std::string>& lines) {
  for (const LocalPath& path : kLocalPaths) {
    const std::string& value = settings.*path.value;
    const size_t scheme = value.find("://");
    if (scheme == 0 || scheme == std::string::npos || value.find('/') < scheme) continue;
    if (!(find_key(path.key)->readers & readers) || open_keys.contains(path.key)) continue;
    std::string line = std::string(path.key) + ": wanted a local path, found an address " +
                       value.substr(0, scheme) + "://…; name a folder or file of this machine";
    if (line.starts_with("checkpoint_dir"))
      line += ", and give the address to checkpoint_upload, which uploads every checkpoint";
    lines.push_back(std::move(line));
  }
}

}  // namespace

std::span<const Rule> rules() {
  return kRules;
}

std::vector<std::string> contradictions(const Settings& settings, Readers readers,
                                        const std::set<std::string>& open_keys) {
  std::vector<std::string> lines;
  for (const Rule& rule : rules()) {
    if (!(rule.readers & readers) || rule.holds(settings)) continue;
    const std::vector<std::string> names = split(rule.keys, ' ');
    if (std::ranges::any_of(names, [&](const auto& name) { return open_keys.contains(name); }))
      continue;
    std::vector<std::string> found;
    for (const std::string& name : names)
      found.push_back(name + ": " + find_key(name)->text(settings));
    lines.push_back(std::string(rule.reason) + " (found " + join(found, ", ") + "; rule " +
                    std::string(rule.name) + ")");
  }
  add_mixture_problems(settings, readers, open_keys, lines);
  add_length_problem(settings, readers, open_keys, lines);
  add_address_problems(settings, readers, open_keys, lines);
  return lines;
}

}  // namespace octavo::config
