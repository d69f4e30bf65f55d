#include "cli/verbs.h"

namespace octavo::cli {

namespace {

using namespace config::reader;
constexpr size_t kAnyNumber = 100'000;
constexpr Verb kVerbs[] = {
    {"train", "[CONFIG.yaml] [--key value]…", "train a model", config::kTrainArguments, core},
    {"launch",
     "[--nproc N] [--nnodes N --node_rank R --master_address A] [--key value]… -- train "
     "[CONFIG.yaml] [--key value]…",
     "start, watch and end the ranks of a run; write SLURM and Kubernetes files",
     {"launch", kLaunch},
     launch},
    {"generate", "[CONFIG.yaml] --prompt TEXT [--key value]…",
     "continue a text with a trained model", config::kGenerateArguments, core},
    {"eval", "[CONFIG.yaml] --checkpoint WHICH [--eval_task hellaswag --eval_data FILE]…",
     "validation loss, or HellaSwag", config::kEvalArguments, core},
    {"checkpoints", "list|verify|export [FOLDER] [--key value]…",
     "list checkpoints, check every file of them, or export one to a Hugging Face folder",
     config::kCheckpointsArguments, core},
    {"verify", "[CONFIG.yaml] [--require_gpu] [--json | --output FILE]",
     "is this machine able and well set up for FP8, with the fix beside each failure",
     config::kVerifyArguments, core},
    {"data prepare",
     "[CONFIG.yaml] FILE|FOLDER… --output FOLDER [--key value]…",
     "turn text, JSONL, JSON, Parquet and Arrow into token shards",
     {"data prepare", kPrepare, kAnyNumber},
     data_prepare},
    {"data inspect",
     "FOLDER [--verify_hashes]",
     "show what a prepared folder holds",
     {"data inspect", kInspect, 1},
     data_inspect},
    {"plan",
     "[CONFIG.yaml] [--gpu NAME] [--num_gpus N] [--key value]…",
     "memory, step time, cost and FP8's gain on GPUs that are not here: a forecast",
     {"plan", kPlan},
     plan},
    {"schedule",
     "[CONFIG.yaml] --max_steps N [--key value]…",
     "the learning-rate curve, as a picture (SVG) and as numbers",
     {"schedule", kSchedule},
     schedule},
    {"config show",
     "[CONFIG.yaml] [--key value]…",
     "every key, its value and where that came from",
     {"config show", kAll},
     config_show},
    {"config check",
     "CONFIG.yaml [--key value]…",
     "look for unknown keys, wrong values and contradictions",
     {"config check", kAll},
     config_check},
    {"config import",
     "[FILE… [--output CONFIG.yaml] [--json]]",
     "LLaMA-Factory YAML, DeepSpeed JSON and launch scripts to our keys, and what is wrong with "
     "them; without FILE, what maps to what",
     {"config import", kImport, 8, false},
     config_import},
    {"config schema",
     "[--output FILE]",
     "a JSON schema of the keys, for editors",
     {"config schema", kConfig},
     config_schema},
    {"config docs",
     "[--output FILE]",
     "docs/configuration.md",
     {"config docs", kConfig},
     config_docs},
};

}  // namespace

std::span<const Verb> verbs() {
  return kVerbs;
}

}  // namespace octavo::cli
