#pragma once
// What a run can be told. Every member is one key of the table in key_table.cpp, which adds its
// range, help and the verbs that read it; the default is the initialiser here.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace octavo::config {

enum class Precision { kBf16, kFp32 };
enum class PenaltyType { kZLoss, kActivationL2, kKurtosis };

std::string_view name_of(Precision value);    // "bf16", "fp32"
std::string_view name_of(PenaltyType value);  // "z_loss", "activation_l2", "kurtosis"

struct Settings {
  // model
  std::string model_name = "gpt2";  // a preset, "custom", or a folder with config.json
  int64_t n_layer = 0, n_head = 0, n_embd = 0,
          vocab_size = 0;  // 0: from the preset, data or tokenizer
  int64_t max_seq_length = 1024;
  std::string init_from;  // "" random weights

  // data
  std::vector<std::string> dataset;
  std::string data_cache = ".octavo/data";
  std::string tokenizer;  // "": what the prepared data says, else bytes
  std::string text_field = "text";
  double val_fraction = 0.1;
  int64_t shard_tokens = 100'000'000;
  int64_t num_workers = 0;  // 0: one per core
  bool shuffle = true;

  // train
  int64_t batch_size = 8;
  int64_t gradient_accumulation_steps = 1;
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
  Precision mixed_precision = Precision::kBf16;
  int64_t seed = 1337;
  int64_t num_threads = 0;  // 0: all cores

  // run
  std::string run_name;  // "": <model>-<precision>-<date-time>
  std::string runs_dir = "runs";
  int64_t log_freq = 1;
  int64_t eval_freq = 250, eval_batches = 20;
  int64_t sample_freq = 0, sample_tokens = 64;
  std::string sample_prompt = "\n";

  // checkpoints
  std::string checkpoint_dir;      // "": checkpoints
  int64_t checkpoint_freq = 1000;  // 0: only at the end or when stopped
  int64_t keep_checkpoints = 3;    // 0: all
  std::string resume;              // "", latest, best, a path
  bool list_checkpoints = false;

  // generate
  std::string checkpoint = "latest";  // latest, best, a path
  std::string prompt;
  int64_t max_new_tokens = 100;
  double temperature = 0.8;  // 0: greedy
  int64_t top_k = 50;        // 0: all

  // output
  std::string output;
  bool json = false;
  bool verify_hashes = false;

  bool operator==(const Settings&) const = default;
};

}  // namespace octavo::config
