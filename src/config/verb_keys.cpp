// The keys of the verbs beside training, in the order of --help.

#include "config/verb_keys.h"

#include "config/key_makers.h"

namespace octavo::config {
namespace {

using S = Settings;

constexpr int64_t kMostNodes = 65536;

// N or MIN:MAX, as torchrun has it.
Key nodes_key(std::string name, std::string help) {
  Key key{.name = std::move(name), .type = Type::kText, .help = std::move(help)};
  key.wanted = "a number of nodes N, or MIN:MAX with MIN from 1 to MAX, at most 65536";
  key.store = [](Settings& settings, std::span<const std::string> values) {
    const std::string_view text = values.front();
    const size_t colon = text.find(':');
    const auto most = parse_number<int64_t>(colon == text.npos ? text : text.substr(colon + 1));
    const auto least = colon == text.npos ? std::optional<int64_t>(0)
                                          : parse_number<int64_t>(text.substr(0, colon));
    if (!most || !least || *most < 0 || *most > kMostNodes) return false;
    if (colon != text.npos && (*least < 1 || *least > *most)) return false;
    settings.nnodes = *most;
    settings.least_nodes = *least;
    return true;
  };
  key.load = [](const Settings& settings) {
    const std::string most = print_number(settings.nnodes);
    return std::vector{settings.least_nodes > 0 ? print_number(settings.least_nodes) + ":" + most
                                                : most};
  };
  return key;
}

}  // namespace

std::vector<Key> generate_keys() {
  return {
      text_key("checkpoint", &S::checkpoint,
               "Which checkpoint: latest, best, a path, a Hugging Face name, or (generate, eval) "
               "s3://bucket/prefix/RUN. latest and best are of the run that CONFIG names by "
               "run_name, as a run's own config.yaml does; without a name of the one that saved "
               "last.")
          .read_by(reader::kGenerate | reader::kEval | reader::kCheckpoints | reader::kDiagnose),
      text_key("prompt", &S::prompt, "The text to continue."),
      int_key("max_new_tokens", &S::max_new_tokens, 1, 1 << 20, "Tokens to generate."),
      real_key("temperature", &S::temperature, 0, 100,
               "Divides the logits; 0 takes the most likely token.")
          .read_by(reader::kTrain | reader::kGenerate),
      int_key("top_k", &S::top_k, 0, int64_t{1} << 24,
              "Draw only from the k most likely tokens. 0: from all.")
          .read_by(reader::kTrain | reader::kGenerate),
      real_key("top_p", &S::top_p, 0, 1,
               "Draw only from the most likely tokens that have this probability together.")
          .read_by(reader::kTrain | reader::kGenerate),
      bool_key("chat", &S::chat,
               "Talk: lines of standard input are a user's turns, in the model's chat template "
               "(chat_template). With prompt: one turn."),
      text_key("system_prompt", &S::system_prompt,
               "The system message of a chat. Empty: the template's own."),
  };
}

std::vector<Key> board_keys() {
  return {
      int_key("board_port", &S::board_port, 1, 65535,
              "The port on this machine's loopback at which octavo board starts TensorBoard."),
  };
}

std::vector<Key> verify_keys() {
  return {bool_key("require_gpu", &S::require_gpu,
                   "A machine without a usable GPU fails (exit code 3)."),
          bool_key("before_long_run", &S::before_long_run,
                   "Also go through what must be right before CONFIG.yaml runs for days: settings, "
                   "data, disk, memory, schedule, resuming, what it is watched and compared by.")};
}

std::vector<Key> plan_keys() {
  return {
      bool_key(
          "dry_run", &S::dry_run,
          "Instead of a forecast, three real steps on a fake CUDA device. The GPU's code path runs "
          "without its kernels and gives the exact memory of the real allocator. For one GPU."),
      text_key("gpu", &S::gpu,
               "Which GPU the forecast is for, such as h100 or b200. octavo names gpus lists them; "
               "any spelling is taken (H100, h100-sxm, RTX 4090), also what nvidia-smi prints. Or "
               "the path of a YAML file of your own: like: h100, and what is different."),
      int_key("num_gpus", &S::num_gpus, 1, 1'000'000, "How many GPUs."),
      enum_key("sharding_mode", &S::sharding_mode,
               {ShardingMode::kNone, ShardingMode::kDdp, ShardingMode::kZero1, ShardingMode::kZero2,
                ShardingMode::kFsdpFull, ShardingMode::kHybrid},
               "What is sharded over the ranks. ddp: nothing. zero1: optimizer state. zero2: also "
               "gradients. fsdp_full: also weights. hybrid: all of it within a node. none with "
               "several ranks is ddp.")
          .read_by(reader::kTrain | reader::kPlan),
      enum_key("grad_reduce_dtype", &S::grad_reduce_dtype, {StateType::kFp32, StateType::kBf16},
               "What gradients travel between ranks in. bf16: half the bytes, rounded at every "
               "hop. FP32 runs: fp32 unless given.")
          .read_by(reader::kTrain),
      bool_key("fp8_all_gather", &S::fp8_all_gather,
               "fsdp_full and hybrid quantize FP8 weights before they are gathered: half the "
               "bytes, the same bits.")
          .read_by(reader::kTrain),
      real_key("dist_timeout", &S::dist_timeout, 1, 1e6,
               "Seconds that a rank waits for the others in one collective before it gives up "
               "and names who is missing.")
          .read_by(reader::kTrain),
      real_key("hang_timeout", &S::hang_timeout, 0, 1e6,
               "Seconds within which a rank without progress is named, with its stack and what it "
               "waits for, and ended with exit code 3, so that octavo launch --max_restarts starts "
               "the run again. 0: off.")
          .read_by(reader::kTrain),
      text_key("dist_interface", &S::dist_interface,
               "Network interface that ranks talk over. Empty: GLOO_SOCKET_IFNAME, or the one "
               "that leads to the master address.")
          .read_by(reader::kTrain),
      real_key("gpu_price", &S::gpu_price, 0, 1e6,
               "What one GPU costs for an hour, in your currency. 0: no costs are given."),
      int_key("token_budget", &S::token_budget, 0, int64_t{1} << 50,
              "Tokens to train on, for the time and money of the whole run. 0: per billion."),
      real_key("gpu_hours_per_failure", &S::gpu_hours_per_failure, 1, 1e12,
               "GPU-hours between two failures that end a run. 50000 is what Meta published of "
               "Llama 3 405B (419 in 54 days of 16384 GPUs)."),
      real_key("checkpoint_seconds", &S::checkpoint_seconds, 0, 1e6,
               "How long training stands still for a checkpoint."),
      real_key("restart_seconds", &S::restart_seconds, 0, 1e7,
               "From a failure to the first new step, without what is computed again."),
  };
}

std::vector<Key> diagnose_keys() {
  return {text_key("capture", &S::capture,
                   "A folder of octavo.capture to look at, or a safetensors file to write. The "
                   "folder has one step of a PyTorch model, which is looked at instead of a model "
                   "of ours; the file gets input, weight and gradient of every linear layer that "
                   "diagnose looked at, in BF16. Empty: none.")};
}

std::vector<Key> bench_keys() {
  return {
      real_key(
          "bench_seconds", &S::bench_seconds, 1, 1e6,
          "About how long GEMMs are timed. Half of it goes to the model's own batch, half to other "
          "numbers of tokens. Each GEMM runs at least five times, however long that takes."),
      int_key("bench_steps", &S::bench_steps, 0, 100'000,
              "Whole training steps that are timed in BF16 and in FP8. Two more come first, to "
              "warm up. 0: none."),
  };
}

std::vector<Key> launch_keys() {
  return {
      int_key("nproc", &S::nproc, 0, 1024,
              "Ranks on this node. 0: GPU_NUM, or else one for each GPU, or else 1. Of a sweep: "
              "ranks of each trial, 0 being one process.")
          .read_by(reader::kLaunch | reader::kSweepAgent | reader::kSweepRun),
      nodes_key("nnodes",
                "Nodes of the run: N, or MIN:MAX for a run that goes on with fewer when a node is "
                "lost and grows again when one comes; the samples of a step and their order stay. "
                "0: WORLD_SIZE where GPU_NUM is set (the guides count nodes in it), else 1.")
          .alias("nodes"),
      int_key("node_rank", &S::node_rank, -1, 65535,
              "Which of the nodes this is, from 0 on; spares count on from MAX. -1: RANK where "
              "GPU_NUM is set, else 0."),
      int_key("spares", &S::spares, 0, 65536,
              "Launchers beside those of nnodes: nodes that wait, without ranks, to take the place "
              "of one that is lost."),
      real_key("node_wait", &S::node_wait, 0, 1e6,
               "Seconds that a run of nnodes MIN:MAX waits for a node that is lost, or missing at "
               "the start, before it goes on with fewer; a spare is not waited for."),
      text_key(
          "master_address", &S::master_address,
          "Address or name of node 0, where ranks rendezvous: it listens there and nowhere else. "
          "Empty: MASTER_ADDR where GPU_NUM is set; loopback for one node."),
      int_key("master_port", &S::master_port, 0, 65535,
              "Port of the rendezvous. 0: MASTER_PORT where GPU_NUM is set; a free one for one "
              "node, else 29500."),
      int_key("max_restarts", &S::max_restarts, 0, 1'000'000,
              "How often the ranks are started again, from the newest checkpoint, when a rank or a "
              "node failed in a way that a restart may cure: at most so often within "
              "restart_window, and in a row without a new checkpoint."),
      real_key("restart_window", &S::restart_window, 0.01, 1e6,
               "Minutes within which max_restarts counts."),
      bool_key("auto_resume", &S::auto_resume,
               "Resume from the newest checkpoint of the command's run when there is "
               "one: for jobs that a scheduler runs again."),
      text_key("log_dir", &S::log_dir,
               "Folder for rank-<r>.log, one for each rank. Empty: the terminal, with the rank "
               "before each line."),
      text_key("slurm", &S::slurm,
               "Write a script for sbatch to this file instead of starting ranks."),
      text_key("kubernetes", &S::kubernetes,
               "Write a JobSet manifest to this file instead of starting ranks."),
  };
}

std::vector<Key> compare_keys() {
  return {
      int_key(
          "seeds", &S::seeds, 1, 1000,
          "Pairs of runs, from seed, seed + 1, … A verdict on the losses needs three or more, and "
          "says how many."),
      list_key("side_a", &S::side_a,
               "What the first run of each pair is told on top of the configuration: key=value, "
               "several behind commas. Empty: mixed_precision=bf16.")
          .alias("a"),
      list_key("side_b", &S::side_b,
               "The same for the second. Empty: the configuration as it is when that is FP8, else "
               "mixed_precision=fp8.")
          .alias("b"),
      real_key("max_train_gap", &S::max_train_gap, 0, 1000,
               "How much higher the second run's training loss may be, in percent of the first's."),
      real_key("max_val_gap", &S::max_val_gap, 0, 1000,
               "How much higher the second run's validation loss may be, in percent."),
      real_key("max_hellaswag_drop", &S::max_hellaswag_drop, 0, 100,
               "How many points of HellaSwag's acc_norm the second run may lose. Judged when "
               "eval_data names HellaSwag."),
      real_key("min_speedup", &S::min_speedup, 0, 1000,
               "How much faster the second run must be (1.2: by a fifth). 0: no slower, and on a "
               "CPU nothing."),
      real_key("max_memory_gap", &S::max_memory_gap, 0, 1000,
               "How much higher the second run's memory peak may be, in percent. 0: on a GPU more "
               "than 5 is said, and is no part of the verdict."),
      real_key("tail_share", &S::tail_share, 0.01, 1,
               "The last share of steps that the loss is judged by."),
  };
}

std::vector<Key> sweep_keys() {
  constexpr Readers kCreates = reader::kSweepCreate | reader::kSweepRun;
  constexpr Readers kRuns = reader::kSweepAgent | reader::kSweepRun;
  return {
      text_key("database", &S::database,
               "The SQLite file that keeps the sweep and its trials. Empty: the sweep's file with "
               ".db in place of .yaml.")
          .read_by(kCreates),
      int_key("run_cap", &S::run_cap, 0, 100'000,
              "Trials of the sweep. 0: run_cap of the sweep's file, or else the whole grid.")
          .read_by(kCreates),
      int_key("sweep_seed", &S::sweep_seed, 0, INT64_MAX,
              "What random and bayes draw from; a trial's own seed is the key seed.")
          .read_by(kCreates),
      int_key("trial_attempts", &S::trial_attempts, 1, 1000,
              "How often a trial is begun, at most, when agents or processes die in it.")
          .read_by(kCreates),
      int_key("agents", &S::agents, 1, 1024, "Agents to start, each with one trial at a time.")
          .read_by(reader::kSweepRun),
      int_key("trials", &S::trials, 0, 1'000'000,
              "Trials after which the agent ends. 0: when none is left.")
          .read_by(reader::kSweepAgent),
      real_key("agent_timeout", &S::agent_timeout, 5, 1e6,
               "Seconds without a sign of life after which an agent counts as gone and its trial "
               "is given to another. One that was killed on the same machine is noticed at once.")
          .read_by(kRuns),
  };
}

}  // namespace octavo::config
