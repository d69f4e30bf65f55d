#pragma once
// What a run can be told. Every member is one key of the table in key_table.cpp, which adds its
// range, help and the verbs that read it; the default is the initialiser here.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace octavo::config {

enum class Precision { kFp8, kBf16, kFp32 };
enum class PenaltyType { kZLoss, kActivationL2, kKurtosis };
// A recipe's traits are its row in src/fp8/recipe_traits.h.
enum class Fp8Recipe { kDelayed, kCurrent, kRowwise, kBlockwise, kMxfp8, kNvfp4 };
inline constexpr Fp8Recipe kFp8Recipes[] = {Fp8Recipe::kDelayed, Fp8Recipe::kCurrent,
                                            Fp8Recipe::kRowwise, Fp8Recipe::kBlockwise,
                                            Fp8Recipe::kMxfp8,   Fp8Recipe::kNvfp4};
enum class Fp8Format { kAuto, kHybrid, kE4m3, kE5m2 };
enum class Fp8AmaxAlgo { kMax, kMostRecent };
enum class Fp8Update { kPass, kStep };
enum class Fp8Accumulate { kFp32, kHopper };
enum class Fp8Execution { kAuto, kNative, kRehearse };
enum class Fp8Backend { kAuto, kTe, kAten, kRehearse };
enum class Fp8Scenario { kNone, kMxfp8 };
enum class Fp8Guard { kOff, kLog, kFallback };
enum class StateType { kFp32, kBf16, kFp8 };
enum class LoraBase { kBf16, kFp8 };
enum class ChatTemplate { kAuto, kChatml, kQwen2, kSmollm2, kLlama3, kLlama31, kAlpaca, kNone };
enum class ExportFormat { kBf16, kFp8Block, kFp8Channel, kPeft };
enum class TrainOn { kAnswer, kAll };
enum class DataDamage { kStop, kSkip };
enum class BadSteps { kStop, kSkip, kRollBack };
enum class DeviceChoice { kAuto, kCpu, kCuda };
enum class Deterministic { kAuto, kTrue, kFalse };
enum class LogFormat { kText, kJson };
enum class ShardingMode { kNone, kDdp, kZero1, kZero2, kFsdpFull, kHybrid };

// The names that users type: "bf16", "z_loss", "most_recent", …
std::string_view name_of(Precision value);
std::string_view name_of(PenaltyType value);
std::string_view name_of(Fp8Recipe value);
std::string_view name_of(Fp8Format value);
std::string_view name_of(Fp8AmaxAlgo value);
std::string_view name_of(Fp8Update value);
std::string_view name_of(Fp8Accumulate value);
std::string_view name_of(Fp8Execution value);
std::string_view name_of(Fp8Backend value);
std::string_view name_of(Fp8Scenario value);
std::string_view name_of(Fp8Guard value);
std::string_view name_of(StateType value);
std::string_view name_of(LoraBase value);
std::string_view name_of(ChatTemplate value);
std::string_view name_of(TrainOn value);
std::string_view name_of(DataDamage value);
std::string_view name_of(BadSteps value);
std::string_view name_of(DeviceChoice value);
std::string_view name_of(Deterministic value);
std::string_view name_of(LogFormat value);
std::string_view name_of(ShardingMode value);
std::string_view name_of(ExportFormat value);

struct Settings {
  // model
  std::string model_name = "gpt2";  // a preset, "custom", or a folder with config.json
  int64_t n_layer = 0, n_head = 0, n_embd = 0,
          vocab_size = 0;  // 0: from the preset, data or tokenizer
  int64_t max_seq_length = 1024;
  std::string init_from;          // "": model_name's own, when it has weights; else random
  std::string revision = "main";  // of a model_name on the hub
  bool offline = false;

  // data
  std::vector<std::string> dataset;
  std::vector<double> dataset_weights;        // of each entry: a mixture; empty: none is given
  std::vector<int64_t> dataset_max_epochs;    // of each entry: a mixture; 0: no bound
  std::vector<std::string> mixture_schedule;  // "AT WEIGHT WEIGHT …" (mixture_keys.h)
  std::vector<std::string> length_schedule;   // "AT LENGTH" (length_keys.h)
  std::string data_cache = ".octavo/data";
  double data_cache_gb = 16;            // of shards at s3://…, below data_cache; 0: none
  std::string tokenizer;                // "": what the prepared data says, else the model's own
  bool special_tokens_in_text = false;  // "<|endoftext|>" in a text means the token
  std::string text_field = "text";
  std::string prompt_field, response_field, messages_field;  // "": known data sets' own
  ChatTemplate chat_template = ChatTemplate::kAuto;
  TrainOn train_on = TrainOn::kAnswer;
  bool packing = true;
  std::string split_name;      // "": train, when the data has splits
  std::string val_split_name;  // "": validation, val, valid or dev, when there is one
  std::string dataset_config;  // subset of a data set that has several; "": its default
  double val_fraction = 0.1;
  double max_skipped_rows = 0.05;  // share of the rows
  int64_t shard_tokens = 100'000'000;
  int64_t num_workers = 0;  // 0: one per core
  bool shuffle = true;
  bool document_mask = false;  // of plain samples; packed ones have it always
  DataDamage data_damage = DataDamage::kStop;

