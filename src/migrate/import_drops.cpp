// Keys of theirs without a counterpart: why, and what that costs. A name that is in neither table
// is listed as unknown.

#include "migrate/import_builder.h"

namespace octavo::migrate {

namespace {

constexpr Mapping kLlamaFactoryDrops[] = {
    {"flash_attn", "",
     "octavo picks its attention kernel itself; attention is BF16, in FP8 runs too"},
    {"enable_liger_kernel", "", "octavo's loss and norms are fused already; no cost"},
    {"use_unsloth", "", "octavo has its own layers; no cost in numerics"},
    {"use_unsloth_gc", "", "gradient_checkpointing is the counterpart"},
    {"gradient_checkpointing", "",
     "LLaMA-Factory reads disable_gradient_checkpointing instead; it is on unless that is true"},
    {"use_reentrant_gc", "", "a detail of PyTorch's recomputation; no cost"},
    {"trust_remote_code", "", "octavo runs no code from the hub; its models are its own"},
    {"use_fast_tokenizer", "", "octavo reads tokenizer.json; no cost"},
    {"cache_dir", "", "octavo uses the Hugging Face cache; HF_HOME moves it"},
    {"rope_scaling", "", "changes the model: put it into its config.json; a short context else"},
    {"adapter_name_or_path", "", "adapters to start from: merge them first, or training restarts"},
    {"resize_vocab", "", "the vocabulary is the model's; no added tokens"},
    {"upcast_layernorm", "", "norms are FP32 in octavo; no cost"},
    {"use_rslora", "", "the scale stays alpha/rank: multiply lora_alpha by the rank's root"},
    {"use_dora", "", "plain LoRA instead: another method, other results"},
    {"pissa_init", "", "plain LoRA instead: slower start of the loss"},
    {"loraplus_lr_ratio", "", "one learning rate for both matrices: slower learning"},
    {"additional_target", "", "only adapters are trained: embeddings and head stay frozen"},
    {"neftune_noise_alpha", "", "no noise on embeddings: other results"},
    {"use_galore", "", "AdamW instead: full moments, more memory"},
    {"use_badam", "", "AdamW instead: full moments, more memory"},
    {"use_apollo", "", "AdamW instead: full moments, more memory"},
    {"use_muon", "", "AdamW instead: other learning rates"},
    {"use_adam_mini", "", "AdamW instead: twice the moments"},
    {"max_samples", "", "all rows are used: longer epochs; cut the file for fewer"},
    {"dataset_dir", "", "dataset_info.json is not read; name files in dataset"},
    {"eval_dataset", "", "validation is a share of dataset: prepare the other file separately"},
    {"overwrite_cache", "", "octavo keeps its own cache (data_cache); no cost"},
    {"preprocessing_batch_size", "", "octavo streams; no cost"},
    {"dataloader_num_workers", "", "samples are memory-mapped; no workers, no cost"},
    {"dataloader_pin_memory", "", "a detail of PyTorch's loader; no cost"},
    {"streaming", "", "data is prepared into shards once: disk space"},
    {"tokenized_path", "", "data_cache is the counterpart; prepare anew"},
    {"mask_history", "", "all answers of a chat count in the loss, not the last only"},
    {"mix_strategy", "", "data sets are concatenated and shuffled"},
    {"interleave_probs", "", "data sets are mixed by their sizes"},
    {"group_by_length", "", "packing fills samples instead; no cost"},
    {"do_train", "", "the verb train; no cost"},
    {"do_eval", "", "eval_freq says it"},
    {"do_predict", "", "the verb generate"},
    {"predict_with_generate", "", "the verb generate"},
    {"per_device_eval_batch_size", "", "batch_size serves both; no cost"},
    {"overwrite_output_dir", "", "keep_checkpoints says what is deleted"},
    {"save_only_model", "", "checkpoints are whole, so that resume is exact: disk space"},
    {"plot_loss", "", "metrics.jsonl has the curve"},
    {"logging_strategy", "", "log_freq says it"},
    {"include_num_input_tokens_seen", "", "metrics.jsonl counts tokens; no cost"},
    {"ddp_find_unused_parameters", "", "every parameter has a gradient; no cost"},
    {"torch_compile", "", "octavo is compiled; no cost"},
    {"tf32", "", "FP32 GEMMs are FP32"},
    {"push_to_hub", "", "checkpoints export, then upload by hand"},
    {"lr_scheduler_kwargs.*", "", "read with lr_scheduler_type cosine_with_min_lr only"},
    {"fsdp_config.*", "", "wrapping and prefetching are octavo's own; no cost"},
};

constexpr std::string_view kZero = "octavo's sharding plans its own buckets; no cost";
constexpr Mapping kDeepSpeedDrops[] = {
    {"zero_optimization.overlap_comm", "", "octavo decides itself when gradients are reduced"},
    {"zero_optimization.stage3_gather_16bit_weights_on_model_save", "",
     "checkpoints export writes one BF16 model; no cost"},
    {"zero_optimization.offload_optimizer.*", "", "of the offload, which octavo has not"},
    {"zero_optimization.offload_param.*", "", "of the offload, which octavo has not"},
    {"zero_optimization.*", "", kZero},
    {"fp16.*", "", "loss scaling of FP16; BF16 needs none"},
    {"bf16.*", "", "a detail of DeepSpeed's BF16 optimizer; no cost"},
    {"optimizer.params.*", "", "octavo's AdamW is fused and decoupled; no such choice"},
    {"scheduler.params.*", "", "warm-up is linear from 0"},
    {"activation_checkpointing.*", "",
     "read only by models that call DeepSpeed's; gradient_checkpointing is the counterpart"},
    {"zero_allow_untested_optimizer", "", "octavo's AdamW is tested; no cost"},
    {"zero_force_ds_cpu_optimizer", "", "there is no CPU optimizer; no cost"},
    {"prescale_gradients", "", "against overflow in FP16; BF16 needs none"},
    {"gradient_predivide_factor", "", "against overflow in FP16; BF16 needs none"},
    {"sparse_gradients", "", "gradients are dense: more bytes for rare embedding rows"},
    {"wall_clock_breakdown", "", "every record has the times; no cost"},
    {"memory_breakdown", "", "every record has the memory; no cost"},
    {"dump_state", "", "octavo config show; no cost"},
    {"flops_profiler.*", "", "receipt.json says what ran in which precision"},
    {"csv_monitor.*", "", "metrics.jsonl is always written"},
    {"wandb.*", "", "only the project's name is carried"},
    {"tensorboard.*", "", "events go into the run's folder"},
    {"comms_logger.*", "", "no log of collectives"},
    {"comms_config.*", "", "no log of collectives"},
    {"monitor_config.*", "", "metrics.jsonl is always written"},
    {"aio.*", "", "for NVMe offload, which octavo has not"},
    {"checkpoint.*", "", "octavo's checkpoints have one form; no cost"},
    {"amp.*", "", "Apex; mixed_precision is the counterpart"},
    {"tensor_parallel.*", "", "no tensor parallelism: a layer must fit one GPU"},
    {"elasticity.*", "", "batch sizes stay as given"},
    {"autotuning.*", "", "octavo plan is the counterpart"},
    {"data_efficiency.*", "", "no curriculum: other data order"},
    {"compression_training.*", "", "no pruning and no quantization-aware layers"},
};

}  // namespace

std::span<const Mapping> llama_factory_drops() {
  return kLlamaFactoryDrops;
}

std::span<const Mapping> deepspeed_drops() {
  return kDeepSpeedDrops;
}

}  // namespace octavo::migrate
