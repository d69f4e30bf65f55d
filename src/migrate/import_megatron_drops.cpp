// Megatron's arguments without a counterpart: why, and what that costs.

#include "migrate/import_builder.h"

namespace octavo::migrate {
namespace {

constexpr std::string_view kTheirKernels = "octavo picks its kernels itself; no cost";
constexpr std::string_view kTheirOverlap = "octavo overlaps in its own order; no cost";
constexpr std::string_view kTheirTokens = "octavo has its own tokenizers and shards";
constexpr std::string_view kTheirLogs = "metrics.jsonl has every step; no cost";
constexpr std::string_view kOfParallelism = "of a parallelism that octavo has not";
constexpr std::string_view kOfExperts = "of experts, which are not read from such a file";
constexpr std::string_view kOfFp16 = "loss scaling of FP16; BF16 needs none";
constexpr std::string_view kTheirCheckpoints = "octavo's checkpoints have one form; no cost";

constexpr Mapping kMegatronDrops[] = {
    {"use-mcore-models", "", "octavo's layers are its own"},
    {"use-legacy-models", "", "octavo's layers are its own"},
    {"transformer-impl", "", kTheirKernels},
    {"attention-backend", "", kTheirKernels},
    {"use-flash-attn", "", kTheirKernels},
    {"cross-entropy-loss-fusion", "", kTheirKernels},
    {"cross-entropy-fusion-impl", "", kTheirKernels},
    {"attention-softmax-in-fp32", "", "FP32 always"},
    {"no-masked-softmax-fusion", "", kTheirKernels},
    {"no-gradient-accumulation-fusion", "", kTheirKernels},
    {"enable-cuda-graph", "", "cuda_graph is the counterpart"},
    {"cuda-graph-impl", "", "cuda_graph is the counterpart"},
    {"overlap-grad-reduce", "", kTheirOverlap},
    {"overlap-param-gather", "", kTheirOverlap},
    {"tp-comm-overlap", "", kOfParallelism},
    {"sequence-parallel", "", kOfParallelism},
    {"num-layers-per-virtual-pipeline-stage", "", kOfParallelism},
    {"virtual-pipeline-model-parallel-size", "", kOfParallelism},
    {"cp-comm-type", "", kOfParallelism},
    {"expert-tensor-parallel-size", "", kOfParallelism},
    {"moe-router-load-balancing-type", "", kOfExperts},
    {"moe-router-topk", "", kOfExperts},
    {"moe-aux-loss-coeff", "", kOfExperts},
    {"moe-grouped-gemm", "", kOfExperts},
    {"moe-token-dispatcher-type", "", kOfExperts},
    {"attention-dropout", "", "octavo trains without dropout"},
    {"hidden-dropout", "", "octavo trains without dropout"},
    {"init-method-std", "", "weights are drawn as the model's family does"},
    {"apply-layernorm-1p", "", "the same norm, stored in another way"},
    {"layernorm-zero-centered-gamma", "", "the same norm, stored in another way"},
    {"no-position-embedding", "", "the model's family says it"},
    {"make-vocab-size-divisible-by", "", "rows of the vocabulary are padded to 64"},
    {"recompute-method", "", "all blocks or none"},
    {"recompute-num-layers", "", "all blocks or none"},
    {"recompute-modules", "", "all blocks or none"},
    {"lr-decay-iters", "", "the rate falls until the end of the run"},
    {"lr-decay-samples", "", "the rate falls until the end of the run"},
    {"lr-warmup-init", "", "warm-up is linear from 0"},
    {"decoupled-lr", "", "one learning rate for all weights"},
    {"decoupled-min-lr", "", "one learning rate for all weights"},
    {"rampup-batch-size", "", "the batch does not grow: the first steps take more samples"},
    {"calculate-per-token-loss", "", "octavo's loss is the mean over tokens"},
    {"fp8-param-gather", "", "masters stay; fp8_all_gather sends codes with fsdp_full"},
    {"fp8-wgrad", "", "forward and both backward GEMMs are FP8"},
    {"no-fp8-wgrad", "", "forward and both backward GEMMs are FP8: weight gradients, too"},
    {"num-layers-at-start-in-bf16", "", "first-last-layers-bf16 with other counts: fp8_skip"},
    {"num-layers-at-end-in-bf16", "", "first-last-layers-bf16 with other counts: fp8_skip"},
    {"initial-loss-scale", "", kOfFp16},
    {"min-loss-scale", "", kOfFp16},
    {"loss-scale", "", kOfFp16},
    {"loss-scale-window", "", kOfFp16},
    {"hysteresis", "", kOfFp16},
    {"accumulate-allreduce-grads-in-fp32", "", "gradient_dtype fp32 is octavo's default"},
    {"use-precision-aware-optimizer", "", "moment_dtype and master_dtype say it"},
    {"optimizer-cpu-offload", "", "octavo keeps everything on the GPU"},
    {"manual-gc", "", "of Python"},
    {"manual-gc-interval", "", "of Python"},
    {"empty-unused-memory-level", "", "empty_cache_freq is the counterpart"},
    {"exit-duration-in-mins", "", "a signal ends a run, which can then go on (resume)"},
    {"exit-interval", "", "a signal ends a run, which can then go on (resume)"},
    {"distributed-backend", "", "NCCL on GPUs, gloo on CPUs"},
    {"vocab-file", "", kTheirTokens},
    {"merge-file", "", kTheirTokens},
    {"split", "", "val_fraction says it"},
    {"mock-data", "", "octavo trains on data; plan needs none"},
    {"data-cache-path", "", "data_cache is the counterpart"},
    {"no-create-attention-mask-in-dataloader", "", kTheirKernels},
    {"no-mmap-bin-files", "", kTheirTokens},
    {"tiktoken-pattern", "", kTheirTokens},
    {"num-workers", "", "samples are memory-mapped; no workers, no cost"},
    {"reset-position-ids", "", "positions begin anew where document_mask hides a document"},
    {"eod-mask-loss", "", "the end of a text counts in the loss"},
    {"ckpt-format", "", kTheirCheckpoints},
    {"async-save", "", kTheirCheckpoints},
    {"no-load-optim", "", kTheirCheckpoints},
    {"no-load-rng", "", kTheirCheckpoints},
    {"log-throughput", "", kTheirLogs},
    {"log-params-norm", "", kTheirLogs},
    {"log-num-zeros-in-grad", "", kTheirLogs},
    {"timing-log-level", "", kTheirLogs},
    {"tensorboard-queue-size", "", kTheirLogs},
    {"profile", "", "trace: FILE writes a timeline"},
    {"profile-step-start", "", "trace: FILE writes a timeline"},
    {"profile-step-end", "", "trace: FILE writes a timeline"},
    {"launch master-addr", "", "a flag of octavo launch: --master_address"},
    {"launch master-port", "", "a flag of octavo launch: --master_port"},
    {"launch node-rank", "", "a flag of octavo launch: --node_rank"},
};

}  // namespace

std::span<const Mapping> megatron_drops() {
  return kMegatronDrops;
}

}  // namespace octavo::migrate