  // train
  int64_t batch_size = 8;
  bool auto_batch_size = false;
  int64_t max_batch_size = 0;               // 0: no bound
  int64_t target_effective_batch_size = 0;  // samples of a step; 0: what the others make
  double memory_limit_gb = 0;               // 0: what the machine has
  int64_t gradient_accumulation_steps = 1;
  bool gradient_checkpointing = false;
  int64_t max_steps = 0;   // 0: num_epochs decides
  int64_t num_epochs = 0;  // 0: max_steps decides; both 0: one epoch
  double learning_rate = 6e-4;
  double min_lr_ratio = 0.1;
  int64_t warmup_steps = -1;  // -1: optim::automatic_warmup
  double weight_decay = 0.1;
  double beta1 = 0.9, beta2 = 0.95, adam_eps = 1e-8;
  double max_grad_norm = 1.0;  // 0: no clipping
  double penalty_weight = 0;   // 0: no penalty
  PenaltyType penalty_type = PenaltyType::kZLoss;
  double router_aux_loss_coef = -1;  // -1: as the model's file says
  double router_z_loss_coef = 0;
  Precision mixed_precision = Precision::kBf16;
  StateType master_dtype = StateType::kFp32, moment_dtype = StateType::kFp32,
            gradient_dtype = StateType::kFp32;  // of matrices; vectors are FP32
  int64_t seed = 1337;
  DeviceChoice device = DeviceChoice::kAuto;
  bool cuda_graph = false;
  Deterministic deterministic = Deterministic::kAuto;  // on CPUs, not on GPUs
  BadSteps bad_steps = BadSteps::kStop;
  int64_t bad_step_budget = 20;
  int64_t replica_check_freq = 100;  // steps; 0: never
  int64_t num_threads = 0;           // 0: the physical cores that it may use
  int64_t empty_cache_freq = 0;      // steps; 0: never

  // lora
  int64_t lora_rank = 0;  // 0: no adapters
  double lora_alpha = 0;  // 0: twice the rank
  double lora_dropout = 0;
  std::vector<std::string> lora_target_modules;  // empty: all
  LoraBase lora_base = LoraBase::kBf16;

  // fp8
  bool use_fp8 = false;  // the same as mixed_precision fp8
  Fp8Recipe fp8_recipe = Fp8Recipe::kDelayed;
  Fp8Scenario fp8_scenario = Fp8Scenario::kNone;
  Fp8Format fp8_format = Fp8Format::kAuto;  // hybrid for delayed and current, else e4m3
  int64_t fp8_margin = 0, fp8_interval = 1, fp8_amax_history = 1024;
  Fp8AmaxAlgo fp8_amax_algo = Fp8AmaxAlgo::kMax;
  Fp8Update fp8_update = Fp8Update::kPass;
  std::vector<std::string> fp8_skip;
  Fp8Execution fp8_execution = Fp8Execution::kAuto;
  Fp8Backend fp8_backend = Fp8Backend::kAuto;
  bool fp4_hadamard = true, fp4_stochastic_rounding = true, fp4_weight_blocks = true;  // of nvfp4
  Fp8Accumulate fp8_accumulate = Fp8Accumulate::kFp32;
  bool use_te = false;  // the same as fp8_backend te
  int64_t fp8_stats_freq = 100;
  Fp8Guard fp8_guard = Fp8Guard::kLog;

  // run
  std::string run_name;  // "": <model>-<precision>-<date-time>
  std::string runs_dir = "runs";
  int64_t log_freq = 1;
  bool verbose = false;
  LogFormat log_format = LogFormat::kText;
  bool record_samples = false;  // in metrics.jsonl
  int64_t eval_freq = 250, eval_batches = 20;
  int64_t board_port = 6006;                                    // of octavo board
  std::string eval_hellaswag;                                   // HellaSwag's file; "": not asked
  int64_t eval_hellaswag_freq = 0, eval_hellaswag_rows = 1000;  // 0: eval_freq; 0: all
  int64_t sample_freq = 0, sample_tokens = 64;
  std::string sample_prompt = "\n";
  std::string trace;  // "": none
  bool use_tensorboard = false;
  bool use_wandb = false;
  std::string wandb_project = "octavo", wandb_run_name;  // "": run_name
  std::string metrics_address;                           // "": no endpoint
  int64_t plateau_steps = 4000;                          // 0: no such flag
  std::string bf16_baseline;  // tokens per second or a run's folder; "": none

