#include "cli/verbs.h"

namespace octavo::cli {

namespace {

using namespace config::reader;
constexpr size_t kAnyNumber = 100'000;

constexpr OwnFlag kVerifyFlags[] = {
    {"for", "te|torchao|megatron", "check a Python environment for this trainer"},
    {"python", "PATH", "which one: a python, or its environment's folder"},
};
constexpr OwnFlag kPrepareFlags[] = {
    {"shared", "", "share the work with all processes that run this command, on any machine"},
    {"deduplicate", "", "leave out documents whose text came before"},
    {"extend", "", "add the documents to the finished data set in the output folder"},
};
constexpr OwnFlag kCompareFlags[] = {
    {"against", "B1 B2 …", "the second side, one for each run before it: a seed each"},
    {"loss_name", "NAME", "which value is the training loss, when no usual name is there"},
    {"val_loss_name", "NAME", "the same for the validation loss"},
    {"same_batches", "", "step n of both runs was trained on the same batch"},
    {"step_tokens", "N", "tokens of a step, where the log has times and no tokens"},
};
constexpr OwnFlag kPlanFlags[] = {
    {"details", "", "every table: memory and step time by part, recipe by recipe"},
    {"from", "RUN|FILE.json", "calibrate to this: a run's folder, verify's or bench's JSON"},
};
constexpr OwnFlag kLogsFlags[] = {
    {"rank", "N", "this rank's lines alone"},
    {"level", "info|warning|error", "lines from this level on"},
    {"json_lines", "", "one JSON object a line, as in the files"},
};
constexpr OwnFlag kAuditFlags[] = {{"compare", "", "two traces beside each other"}};

constexpr Verb kVerbs[] = {
    {"train", "[CONFIG.yaml] [--key value]…", "train a model", config::kTrainArguments, core},
    {"launch",
     "[--nproc N] [--nodes N|MIN:MAX --node_rank R --master_address A] [--key value]… [--] train "
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
    {"verify",
     "[--before-long-run] [CONFIG.yaml] [--require_gpu] [--json | --output FILE] | "
     "--for te|torchao|megatron [--python PATH]",
     "is this machine able and well set up for FP8, with the fix beside each failure; --for: the "
     "same of a Python environment, read from its packages' metadata",
     config::kVerifyArguments,
     verify,
     {"", kVerifyFlags}},
    {"doctor",
     "[CONFIG.yaml] [--key value]…",
     "the same as verify",
     config::kVerifyArguments,
     doctor,
     {"", kVerifyFlags}},
    {"diagnose", "[CONFIG.yaml] [--checkpoint WHICH] [--capture PATH] [--key value]…",
     "which GEMMs run in FP8, how healthy they are, and what to change; also what other recipes "
     "would give",
     config::kDiagnoseArguments, core},
    {"bench", "[CONFIG.yaml] [--model_name NAME] [--batch_size N] [--bench_seconds S]…",
     "FP8 against BF16 on this machine: every GEMM of a model, and whole steps; also from how many "
     "tokens on FP8 pays",
     config::kBenchArguments, core},
    {"data prepare",
     "[CONFIG.yaml] FILE|FOLDER… --output FOLDER [--shared] [--deduplicate] [--extend] [--key "
     "value]…",
     "turn text, JSONL, JSON, Parquet and Arrow into token shards",
     {"data prepare", kPrepare, kAnyNumber},
     data_prepare,
     {"", kPrepareFlags}},
    {"data inspect",
     "FOLDER [--verify_hashes]",
     "show what a prepared folder holds",
     {"data inspect", kInspect, 1},
     data_inspect},
    {"plan",
     "[CONFIG.yaml | FILE…] [--gpu NAME|FILE.yaml] [--num_gpus N] [--from RUN|FILE.json] "
     "[--details] [--key value]…",
     "memory, step time, cost and FP8's gain on GPUs that are not here: a forecast; FILE may be "
     "torchtitan's, Megatron's or another that config import reads",
     {"plan", kPlan},
     plan,
     {"", kPlanFlags}},
    {"compare",
     "RUN_A RUN_B | A1 A2… --against B1 B2… | CONFIG.yaml [--seeds N] [--a key=value] "
     "[--b key=value] | FOLDER",
     "BF16 against FP8, or any two runs: gaps with intervals, a verdict and a page; exit code 0 "
     "PASS, 4 FAIL, 6 NOT ENOUGH DATA",
     {"compare", kCompare, kAnyNumber},
     compare,
     {"Runs are folders of octavo or logs of other trainers (TensorBoard, W&B, CSV, JSONL,\n"
      "trainer_state.json, text logs). For those:\n",
      kCompareFlags}},
    {"report",
     "RUN [--output run.html]",
     "a run as one page: curves, FP8 health of every tensor, receipt, incidents",
     {"report", kReport, 1, false},
     report},
    {"audit",
     "TRACE… [--json] [--output FILE.json] | --compare A B",
     "which GEMMs of a PyTorch profiler or Nsight trace ran in FP8, and at what cost; also what "
     "kept the rest out, hidden collectives, and why the GPU waited",
     {"audit", kAudit, kAnyNumber, false},
     audit,
     {"", kAuditFlags}},
    {"board",
     "[FOLDER] [--board_port N]",
     "TensorBoard on the runs of a folder (runs), at this machine's loopback",
     {"board", kBoard, 1, false},
     board},
    {"logs",
     "RUN [--rank N] [--level info|warning|error] [--json_lines]",
     "the messages of all ranks and launchers of a run by time, with host, rank and step",
     {"logs", config::Readers{0}, 1, false},
     logs,
     {"", kLogsFlags}},
    {"schedule",
     "[CONFIG.yaml] --max_steps N [--key value]…",
     "the learning-rate curve, as a picture (SVG) and as numbers",
     {"schedule", kSchedule},
     schedule},
    {"sweep run",
     "SWEEP.yaml [CONFIG.yaml] [--agents N] [--database FILE] [--key value]… [-- --key value…]",
     "run a W&B sweep file to its end with several agents, and report; again: it continues",
     {"sweep run", kSweepCreate | kSweepAgent | kSweepRun, 2, false},
     sweep_run},
    {"sweep create",
     "SWEEP.yaml [CONFIG.yaml] [--database FILE] [--key value]… [-- --key value…]",
     "make the database of a sweep, for agents that are started apart",
     {"sweep create", kSweepCreate, 2, false},
     sweep_create},
    {"sweep agent",
     "FILE.db [--trials N] [--nproc N]",
     "take trials of a sweep and run them, until none is left",
     {"sweep agent", kSweepAgent, 1, false},
     sweep_agent},
    {"sweep status",
     "FILE.db [--json]",
     "how far a sweep is",
     {"sweep status", kSweepStatus, 1, false},
     sweep_status},
    {"sweep report",
     "FILE.db [--output report.html] [--json]",
     "the trials as a table, and parallel coordinates as a page",
     {"sweep report", kSweepReport, 1, false},
     sweep_report},
    {"sweep schema",
     "[--output FILE]",
     "a JSON schema of sweep files, for editors",
     {"sweep schema", kConfig},
     sweep_schema},
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
     "torchtitan, Megatron, LLaMA-Factory, TRL, Trainer, Accelerate, DeepSpeed and FSDP files and "
     "launch scripts to our keys; also what is wrong with them, and without FILE what maps to what",
     {"config import", kImport, 8, false},
     config_import},
    {"config schema",
     "[--output FILE]",
     "a JSON schema of the keys, for editors",
     {"config schema", kConfig},
     config_schema},
    {"config docs",
     "[--output FILE]",
     "docs/reference/configuration.md",
     {"config docs", kConfig},
     config_docs},
    {"examples",
     "[NAME]",
     "example configurations: a line for each, or one: octavo examples NAME > my.yaml",
     {"examples", 0, 1, false},
     examples},
    {"names",
     "[models|data|gpus]",
     "models, data sets and GPUs that are known by name",
     {"names", 0, 1, false},
     names},
    {"completion",
     "bash|zsh|fish",
     "completion of verbs, keys and values for a shell: source <(octavo completion bash)",
     {"completion", 0, 1, false},
     completion},
};

}  // namespace

std::span<const Verb> verbs() {
  return kVerbs;
}

}  // namespace octavo::cli
