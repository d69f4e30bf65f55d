#include "plan/memory.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "fp8/gemm_layouts.h"
#include "plan/fp8_layers.h"

namespace octavo::plan {
namespace {

using config::StateType;

constexpr double kScaleShare = 4.0 / 128;  // FP32 scales of blocks of 128
constexpr double kLossElements = 1 << 29;  // logits that a GPU makes at a time
constexpr double kFragmentation = 0.002;
constexpr double kCpuLossRows = 1024;            // rows of them on a CPU
constexpr double kLibraries = 16.0 * (1 << 20);  // work spaces of cuBLAS and Transformer Engine

// What the allocator of CPU tensors takes for so many bytes: size classes that waste at most an
// eighth (src/engine/allocator.cpp). A GPU's splits its blocks and wastes next to nothing.
double held(double bytes, bool cpu) {
  constexpr double kKeepFrom = 256 << 10, kSmall = 64 << 10, kHugePage = 2 << 20;
  if (!cpu || bytes < kKeepFrom) return bytes;
  if (bytes < kHugePage) return std::ceil(bytes / kSmall) * kSmall;
  const double step = std::exp2(std::floor(std::log2(bytes))) / 8;
  return std::ceil(std::ceil(bytes / step) * step / kHugePage) * kHugePage;
}

// So many matrices of so many values.
struct Matrices {
  double count, values;
};

std::vector<Matrices> block_matrices(const Shape& shape) {
  std::vector<Matrices> list;
  for (const LinearShape& p : block_linears(shape))
    list.push_back({static_cast<double>(p.count), static_cast<double>(p.outputs * p.inputs)});
  if (shape.experts > 0)  // routers
    list.push_back({static_cast<double>(shape.sparse_layers()),
                    static_cast<double>(shape.experts * shape.hidden)});
  return list;
}

std::vector<Matrices> head_matrices(const Shape& s) {
  return {{s.tied ? 1.0 : 2.0, static_cast<double>(s.vocab * s.hidden)},
          {1.0, static_cast<double>(s.positions * s.hidden)}};
}

std::vector<Matrices> adapter_matrices(const MemoryWork& work) {
  std::vector<Matrices> list;
  for (const LinearShape& p : adapted_modules(work.shape, work.lora_targets))
    for (int64_t side : {p.outputs, p.inputs})
      list.push_back({static_cast<double>(p.count), static_cast<double>(side * work.lora_rank)});
  return list;
}

double bytes_in(const std::vector<Matrices>& list, double each, bool cpu) {
  double bytes = 0;
  for (const Matrices& m : list) bytes += m.count * held(m.values * each, cpu);
  return bytes;
}

// What one token of an MLP, or of the experts that it goes through, takes.
struct MlpWidths {
  double rows = 1;  // of its own in the GEMMs
  double up = 0, ffn = 0;
};

MlpWidths mlp_widths(const Shape& s, bool sparse) {
  if (!sparse) return {1, static_cast<double>(s.up_width()), static_cast<double>(s.ffn)};
  const double rows = static_cast<double>(s.active_experts);
  const double ffn = rows * static_cast<double>(s.expert_ffn);
  return {rows, s.gated ? 2 * ffn : ffn, ffn};
}

// Bytes that a block leaves for the backward pass; of one with experts when it is `sparse`.
double kept_per_block(const MemoryWork& work, double tokens, bool sparse) {
  const Shape& s = work.shape;
  const double h = static_cast<double>(s.hidden), q = static_cast<double>(s.query_width());
  const auto [rows, up, ffn] = mlp_widths(s, sparse);
  const bool lora = work.lora_rank > 0;
  // Inputs of the linear layers: for weight gradients as codes, for adapters in BF16. By their
  // place in block_linears().
  const auto coded = [&](size_t place) {
    if (!work.fp8 || lora) return 0.0;
    return work.fp8_shares.empty() ? 1.0 : work.fp8_shares[place];
  };
  const size_t mlp = sparse && s.dense_layers() > 0 ? 4 : 2;
  std::vector<double> tensors = {
      h * 2,
      h * 2,               // the sums that the norms read
      h * (2 - coded(0)),  // into qkv
      static_cast<double>(s.qkv_width()) * 2,
      q * 2,                                   // attention: its inputs and result
      up * 2,                                  // what the activation read
      static_cast<double>(s.heads) * 4 + 16};  // attention's and the norms' sums
  // Into up and down, unless they are frozen and have no adapter.
  if (!lora || (work.lora_targets == LoraTargets::kAll && !sparse))
    tensors.insert(tensors.end(), {rows * h * (2 - coded(mlp)), ffn * (2 - coded(mlp + 1))});
  // What the experts made of a token, their weights, and what the router read.
  if (sparse)
    tensors.insert(tensors.end(), {rows * h * 2, 4 * static_cast<double>(s.experts), h * 2});
  // What norms of queries and keys, and those behind a branch beside those before it, read.
  if (s.qk_norm_values() > 0)
    tensors.push_back(2 * (q + static_cast<double>(s.kv_heads * s.head_dim)));
  if (s.family->norms == model_config::NormPlace::kBoth)
    tensors.insert(tensors.end(), {h * 2, h * 2});
  tensors.push_back(q * coded(1));  // attention's result again, as codes
  if (lora) tensors.push_back(static_cast<double>(work.lora_rank) * 2 * (s.gated ? 7 : 4));
  double bytes = 0;
  for (double each : tensors) bytes += held(tokens * each, work.cpu);
  return bytes;
}

// Bytes that one token needs for a moment in the backward pass of a block: when the activation's
// gradient is made of what the next matrix sent back.
double passing_per_token(const MemoryWork& work) {
  const Shape& s = work.shape;
  const double h = static_cast<double>(s.hidden);
  const auto [rows, up, ffn] = mlp_widths(s, false);
  // GELU's gradient is made in place, unless an adapter has yet to read it.
  const bool in_place = !s.gated && !work.fp8 && work.lora_rank == 0;
  const double bytes = 2 * (3 * h + ffn + (in_place ? 0 : up));
  // Experts: gradients of the rows that they made and read, sorted by expert; inside an expert
  // there are only its own.
  if (s.sparse_layers() > 0) {
    const double sorted = 2 * (3 + 2 * static_cast<double>(s.active_experts)) * h;
    return s.dense_layers() > 0 ? std::max(bytes, sorted) : sorted;
  }
  // Transformer Engine's kernels write the activation's gradient as two copies of codes instead of
  // in BF16; libtorch's quantize what was written in BF16.
  const bool quantizes_later = work.fp8 && !fp8::traits_of(work.recipe).in_transformer_engine;
  return quantizes_later ? bytes + 2 * (ffn + up) : bytes;
}

double shared(bool is, const MemoryWork& work) {
  return is ? 1 / static_cast<double>(work.shard_group > 0 ? work.shard_group : work.gpus) : 1;
}

// The matrices that are trained; vectors are besides, unless adapters are.
std::vector<Matrices> trained_matrices(const MemoryWork& work) {
  if (work.lora_rank > 0) return adapter_matrices(work);
  std::vector<Matrices> list = block_matrices(work.shape);
  for (const Matrices& m : head_matrices(work.shape)) list.push_back(m);
  return list;
}

double trained_vectors(const MemoryWork& work) {
  return work.lora_rank > 0 ? 0 : static_cast<double>(vector_parameters(work.shape));
}

double value_count(const std::vector<Matrices>& list) {
  return bytes_in(list, 1, false);
}

void add_states(const MemoryWork& work, Memory& m) {
  const bool full = work.sharding == Sharding::kFull, cpu = work.cpu;
  const double states =
      shared(full || work.sharding == Sharding::kZero1 || work.sharding == Sharding::kZero2, work);
  const double weights = shared(full, work);
  const std::vector<Matrices> trained = trained_matrices(work);
  const double vectors = trained_vectors(work);
  m.weights = (bytes_in(trained, 2, cpu) + (cpu ? 0 : 2 * vectors)) * weights;
  if (work.lora_rank > 0) {
    const double each = work.lora_base_fp8 ? 1 : 2;
    m.weights += (bytes_in(block_matrices(work.shape), each, cpu) +
                  bytes_in(head_matrices(work.shape), 2, cpu) +
                  2 * static_cast<double>(vector_parameters(work.shape))) *
                 weights;
    if (work.lora_base_fp8)
      m.scales += static_cast<double>(matrix_parameters(work.shape)) / (128.0 * 128.0) * 4;
  }
  const bool has_masters = work.master == StateType::kFp32;
  m.masters = ((has_masters ? bytes_in(trained, 4, cpu) : 0) + 4 * vectors) * states;
  m.moments = (2 * bytes_in(trained, bytes_of(work.moments), cpu) + 8 * vectors) * states;
  if (work.moments == StateType::kFp8) m.scales += 2 * kScaleShare * value_count(trained) * states;
  if (!work.fp8) return;
  // Copies live for the step unless memory is short; recipes that are not symmetric give each copy
  // back after its GEMM. A GPU has a transposed copy beside the first, unless its GEMMs take
  // operands of one scale as they lie; the rehearsal one that holds its codes as BF16.
  const fp8::Granularity granularity = fp8::traits_of(work.recipe).weights;
  const bool symmetric = fp8::is_symmetric(granularity);
  const bool short_of_memory = work.recompute && !cpu;
  const double codes =
      fp8_weight_share(work.shape, work.fp8_shares) * bytes_in(block_matrices(work.shape), 1, cpu);
  // Fully sharded: each GPU keeps the codes of its rows, which it sends for every block; those of a
  // whole block come and go (whole_units()).
  if (full) {
    if (work.fp8_gather && weights < 1) m.fp8_weights = (symmetric ? 1 : 2) * codes * weights;
    return;
  }
  if (short_of_memory || (!symmetric && work.accumulation == 1)) return;
  const bool any_layout =
      !cpu && granularity == fp8::Granularity::kTensor && fp8::takes_any_layout(work.capability);
  m.fp8_weights = (any_layout ? 1 : 2) * codes;
}

// What is whole for a moment of matrices whose rows are spread over GPUs: the weights of a block at
// work and of the next one, the gradients of a block at work and of the one on its way. The
// embedding and the head come and go likewise.
struct WholeUnits {
  double head_weights = 0, head_gradients = 0;
  double waiting_head = 0;  // the head's gradient before it travels
  double block_weights = 0, block_gradients = 0;
};
WholeUnits whole_units(const MemoryWork& work) {
  const Shape& s = work.shape;
  const double head = static_cast<double>(s.vocab * s.hidden);
  const double block = static_cast<double>(matrix_parameters(s)) / static_cast<double>(s.layers);
  WholeUnits units;
  const bool full = work.sharding == Sharding::kFull;
  if (full) {
    units.head_weights = 2 * head;
    // Codes for both GEMMs of the block at work, and for one of the next.
    units.block_weights = work.fp8 && work.fp8_gather ? 3.0 / 2 * block : 2 * block;
  }
  if ((full || work.sharding == Sharding::kZero2) && work.lora_rank == 0) {
    const double each = bytes_of(work.gradients);
    const double sent = work.reduced_gradients == each ? 0 : work.reduced_gradients;
    units.head_gradients = (each + sent) * head;
    units.waiting_head = each * head;
    units.block_gradients = (each + sent / 2) * block;  // a copy travels of one of the two
  }
  return units;
}

// Bytes of a block's largest matrix in BF16, but attention's, which are never the largest.
double largest_weight(const Shape& s) {
  const int64_t up = s.dense_layers() > 0 ? s.up_width() : 2 * s.expert_ffn;
  return 2 * static_cast<double>(std::max(up, s.experts > 0 ? s.qkv_width() : 0) * s.hidden);
}

// A moment of the step that may be the fullest, and what it holds beside the states.
struct Moment {
  const char* name;
  double gradients = 0, activations = 0, logits = 0, buffers = 0;
  double total() const { return gradients + activations + logits + buffers; }
};

std::vector<Moment> moments_of(const MemoryWork& work, bool keeps_codes) {
  const Shape& s = work.shape;
  const bool cpu = work.cpu;
  const double tokens = static_cast<double>(work.batch * work.length);
  const double h = static_cast<double>(s.hidden), vocab = static_cast<double>(s.vocab);

  // Gradients: FP32 ones stay; BF16 ones come with the backward pass and go with the update.
  const std::vector<Matrices> trained = trained_matrices(work);
  const double share =
      shared(work.sharding == Sharding::kFull || work.sharding == Sharding::kZero2, work);
  const double vectors = 4 * trained_vectors(work) * share;
  // Of rows that are spread, each GPU keeps its own sums, in FP32.
  const double kept_gradient = share < 1 ? 4 : bytes_of(work.gradients);
  const double gradients = bytes_in(trained, kept_gradient, cpu) * share + vectors;
  const bool come_and_go =
      work.gradients != StateType::kFp32 && work.accumulation == 1 && share == 1;
  const WholeUnits whole = whole_units(work);
  const double early = come_and_go ? vectors : gradients;
  const double head_gradient =
      come_and_go && work.lora_rank == 0 ? held(2 * vocab * h, cpu) * share : 0;

  // What waits for the backward pass; at the ends the embedding, the last norm and its gradient.
  const double dense_block = s.dense_layers() > 0 ? kept_per_block(work, tokens, false) : 0;
  const double sparse_block = s.sparse_layers() > 0 ? kept_per_block(work, tokens, true) : 0;
  const double per_block = std::max(dense_block, sparse_block);
  const double state = held(tokens * h * 2, cpu);
  const double kept = work.recompute ? static_cast<double>(s.layers) * 2 * state
                                     : static_cast<double>(s.dense_layers()) * dense_block +
                                           static_cast<double>(s.sparse_layers()) * sparse_block;
  const double ends = 3 * state;

  const double rows =
      std::min(tokens, cpu ? kCpuLossRows : std::max(1.0, std::floor(kLossElements / vocab)));
  // Their gradient takes their place.
  const double logits = held(rows * vocab * 2, cpu) + head_gradient;

  // The largest weight of a block, made for one GEMM.
  const bool makes_weights = work.lora_base_fp8 || (work.fp8 && !keeps_codes);
  // A block that is computed again has its norms' sums already: they are what was kept of it.
  const double passing = tokens * passing_per_token(work) +
                         (work.recompute ? per_block - 2 * state : 0) +
                         (makes_weights ? largest_weight(s) : 0);
  const double loss = whole.head_weights + whole.waiting_head + whole.block_weights;
  // The gradient of an embedding that is the head too waits for the end.
  const double backward = 2 * whole.block_weights + whole.block_gradients +
                          (s.tied ? whole.waiting_head + whole.block_gradients
                                  : std::max(whole.block_gradients, whole.head_gradients));
  const double end = whole.block_weights + whole.head_gradients + whole.block_gradients;
  return {
      {"loss", early, kept + ends, logits, loss},
      {"backward pass", early + head_gradient, kept, 0, passing + backward},
      {"end of the backward pass", gradients, work.recompute ? ends : per_block, 0, passing + end},
      {"optimizer", gradients, 0, 0, 0}};
}

}  // namespace

MemoryWork memory_work(const config::Settings& s, const Shape& shape) {
  MemoryWork work;
  work.shape = shape;
  work.batch = s.batch_size;
  work.length = s.max_seq_length;
  work.accumulation = s.gradient_accumulation_steps;
  work.fp8 = s.use_fp8 || s.mixed_precision == config::Precision::kFp8;
  work.recipe = config::fp8_recipe_of(s);
  work.fp8_shares = fp8_shares(shape, s.fp8_skip, work.recipe);
  work.recompute = s.gradient_checkpointing;
  work.lora_rank = s.lora_rank;
  work.lora_targets = lora_targets(s);
  work.lora_base_fp8 = s.lora_base == config::LoraBase::kFp8;
  work.master = s.master_dtype;
  work.moments = s.moment_dtype;
  work.gradients = s.gradient_dtype;
  work.cpu = s.device == config::DeviceChoice::kCpu;
  work.fp8_gather = s.fp8_all_gather;
  work.reduced_gradients = bytes_of(s.grad_reduce_dtype);
  return work;
}

Memory memory(const MemoryWork& work) {
  Memory m;
  add_states(work, m);
  const double states = m.weights + m.masters + m.moments + m.scales + m.fp8_weights;
  const std::vector<Moment> all = moments_of(work, m.fp8_weights > 0);
  const Moment& fullest =
      *std::max_element(all.begin(), all.end(),
                        [](const Moment& a, const Moment& b) { return a.total() < b.total(); });
  m.moment = fullest.name;
  m.gradients = fullest.gradients;
  m.activations = fullest.activations;
  m.logits = fullest.logits;
  m.buffers = fullest.buffers + (work.cpu ? 0 : kLibraries);
  const double used = states + m.gradients + m.activations + m.logits + m.buffers;
  m.fragmentation = kFragmentation * used;
  m.total = used + m.fragmentation;
  m.widest = 2 * static_cast<double>(work.batch * work.length * work.shape.up_width());
  return m;
}

bool has_room(const Memory& memory, double limit) {
  // Of 50 peaks of the allocator the forecasts are off by 2.1% at most. It ran out of memory with
  // 2.9 times the widest tensor free in pieces (a card of 16 GB, blocks computed again).
  constexpr double kInexact = 0.03, kPieces = 3;
  return memory.total + std::max(kInexact * limit, kPieces * memory.widest) <= limit;
}

}  // namespace octavo::plan