  // checkpoints
  std::string checkpoint_dir;      // of all runs; "": checkpoints, or checkpoints_fp8
  int64_t checkpoint_freq = 1000;  // 0: only at the end or when stopped
  int64_t keep_checkpoints = 3;    // 0: all
  int64_t permanent_checkpoint_freq = 0;
  double checkpoint_minutes = -1;  // -1: from the measured time of a save; 0: never by time
  int64_t max_failed_saves = 3;    // 0: go on for ever
  std::string checkpoint_upload;   // "": nowhere; s3://bucket/prefix
  std::string resume;              // "", latest, best, a run's name, a path, s3://bucket/prefix/run
  bool overwrite = false;
  bool list_checkpoints = false;
  ExportFormat export_format = ExportFormat::kBf16;

  // generate
  std::string checkpoint = "latest";  // latest, best, a run's name, a path
  std::string prompt;
  int64_t max_new_tokens = 100;
  double temperature = 0.8;  // 0: greedy
  int64_t top_k = 50;        // 0: all
  double top_p = 1;          // 1: all
  bool chat = false;
  std::string system_prompt;  // "": the chat template's own

  // eval
  std::string eval_task = "loss";  // loss, hellaswag
  std::string eval_data;           // hellaswag: its JSONL file
  int64_t eval_limit = 0;          // rows; 0: all

  // verify
  bool require_gpu = false;
  bool before_long_run = false;

  // diagnose
  std::string capture;  // file; "": none

  // bench
  double bench_seconds = 60;  // of the GEMMs; steps come on top
  int64_t bench_steps = 5;    // 0: no whole steps

  // compare
  int64_t seeds = 3;
  std::vector<std::string> side_a, side_b;        // key=value; empty: BF16, and FP8 as configured
  double max_train_gap = 0.5, max_val_gap = 0.5;  // percent
  double max_hellaswag_drop = 1;                  // points
  double min_speedup = 0;                         // 0: none on a CPU, 1 on a GPU
  double max_memory_gap = 0;                      // percent; 0: shown, and no part of the verdict
  double tail_share = 0.25;                       // of the steps

  // plan
  bool dry_run = false;
  std::string gpu = "h100";
  int64_t num_gpus = 1;
  ShardingMode sharding_mode = ShardingMode::kNone;  // none with several ranks: ddp
  StateType grad_reduce_dtype = StateType::kBf16;    // fp32 in FP32 runs unless given
  bool fp8_all_gather = true;
  double dist_timeout = 600;
  double hang_timeout = 60;  // seconds; 0: off
  std::string dist_interface;
  double gpu_price = 0;      // per GPU and hour; 0: not known
  int64_t token_budget = 0;  // 0: no total
  double gpu_hours_per_failure = 50000;
  double checkpoint_seconds = 60, restart_seconds = 600;

  // launch
  int64_t nproc = 0;           // 0: GPU_NUM, else one for each GPU, else 1
  int64_t nnodes = 0;          // at most; 0: WORLD_SIZE beside GPU_NUM, else 1
  int64_t least_nodes = 0;     // of nnodes MIN:MAX; 0: all of them
  int64_t spares = 0;          // nodes beside them that wait to take a lost one's place
  double node_wait = 30;       // seconds for a lost node, until the run goes on with fewer
  int64_t node_rank = -1;      // -1: RANK beside GPU_NUM, else 0
  std::string master_address;  // "": MASTER_ADDR beside GPU_NUM, else loopback
  int64_t master_port = 0;     // 0: any free one on one node, else 29500
  int64_t max_restarts = 0;
  double restart_window = 60;  // minutes in which max_restarts counts
  bool auto_resume = false;
  std::string log_dir;            // "": the terminal, with the rank before each line
  std::string slurm, kubernetes;  // files to write instead of starting ranks

  // sweep
  std::string database;  // "": the sweep's file with .db for .yaml
  int64_t run_cap = 0;   // 0: as the sweep's file says
  int64_t sweep_seed = 0;
  int64_t trial_attempts = 3;
  int64_t agents = 1;
  int64_t trials = 0;  // 0: until none is left
  double agent_timeout = 120;

  // output
  std::string output;
  bool json = false;
  bool verify_hashes = false;

  bool operator==(const Settings&) const = default;
};

// fp8_recipe with fp8_scenario applied, which is another name for one.
Fp8Recipe fp8_recipe_of(const Settings& settings);

}  // namespace octavo::config
