// How many GPUs, how they share the work, and the samples of each: octavo has data parallelism with
// sharding; where theirs has more, the same GPUs and the same samples of a step become that.

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "config/key_makers.h"
#include "migrate/import_builder.h"

namespace octavo::migrate {
namespace {

using enum Finding::Verdict;
constexpr int64_t kMostGpus = 1 << 20;
constexpr int64_t kUsualGpus = 8;  // of a node, and NGPU in torchtitan's run_train.sh

const ForeignEntry* first_of(const Importer& importer, ForeignForm form,
                             std::initializer_list<const char*> keys) {
  for (const char* key : keys)
    if (const ForeignEntry* entry = importer.entry_of(form, key)) return entry;
  return nullptr;
}

// A number of GPUs or nodes; 0 when it is none (gpu:8, $SLURM_NNODES).
int64_t count_of(const ForeignEntry* entry) {
  if (entry == nullptr || entry->values.size() != 1) return 0;
  const auto count = config::parse_number<int64_t>(entry->values.front());
  return count && *count >= 1 && *count <= kMostGpus ? *count : 0;
}

// Processes of a node times nodes, as the launcher of a script says.
void count_launched(Importer& importer) {
  constexpr ForeignForm kForm = ForeignForm::kMegatron;
  const ForeignEntry* each = first_of(
      importer, kForm,
      {"launch nproc-per-node", "launch gpus-per-node", "launch ntasks-per-node", "devices"});
  const ForeignEntry* nodes =
      first_of(importer, kForm, {"launch nnodes", "launch nodes", "num-nodes"});
  const ForeignEntry* world = first_of(importer, kForm, {"world-size"});
  for (const ForeignEntry* entry : {each, nodes, world})
    if (entry != nullptr)
      importer.leave(*entry, "GPUs; octavo launch --nproc --nnodes starts them");
  Parallelism& p = importer.result.parallel;
  if (count_of(world) > 0) p.gpus = count_of(world);
  if (count_of(each) == 0) return;
  p.gpus = std::min(count_of(each) * std::max<int64_t>(1, count_of(nodes)), kMostGpus);
  p.is_assumed = count_of(nodes) == 0;
}

// The same of a script that starts a program on transformers. Its flags win over Accelerate's file.
// torchrun counts the processes of a node, and also takes gpu and 1:4, which only the machine
// knows; Accelerate's num_processes are those of all nodes.
void count_launched_trainer(Importer& importer) {
  constexpr ForeignForm kForm = ForeignForm::kLlamaFactory;  // TRL's and Trainer's files, too
  int64_t& gpus = importer.result.parallel.gpus;
  if (const ForeignEntry* all = first_of(importer, kForm, {"launch num-processes"}))
    return void(gpus = count_of(all));
  const ForeignEntry* each = first_of(importer, kForm, {"launch nproc-per-node"});
  const ForeignEntry* nodes = first_of(importer, kForm, {"launch nnodes"});
  if (each == nullptr) return;
  gpus = std::min(count_of(each) * (nodes == nullptr ? 1 : count_of(nodes)), kMostGpus);
}

void settle_gpus(Importer& importer, const std::string& where) {
  Parallelism& p = importer.result.parallel;
  if (importer.known_gpus > 0) p.gpus = importer.known_gpus, p.is_assumed = false;
  // Each is at most 2^20.
  const __int128 wanted = static_cast<__int128>(p.tensor) * p.pipeline * p.context * p.replicate *
                          std::max<int64_t>(1, p.shard);
  if (wanted > kMostGpus)
    fail(ExitCode::kUsage, "config", where, ": wanted at most ", kMostGpus,
         " GPUs, found degrees of parallelism that need more; correct them and import again");
  const int64_t model = p.model_parallel();
  if (p.gpus == 0 && p.shard > 0) p.gpus = model * p.replicate * p.shard;
  const bool too_few = p.gpus > 0 && (p.gpus < model || p.gpus % model != 0);
  if (p.gpus > 0 && !too_few && !p.is_assumed) return;
  const int64_t given = p.gpus;
  if (p.gpus == 0 || too_few) p.gpus = ((std::max(p.gpus, kUsualGpus) + model - 1) / model) * model;
  p.is_assumed = true;
  importer.result.findings.push_back(
      {kNote, "gpus_assumed", where + ": parallelism",
       too_few ? str(given, " GPUs are started, and one copy of the model takes ", model)
               : std::string("no file says how many GPUs the run is started on"),
       "memory, time and the samples of a step depend on it",
       str(p.gpus, " GPUs; octavo plan … --num_gpus N for another number")});
}

std::string sharding_of(const Importer& importer) {
  const Parallelism& p = importer.result.parallel;
  if (p.model_parallel() > 1) return "fsdp_full";
  if (importer.has(ForeignForm::kTorchtitan)) {
    if (p.shard == 1) return p.replicate > 1 || p.gpus > 1 ? "ddp" : "none";
    return p.replicate > 1 ? "hybrid" : "fsdp_full";
  }
  constexpr ForeignForm kForm = ForeignForm::kMegatron;
  const std::string strategy = importer.word_of(kForm, "data-parallel-sharding-strategy");
  if (strategy == "optim_grads_params" || importer.is_on(kForm, "use-torch-fsdp2"))
    return "fsdp_full";
  if (importer.is_on(kForm, "use-megatron-fsdp") || importer.is_on(kForm, "use-custom-fsdp"))
    return strategy == "optim_grads" ? "zero2" : strategy == "optim" ? "zero1" : "fsdp_full";
  return importer.is_on(kForm, "use-distributed-optimizer") ? "zero1" : "ddp";
}

void settle_sharding(Importer& importer, const ForeignEntry& reason) {
  const Parallelism& p = importer.result.parallel;
  const std::string mode = sharding_of(importer);
  importer.map_to(reason, "sharding_mode", mode, "octavo launch --nproc N starts the ranks");
  for (const char* key : {"use-distributed-optimizer", "use-megatron-fsdp", "use-custom-fsdp",
                          "use-torch-fsdp2", "data-parallel-sharding-strategy"})
    if (const ForeignEntry* entry = importer.entry_of(ForeignForm::kMegatron, key))
      importer.leave(*entry, "sharding_mode " + mode);
  if (p.model_parallel() == 1) return;
  importer.find(kRepaired, "model_parallel", reason,
                "octavo has no tensor, pipeline and context parallelism",
                "the forecast is of the same GPUs fully sharded: weights travel, layers are whole; "
                "the speed of their own layout is not forecast",
                "sharding_mode fsdp_full, the same samples a step where GPUs are enough");
}

// The samples of a GPU, and of a step.
void settle_batch(Importer& importer, const ForeignEntry* micro, const ForeignEntry* global) {
  const Parallelism& p = importer.result.parallel;
  const int64_t model = p.model_parallel();
  const int64_t own = micro == nullptr ? 0 : importer.whole(*micro, 1, 65536);
  int64_t all = global == nullptr ? 0 : importer.whole(*global, -1, 1 << 24);
  if (model == 1) {
    if (micro != nullptr) importer.map_to(*micro, "batch_size", micro->values);
    if (all > 0) importer.map_to(*global, "target_effective_batch_size", config::print_number(all));
    return;
  }
  const ForeignEntry* reason = micro != nullptr ? micro : global;
  if (reason == nullptr) return;
  const int64_t each = std::max<int64_t>(1, own / model);
  importer.map_to(*reason, "batch_size", config::print_number(each),
                  str(own, " samples were those of ", model, " GPUs together"));
  const bool is_given = all > 0;
  if (!is_given) all = std::max<int64_t>(1, own) * p.data();
  if (all >= p.gpus && all % p.gpus == 0)
    return importer.map_to(is_given ? *global : *reason, "target_effective_batch_size",
                           config::print_number(all));
  if (is_given) importer.drop(*global, "not the same samples for each GPU");
  importer.find(kNote, "batch_grows", *reason,
                str("a step has ", all, " samples, and ", p.gpus, " GPUs need at least one each"),
                "larger steps than theirs: fewer of them, with another best learning rate",
                str(each, " for each GPU; fewer GPUs keep the step as it was"));
}

}  // namespace

std::string parallelism_text(const Parallelism& p) {
  if (p.gpus == 0) return "";
  std::vector<std::string> parts;
  const auto add = [&](int64_t degree, const char* what) {
    if (degree > 1) parts.push_back(str(degree, " ", what));
  };
  add(p.tensor, "tensor");
  add(p.pipeline, "pipeline");
  add(p.context, "context");
  parts.push_back(str(p.data(), " data"));
  return str(p.gpus, " GPU", p.gpus == 1 ? "" : "s", p.is_assumed ? " (assumed)" : "", " = ",
             join(parts, " x "), p.expert > 1 ? str("; experts over ", p.expert) : "");
}

void settle_parallelism(Importer& importer) {
  Import& result = importer.result;
  const bool titan = importer.has(ForeignForm::kTorchtitan);
  const ForeignForm form = titan ? ForeignForm::kTorchtitan : ForeignForm::kMegatron;
  const ForeignFile* file = importer.file_of(form);
  if (file == nullptr) {
    // Programs on transformers: their speed is that of its trainer.
    for (const auto other : {ForeignForm::kLlamaFactory, ForeignForm::kTrl, ForeignForm::kTrainer,
                             ForeignForm::kAccelerate, ForeignForm::kDeepSpeed, ForeignForm::kFsdp})
      if (importer.has(other)) result.stack = "hf", result.program = "Hugging Face's Trainer";
    count_launched_trainer(importer);
    return;
  }
  if (!titan) count_launched(importer);
  settle_gpus(importer, file->shown);
  const ForeignEntry reason{
      .path = "parallelism", .values = {parallelism_text(result.parallel)}, .where = file->shown};
  settle_sharding(importer, reason);
  if (titan)
    settle_batch(importer,
                 first_of(importer, form, {"training.batch_size", "training.local_batch_size"}),
                 first_of(importer, form, {"training.global_batch_size"}));
  else
    settle_batch(importer, first_of(importer, form, {"micro-batch-size"}),
                 first_of(importer, form, {"global-batch-size"}));
}

}  // namespace octavo::migrate
