// Every key, in the order of --help and docs/reference/configuration.md. A new key is a member of
// Settings and one entry here, in fp8_keys.cpp, or in verb_keys.cpp when only a verb beside
// training reads it.

#include <algorithm>

#include "base/text.h"
#include "config/key_makers.h"
#include "config/length_keys.h"
#include "config/mixture_keys.h"
#include "config/verb_keys.h"

namespace octavo::config {
namespace {

using S = Settings;
constexpr int64_t kMany = int64_t{1} << 40;  // beyond any real count, far from overflow
constexpr Readers kModelUsers = reader::kTrain | reader::kGenerate | reader::kEval;
constexpr Readers kMakers = reader::kTrain | reader::kPrepare | reader::kEval;
constexpr Readers kHubUsers = kModelUsers | reader::kPrepare;

std::vector<Key> model_keys() {
  return {
      text_key("model_name", &S::model_name,
               "The model: a Hugging Face name or folder, gpt2, or custom. A folder holds the "
               "config.json of a GPT-2, Llama, Qwen2, Qwen3, Mistral, SmolLM, OLMo or Gemma 3 "
               "model; gpt2, gpt2-medium, gpt2-large and gpt2-xl have random weights; custom is a "
               "GPT-2 whose n_layer, n_head and n_embd say the size. octavo names lists models "
               "that are known without an owner (llama-3.1-8b)."),
      int_key("n_layer", &S::n_layer, 0, 1024, "Transformer blocks. 0: as model_name says."),
      int_key("n_head", &S::n_head, 0, 1024,
              "Attention heads; must divide n_embd. 0: as model_name says."),
      int_key("n_embd", &S::n_embd, 0, 65536, "Width of the model. 0: as model_name says."),
      int_key("vocab_size", &S::vocab_size, 0, int64_t{1} << 24,
              "Tokens that the model knows. 0: what the data needs. The embedding's rows are "
              "padded to a multiple of 64, "
              "which the matrix units prefer; padding has no probability."),
      int_key("max_seq_length", &S::max_seq_length, 1, int64_t{1} << 20,
              "Tokens in a sample: the context. Packed data is prepared for one length.")
          .read_by(reader::kTrain | reader::kPrepare | reader::kEval),
      text_key(
          "init_from", &S::init_from,
          "Weights to start from: a Hugging Face folder with safetensors files, a checkpoint, or "
          "random (drawn from seed). Empty: those of model_name when it has some, else random."),
      text_key(
          "revision", &S::revision,
          "Branch, tag or commit of a model_name that is on the Hugging Face hub. A data set's "
          "is written behind its name: org/name@revision.")
          .read_by(kHubUsers),
      bool_key("offline", &S::offline,
               "Models and data sets come from paths and the Hugging Face cache only; nothing is "
               "downloaded. HF_HUB_OFFLINE=1 says the same.")
          .read_by(kHubUsers),
  };
}

std::vector<Key> data_keys() {
  return {
      list_key("dataset", &S::dataset,
               "What is trained on: files, folders or Hugging Face names. A prepared folder (from "
               "data prepare) is taken as it is. Text, JSONL, JSON, Parquet and Arrow files, "
               "folders of them, s3:// addresses and names on the Hugging Face hub are prepared "
               "into data_cache on first use. octavo names lists short names (fineweb-edu). "
               "Several: a YAML list, or commas in the flag. With weights they are a mixture: "
               "{path: web, weight: 0.7, max_epochs: 4} in the list, or dataset_weights.")
          .alias("dataset_name")
          .read_by(kMakers),
      text_key("data_cache", &S::data_cache,
               "Folder for data that train prepares itself, and for what it reads of prepared data "
               "at s3://.")
          .read_by(reader::kTrain | reader::kEval),
      real_key(
          "data_cache_gb", &S::data_cache_gb, 0, 1e6,
          "Of prepared data at s3://: at most so many GB of it are kept in data_cache, for all "
          "ranks of a machine. 0: nothing is kept.")
          .read_by(reader::kTrain | reader::kEval),
      text_key("tokenizer", &S::tokenizer,
               "bytes, a tokenizer.json, a folder that holds one, or a repository of the Hugging "
               "Face hub that does (owner/name). Empty: what the prepared data or the checkpoint "
               "was made with, else the tokenizer of model_name (of gpt2: from the hub; of custom: "
               "bytes).")
          .read_by(kMakers | reader::kGenerate),
      bool_key("special_tokens_in_text", &S::special_tokens_in_text,
               "Texts that spell a special token of the tokenizer (<|endoftext|>) mean that token. "
               "false: text is text, whatever it spells, and prepare counts such places. Chats are "
               "always text.")
          .read_by(kMakers),
      text_key("split_name", &S::split_name,
               "Which split of a data set with splits: train, test, train_1M. Splits are those of "
               "the Hugging Face layout. Empty: train, or all files when there is none.")
          .read_by(kMakers),
      text_key("val_split_name", &S::val_split_name,
               "Which split of a data set with splits is validated on. Empty: validation, val, "
               "valid or dev, else val_fraction of the split that is trained on. Never test, "
               "unless it is named here.")
          .read_by(kMakers),
      text_key("dataset_config", &S::dataset_config,
               "Which subset of a data set on the hub that has several: main of openai/gsm8k, "
               "sample-10BT of FineWeb-Edu. Empty: its default.")
          .read_by(kMakers),
  };
}

std::vector<Key> shard_keys() {
  return {
      real_key("val_fraction", &S::val_fraction, 0, 0.9,
               "Share of the documents that is kept for validation when data is prepared. Of the "
               "tokens, when there is only one document. Data sets with a split to validate on "
               "lose nothing.")
          .read_by(kMakers),
      real_key("max_skipped_rows", &S::max_skipped_rows, 0, 1,
               "Share of the rows with answers that preparing may leave out: rows without an "
               "answer, and rows whose answer begins behind max_seq_length. More is an error.")
          .read_by(kMakers),
      int_key("shard_tokens", &S::shard_tokens, 1024, int64_t{1} << 32, "Tokens in one shard file.")
          .read_by(kMakers),
      int_key("num_workers", &S::num_workers, 0, 1024, "Threads that tokenize. 0: one per core.")
          .read_by(kMakers),
      bool_key("shuffle", &S::shuffle,
               "Train on the samples in a new random order every epoch, drawn from seed."),
      bool_key("document_mask", &S::document_mask,
               "Documents of one sample do not see each other: attention and positions begin anew "
               "behind each end of a document. Packed data is always so.")
          .read_by(reader::kTrain | reader::kEval),
      length_key(),
      enum_key(
          "data_damage", &S::data_damage, {DataDamage::kStop, DataDamage::kSkip},
          "When a block of a shard does not match its hash or has an id beyond the vocabulary. "
          "stop: end with exit code 5. skip: leave the samples that touch it out of the loss, and "
          "write it into data_damage.jsonl of the run; more than 5% of a split ends the run."),
  };
}

// What a row of a data set is, and what becomes of it.
std::vector<Key> row_keys() {
  return {
      text_key("text_field", &S::text_field, "The field of a row that holds the text.")
          .read_by(kMakers),
      text_key("prompt_field", &S::prompt_field,
               "The field of a row that holds the prompt; response_field then names the answer's. "
               "Empty: as the first row shows (OpenMathInstruct-2, GSM8K, Alpaca, prompt and "
               "response).")
          .read_by(kMakers),
      text_key("response_field", &S::response_field, "The field of a row that holds the answer.")
          .read_by(kMakers),
      text_key("messages_field", &S::messages_field,
               "The field of a row that holds a list of chat messages (role and content, or from "
               "and value). Empty: as the first row shows.")
          .read_by(kMakers),
      enum_key("chat_template", &S::chat_template,
               {ChatTemplate::kAuto, ChatTemplate::kChatml, ChatTemplate::kQwen2,
                ChatTemplate::kSmollm2, ChatTemplate::kLlama3, ChatTemplate::kLlama31,
                ChatTemplate::kAlpaca, ChatTemplate::kNone},
               "How prompts, answers and messages become text. auto: the template of the "
               "model's folder (Jinja), else what the tokenizer's added tokens say, else alpaca; "
               "none where prompts have Alpaca's text already. none: "
               "prompt and answer one after the other. checkpoints export writes the one that the "
               "model was trained with, unless this names another.")
          .read_by(kMakers | reader::kGenerate | reader::kCheckpoints),
      enum_key("train_on", &S::train_on, {TrainOn::kAnswer, TrainOn::kAll},
               "What counts in the loss of rows with a prompt and an answer, and of chats: the "
               "answers, or all. Plain text always counts as a whole.")
          .read_by(kMakers),
      bool_key("packing", &S::packing,
               "Several short documents share a sample, without seeing each other. false: one "
               "document in each. Plain text is not packed but cut.")
          .read_by(kMakers),
  };
}

std::vector<Key> train_keys() {
  constexpr Readers kScheduled = reader::kTrain | reader::kSchedule;
  return {
      int_key("batch_size", &S::batch_size, 1, 65536,
              "Samples in one forward and backward pass, per rank.")
          .read_by(reader::kTrain | reader::kEval),
      bool_key("auto_batch_size", &S::auto_batch_size,
               "Find the largest batch_size that fits, by passes that are measured before training "
               "begins; all ranks take the same. batch_size is not read then."),
      int_key("max_batch_size", &S::max_batch_size, 0, 65536,
              "The most that batch_size, or auto_batch_size, may be. 0: no bound."),
      int_key("target_effective_batch_size", &S::target_effective_batch_size, 0, 1 << 24,
              "Samples in a step over all passes and ranks: gradient_accumulation_steps follows "
              "from it. batch_size is lowered to a divisor where it must be. 0: batch_size x "
              "gradient_accumulation_steps x ranks."),
      real_key("memory_limit_gb", &S::memory_limit_gb, 0, 1e6,
               "What a rank's tensors may take, in 10^9 bytes. On a CPU more is refused as on a "
               "full GPU; on a GPU it bounds auto_batch_size. 0: what the device has, or the "
               "machine has left."),
      int_key("gradient_accumulation_steps", &S::gradient_accumulation_steps, 1, 1 << 20,
              "Passes whose gradients are summed before the weights move."),
      bool_key(
          "gradient_checkpointing", &S::gradient_checkpointing,
          "Keep only the input of each block and compute the block again in the backward pass: "
          "less memory, about a third more work."),
      int_key("max_steps", &S::max_steps, 0, kMany, "Steps to train. 0: num_epochs decides.")
          .read_by(kScheduled),
      int_key("num_epochs", &S::num_epochs, 0, 1'000'000,
              "Passes over the data. 0: max_steps decides; when both are 0, one epoch."),
      real_key("learning_rate", &S::learning_rate, 0, 10,
               "Learning rate after the warm-up. Not given: 6e-4 for pretraining, 1e-5 when all "
               "weights of a pretrained model are trained, 2e-4 for LoRA; the run says which.")
          .alias("max_lr")
          .read_by(kScheduled),
      real_key("min_lr_ratio", &S::min_lr_ratio, 0, 1,
               "The cosine ends at this share of learning_rate, and stays there.")
          .read_by(kScheduled),
      int_key(
          "warmup_steps", &S::warmup_steps, -1, kMany,
          "Steps of linear warm-up. -1: a twentieth of the run, at most 2000. When a flag makes "
          "the run of a file shorter, the file's warm-up shrinks with it, and the run says so.")
          .read_by(kScheduled),
      real_key(
          "weight_decay", &S::weight_decay, 0, 10,
          "Decoupled weight decay of matrices and embeddings; biases and norms are never decayed."),
      real_key("beta1", &S::beta1, 0, 0.999999, "AdamW's decay of the first moment."),
      real_key("beta2", &S::beta2, 0, 0.999999, "AdamW's decay of the second moment."),
      real_key("adam_eps", &S::adam_eps, 1e-20, 1, "AdamW's epsilon."),
      real_key("max_grad_norm", &S::max_grad_norm, 0, 1e9,
               "Clip the gradient's global norm to this. 0: never."),
  };
}

// What is added to the loss.
std::vector<Key> penalty_keys() {
  return {
      real_key("penalty_weight", &S::penalty_weight, 0, 1000,
               "Weight of the penalty added to the loss. 0: none."),
      enum_key("penalty_type", &S::penalty_type,
               {PenaltyType::kZLoss, PenaltyType::kActivationL2, PenaltyType::kKurtosis},
               "z_loss keeps the logits' normaliser near 1; activation_l2 and kurtosis aim at the "
               "activation outliers "
               "that break FP8."),
      real_key("router_aux_loss_coef", &S::router_aux_loss_coef, -1, 1000,
               "Models with experts: weight of the loss that balances their load. -1: as the "
               "model's config.json says, its router_aux_loss_coef when output_router_logits is "
               "true and none otherwise, as transformers has it."),
      real_key("router_z_loss_coef", &S::router_z_loss_coef, 0, 1000,
               "Models with experts: weight of the mean square of the logsumexp of their routers' "
               "logits. 0: none."),
  };
}

std::vector<Key> precision_keys() {
  return {
      enum_key(
          "mixed_precision", &S::mixed_precision,
          {Precision::kFp8, Precision::kBf16, Precision::kFp32},
          "What the GEMMs run in. fp8: the linear layers, and the rest in BF16; generate takes it "
          "as bf16. What the weights and the optimizer keep: master_dtype, moment_dtype.")
          .read_by(kModelUsers),
      enum_key("master_dtype", &S::master_dtype, {StateType::kFp32, StateType::kBf16},
               "The weights that training adds to. fp32: beside a BF16 copy that the GEMMs "
               "read. bf16: one BF16 weight, rounded stochastically. Norms and biases are FP32."),
      enum_key("moment_dtype", &S::moment_dtype,
               {StateType::kFp32, StateType::kBf16, StateType::kFp8},
               "Both moments of AdamW, of matrices. bf16 and fp8 (E4M3, one scale for 128 values) "
               "are rounded stochastically; fp8's second moment is noisy for beta2 above 0.995."),
      enum_key("gradient_dtype", &S::gradient_dtype, {StateType::kFp32, StateType::kBf16},
               "Gradients of matrices. bf16: sums over passes are rounded after each one, and the "
               "memory is free during the forward pass."),
      int_key("seed", &S::seed, 0, INT64_MAX, "Weights, data order and samples are drawn from it.")
          .read_by(kModelUsers),
      enum_key("device", &S::device, {DeviceChoice::kAuto, DeviceChoice::kCpu, DeviceChoice::kCuda},
               "Where the mathematics runs. auto: the first GPU that the process sees, or else the "
               "CPU. cuda fails when there is no GPU.")
          .read_by(kModelUsers),
      bool_key("cuda_graph", &S::cuda_graph,
               "Capture the forward and backward pass as a CUDA graph after three steps and launch "
               "it as a whole: less work for the CPU, more memory of the GPU. Steps that cannot be "
               "captured run as without it, and say why. Not for the CPU."),
      enum_key(
          "deterministic", &S::deterministic,
          {Deterministic::kAuto, Deterministic::kTrue, Deterministic::kFalse},
          "Sums in a fixed order, so that a run, also a resumed one, repeats bit for bit. auto: "
          "true on CPUs, where it costs nothing, and false on GPUs, where attention's "
          "backward pass and scattered sums are slower with it and take more memory, and "
          "cuDNN's attention is not used."),
      int_key("empty_cache_freq", &S::empty_cache_freq, 0, INT64_MAX,
              "Every so many steps the allocator gives memory that it keeps for reuse back to the "
              "device. It costs time; for devices that are shared. 0: never."),
      int_key("num_threads", &S::num_threads, 0, 4096,
              "CPU threads for the mathematics. 0: the physical cores that this rank may use.")
          .read_by(kModelUsers),
  };
}

// What is done about steps that must not be applied, and about ranks that went wrong.
std::vector<Key> fault_keys() {
  return {
      enum_key(
          "bad_steps", &S::bad_steps, {BadSteps::kStop, BadSteps::kSkip, BadSteps::kRollBack},
          "When a step's numbers are not finite, or its loss is six sigmas, and a tenth, above "
          "those of the last 128. stop: what is not finite ends the run (but see fp8_guard), a "
          "spike is flagged and applied. skip: the step is not applied. rollback: and after "
          "three in a row the weights go back to the last checkpoint, while the data continues. "
          "incidents.jsonl of the run has a line for each."),
      int_key("bad_step_budget", &S::bad_step_budget, 1, kMany,
              "How many steps bad_steps may skip before the run ends with exit code 4."),
      int_key(
          "replica_check_freq", &S::replica_check_freq, 0, kMany,
          "Steps between comparisons of what ranks must have alike (weights, moments), by their "
          "hashes; also before every checkpoint. A rank that differs is named, and the run ends "
          "with exit code 4. 0: never."),
  };
}

std::vector<Key> lora_keys() {
  return {
      int_key("lora_rank", &S::lora_rank, 0, 4096,
              "Rank of the LoRA adapters; 0 trains all weights. With adapters the model's own "
              "weights are frozen, and two thin matrices beside each chosen one are trained."),
      real_key("lora_alpha", &S::lora_alpha, 0, 65536,
               "The adapters' output is scaled by this over lora_rank. 0: twice lora_rank."),
      real_key("lora_dropout", &S::lora_dropout, 0, 0.9,
               "Share of an adapter's inputs that are dropped in training."),
      list_key("lora_target_modules", &S::lora_target_modules,
               "Layers that get an adapter, by the last part of their Hugging Face name (q_proj, "
               "down_proj, c_attn), or all. Empty: all linear layers of the blocks."),
      enum_key("lora_base", &S::lora_base, {LoraBase::kBf16, LoraBase::kFp8},
               "How the frozen weights are kept: bf16; or fp8 (E4M3 with a scale for each 128x128 "
               "block, one byte a weight), made BF16 again layer by layer when they are used."),
  };
}

std::vector<Key> eval_keys() {
  return {
      text_key("eval_task", &S::eval_task,
               "What is measured: loss or hellaswag. loss: of the validation split of dataset. "
               "hellaswag: which of four endings the model finds most likely (acc), also per "
               "character (acc_norm)."),
      text_key("eval_data", &S::eval_data, "hellaswag (fetched by name), or a file of its rows.")
          .read_by(reader::kEval | reader::kCompare),
      int_key("eval_limit", &S::eval_limit, 0, kMany,
              "Rows of hellaswag, or batches of loss, from the first on. 0: all.")
          .read_by(reader::kEval | reader::kCompare),
  };
}

std::vector<Key> run_keys() {
  return {
      text_key("run_name", &S::run_name,
               "Name of the run's folders, in runs_dir and in checkpoint_dir. Empty: "
               "<model>-<precision>-<date-time>, or that of the run that is resumed."),
      text_key("runs_dir", &S::runs_dir, "Where runs are kept.")
          .read_by(reader::kTrain | reader::kBoard),
      int_key("log_freq", &S::log_freq, 1, kMany,
              "Steps between step lines; metrics.jsonl gets every step."),
      bool_key("verbose", &S::verbose,
               "Print a line for every GEMM of an FP8 run, and for every check of verify. false: "
               "one for each group of layers, and for checks that are not ok.")
          .read_by(reader::kTrain | reader::kVerify),
      enum_key("log_format", &S::log_format, {LogFormat::kText, LogFormat::kJson},
               "Messages on the terminal as text, or as JSON with time, host, rank and step. "
               "octavo logs RUN shows those of all ranks by time, either way."),
      bool_key("record_samples", &S::record_samples,
               "Write the numbers of each step's samples, of all ranks, into metrics.jsonl "
               "(data/samples): which data was trained on, and when. They are "
               "gathered on the hosts in every step."),
      int_key("eval_freq", &S::eval_freq, 0, kMany,
              "Steps between evaluations on the validation split. 0: never."),
      int_key("eval_batches", &S::eval_batches, 1, kMany, "Batches in one evaluation."),
      text_key("eval_hellaswag", &S::eval_hellaswag,
               "HellaSwag's rows: hellaswag (fetched by that name) or a file. Measures acc_norm "
               "during training (eval/hellaswag_acc_norm). Empty: not measured."),
      int_key("eval_hellaswag_freq", &S::eval_hellaswag_freq, 0, kMany,
              "Steps between those measurements. 0: with every evaluation (eval_freq)."),
      int_key("eval_hellaswag_rows", &S::eval_hellaswag_rows, 0, kMany,
              "Rows that are asked, from the first on. 0: all 10,042."),
      int_key("sample_freq", &S::sample_freq, 0, kMany,
              "Steps between samples of generated text. 0: none."),
      int_key("sample_tokens", &S::sample_tokens, 1, 1 << 20, "Tokens in such a sample."),
      text_key("sample_prompt", &S::sample_prompt, "What such a sample continues."),
      text_key("trace", &S::trace,
               "A file for a timeline of the run (Chrome's trace format, which Perfetto opens): "
               "phases, blocks, layers and collectives. Ranks beyond the first write -rank<r> "
               "before its extension. Empty: none."),
      bool_key("use_tensorboard", &S::use_tensorboard,
               "TensorBoard events in the run's folder, under tensorboard."),
      bool_key(
          "use_wandb", &S::use_wandb,
          "A Weights & Biases run in the run's folder, under wandb: offline, for wandb sync; "
          "after wandb login (or with WANDB_API_KEY) and with the wandb command it is uploaded "
          "as it grows. WANDB_MODE offline or disabled turns the upload or all of it off."),
      text_key("wandb_project", &S::wandb_project, "The project of that run."),
      text_key("wandb_run_name", &S::wandb_run_name, "Its name there. Empty: run_name."),
      text_key("metrics_address", &S::metrics_address,
               "ADDRESS:PORT for /metrics (Prometheus) and /healthz over HTTP, such as "
               "127.0.0.1:9400; 0.0.0.0:9400 is every interface. Empty: no endpoint."),
      int_key("plateau_steps", &S::plateau_steps, 0, 1'000'000,
              "Steps over which the loss must have improved: the flag `plateau` compares the mean "
              "of their second half with that of their first. 0: never."),
      text_key("bf16_baseline", &S::bf16_baseline,
               "Tokens per second of the same run in BF16, or the folder of that run: the flag "
               "`fp8_slower` is raised when FP8 does not reach them. Empty: nothing to compare "
               "with."),
  };
}

std::vector<Key> checkpoint_keys() {
  return {
      text_key("checkpoint_dir", &S::checkpoint_dir,
               "Where checkpoints are kept: each run's in a folder with its run_name, and a link "
               "latest to the run that saved last. Empty: checkpoints, or checkpoints_fp8 for FP8 "
               "runs.")
          .read_by(kModelUsers | reader::kCheckpoints),
      int_key("checkpoint_freq", &S::checkpoint_freq, 0, kMany,
              "Steps between checkpoints. The end and a stop always write one; 0: only they do."),
      real_key("checkpoint_minutes", &S::checkpoint_minutes, -1, 1e6,
               "Minutes after which a checkpoint is due. -1: by the measured time of a save (Young "
               "and Daly), an hour at most; 0: by steps alone."),
      int_key("max_failed_saves", &S::max_failed_saves, 0, 1'000'000,
              "So many failed saves in a row end the run (exit code 4). 0: never."),
      int_key("keep_checkpoints", &S::keep_checkpoints, 0, 1'000'000,
              "How many of the run's newest to keep; latest, best_model and those of "
              "permanent_checkpoint_freq always stay. 0: all."),
      int_key("permanent_checkpoint_freq", &S::permanent_checkpoint_freq, 0, kMany,
              "Steps between checkpoints that are never removed. 0: none."),
      text_key(
          "checkpoint_upload", &S::checkpoint_upload,
          "s3://bucket/prefix: every checkpoint is uploaded to prefix/<run_name> once it is on "
          "the disk, in the background, its manifest last. keep_checkpoints holds there too. "
          "Empty: checkpoints stay on the disk."),
      text_key("resume", &S::resume,
               "Resume from a checkpoint: latest, best, a run's name, a path, or "
               "s3://bucket/prefix/<run_name>, whose newest is downloaded to checkpoint_dir first. "
               "latest and best are those of run_name, or without one of the run that saved last. "
               "Empty: start anew."),
      bool_key("overwrite", &S::overwrite,
               "Replace the run of the same run_name: its history and its checkpoints are removed. "
               "Without it a run that has made a step is never written over; with resume "
               "nothing is removed."),
      bool_key("list_checkpoints", &S::list_checkpoints,
               "List the checkpoints and stop: checkpoints list."),
      enum_key("export_format", &S::export_format,
               {ExportFormat::kBf16, ExportFormat::kFp8Block, ExportFormat::kFp8Channel,
                ExportFormat::kPeft},
               "How checkpoints export stores the matrices of the blocks. fp8_block: E4M3 with a "
               "scale for each 128x128 (DeepSeek-V3's layout). fp8_channel: E4M3 with a scale for "
               "each row (compressed-tensors). Embeddings, head and norms are BF16 always. "
               "peft: a LoRA checkpoint's adapters alone, as PEFT's files.")
          .read_by(reader::kCheckpoints),
  };
}

// What a run would be told, and its machine can be asked about.
constexpr std::string_view kReadByVerify =
    "mixed_precision use_fp8 fp8_recipe fp8_scenario fp8_backend use_te "
    "fp8_execution checkpoint_dir device num_threads output json gpu num_gpus";
// What a run would be told, and a forecast can be made of.
constexpr std::string_view kReadByPlan =
    "model_name n_layer n_head n_embd vocab_size dataset tokenizer "
    "max_seq_length revision offline batch_size auto_batch_size max_batch_size "
    "target_effective_batch_size master_dtype moment_dtype gradient_dtype "
    "lora_rank lora_base gradient_accumulation_steps use_fp8 mixed_precision "
    "gradient_checkpointing fp8_recipe fp8_scenario device output json "
    "lora_target_modules grad_reduce_dtype fp8_all_gather fp8_skip max_steps";

void let_read(std::vector<Key>& table, std::string_view names, Readers verb) {
  const std::vector<std::string> words = split(names, ' ');
  for (Key& key : table)
    if (std::ranges::find(words, key.name) != words.end()) key.readers |= verb;
}

std::vector<Key> output_keys() {
  using namespace reader;
  return {
      text_key(
          "output", &S::output,
          "Where the result goes: a file, or a folder. A folder: data prepare, checkpoints export. "
          "A file: schedule; eval: each row's answer; verify: all findings as JSON; config import: "
          "the YAML; config schema, config docs and sweep schema, which print it otherwise; sweep: "
          "the report; audit, diagnose: all results as JSON; bench, compare, report: the page.")
          .read_by(kPrepare | kCheckpoints | kSchedule | kConfig | kEval | kImport | kSweepReport |
                   kSweepRun | kDiagnose | kBench | kCompare | kReport | kAudit),
      bool_key("json", &S::json, "Print the result as JSON.")
          .read_by(kSchedule | kCheckpoints | kEval | kImport | kSweepStatus | kSweepReport |
                   kDiagnose | kBench | kCompare | kAudit),
      bool_key("verify_hashes", &S::verify_hashes, "Read every shard and check its hash.")
          .read_by(kInspect),
  };
}

std::vector<Key> build() {
  std::vector<Key> table;
  const auto append = [&](Section section, Readers usual, std::vector<Key> group) {
    for (Key& key : group) {
      key.section = section;
      if (key.readers == 0) key.readers = usual;
      table.push_back(std::move(key));
    }
  };
  append(Section::kModel, reader::kTrain, model_keys());
  append(Section::kData, reader::kTrain, data_keys());
  append(Section::kData, reader::kTrain, mixture_keys());
  append(Section::kData, reader::kTrain, row_keys());
  append(Section::kData, reader::kTrain, shard_keys());
  append(Section::kTrain, reader::kTrain, train_keys());
  append(Section::kTrain, reader::kTrain, penalty_keys());
  append(Section::kTrain, reader::kTrain, precision_keys());
  append(Section::kTrain, reader::kTrain, fault_keys());
  append(Section::kLora, reader::kTrain, lora_keys());
  append(Section::kFp8, reader::kTrain, fp8_keys());
  append(Section::kRun, reader::kTrain, run_keys());
  append(Section::kRun, reader::kBoard, board_keys());
  append(Section::kCheckpoints, reader::kTrain, checkpoint_keys());
  append(Section::kGenerate, reader::kGenerate, generate_keys());
  append(Section::kEval, reader::kEval, eval_keys());
  append(Section::kVerify, reader::kVerify, verify_keys());
  append(Section::kPlan, reader::kPlan, plan_keys());
  append(Section::kDiagnose, reader::kDiagnose, diagnose_keys());
  append(Section::kBench, reader::kBench, bench_keys());
  append(Section::kCompare, reader::kCompare, compare_keys());
  append(Section::kLaunch, reader::kLaunch, launch_keys());
  append(Section::kSweep, reader::kSweepCreate, sweep_keys());
  append(Section::kOutput, 0, output_keys());
  let_read(table, kReadByVerify, reader::kVerify);
  let_read(table, kReadByPlan, reader::kPlan);
  return table;
}

}  // namespace

std::span<const Key> keys() {
  static const std::vector<Key> table = build();
  return table;
}

std::span<const SectionInfo> sections() {
  static constexpr SectionInfo kSections[] = {
      {Section::kModel, "model", "What is trained."},
      {Section::kData, "data", "What it is trained on."},
      {Section::kTrain, "train", "How it is trained."},
      {Section::kLora, "lora", "Adapters instead of all weights."},
      {Section::kFp8, "fp8", "Eight-bit training."},
      {Section::kRun, "run", "What is watched and written down on the way."},
      {Section::kCheckpoints, "checkpoints", "Saving and resuming."},
      {Section::kGenerate, "generate", "Text from a trained model."},
      {Section::kEval, "eval", "How good a model is."},
      {Section::kVerify, "verify", "Whether this machine is able."},
      {Section::kPlan, "plan", "What a run would take and give on GPUs that are not here."},
      {Section::kDiagnose, "diagnose", "What FP8 does to the numbers of a model."},
      {Section::kBench, "bench", "FP8 against BF16 on this machine."},
      {Section::kCompare, "compare", "Two runs, and what may lie between them."},
      {Section::kLaunch, "launch", "Ranks on one node and on many."},
      {Section::kSweep, "sweep", "Many trials of one configuration."},
      {Section::kOutput, "results", "Where a verb's result goes."},
  };
  return kSections;
}

}  // namespace octavo::config
