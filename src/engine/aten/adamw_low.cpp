// Kernels of libtorch one after the other, over chunks small enough that all temporaries together
// stay below 1 GB. Integers that FP32 bits are seen as do the rounding: 2^-120 times a number has
// the exponent of the eight-bit codes (subnormals included), so that the bits of a code and those
// that are lost lie in one word, and adding a random number below the lost ones rounds up with
// the right probability.

#include "engine/aten/adamw_low.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "base/random.h"
#include "engine/torch_version.h"
#include "kernels/adamw_storage.h"

namespace octavo::engine::aten {
namespace {

using adamw::kBlock;
using at::Tensor;

constexpr int64_t kChunk = int64_t{1} << 24;
constexpr double kToCodes = 0x1p-120, kFromCodes = 0x1p120;
constexpr int64_t kFirstLost = 20, kSecondLost = 19;  // bits that a code does not have
constexpr int64_t kBf16Lost = 16;

Tensor bits_of_floats(const Tensor& t) {
  return t.view(at::kInt);
}

// [blocks, 128], the last one filled up with zeros.
Tensor in_blocks(const Tensor& t) {
  const int64_t rest = t.numel() % kBlock;
  return (rest == 0 ? t : at::constant_pad_nd(t, {0, kBlock - rest})).view({-1, kBlock});
}

bool is_coded(const AdamW::Moment& moment) {
  return moment.values.scalar_type() == at::kByte;
}

// The largest finite or not, as the scale of its block.
Tensor scales_of(const Tensor& blocks) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  return at::linalg_vector_norm(blocks, kInfinity, {1}, /*keepdim=*/true)
      .mul_(1.0f / 448)
      .clamp_min_(0x1p-126);
}

// Rounds FP32 to BF16 in place of `into`. NaN with all bits set, which GPUs make, would become zero
// when something is added to it.
void store_bf16(const Tensor& value, const Tensor& random, Tensor& into) {
  Tensor bits = bits_of_floats(value).clamp_max(0x7FC00000).add_(random);
  into.view(at::kShort).copy_(bits.bitwise_right_shift_(kBf16Lost));
}

void store_first(const Tensor& value, const Tensor& random, AdamW::Moment& moment) {
  Tensor blocks = in_blocks(value);
  moment.scales.copy_(scales_of(blocks).squeeze(1));
  Tensor scaled = at::mul(blocks, moment.scales.reciprocal().unsqueeze(1)).mul_(kToCodes);
  bits_of_floats(scaled)
      .view({-1})
      .narrow(0, 0, random.numel())
      .add_(random)
      .bitwise_and_(~((int64_t{1} << kFirstLost) - 1));
  moment.values.view(at::kFloat8_e4m3fn)
      .copy_(scaled.mul_(kFromCodes).clamp_(-448, 448).view({-1}).narrow(0, 0, random.numel()));
}

// The root; the mean of its square is right (see adamw_storage.h): the next number is taken when
// the random share of the way between the two squares is less than what was gone of it.
void store_second(const Tensor& root, const Tensor& random, const Tensor& codes,
                  AdamW::Moment& moment) {
  const Tensor blocks = in_blocks(root);
  moment.scales.copy_(scales_of(blocks).squeeze(1));
  const Tensor scaled = at::mul(blocks, moment.scales.reciprocal().unsqueeze(1))
                            .view({-1})
                            .narrow(0, 0, root.numel());
  constexpr int64_t kStep = int64_t{1} << kSecondLost;
  Tensor number = bits_of_floats(at::mul(scaled, kToCodes)).bitwise_and_(~(kStep - 1));
  const auto square_of = [](const Tensor& bits) {
    return at::mul(bits.view(at::kFloat), kFromCodes).square_();
  };
  const Tensor below = square_of(number);
  const Tensor way = square_of(number.add(kStep)).sub_(below).mul_(random);
  const Tensor gone = scaled.square().sub_(below).mul_(double{1 << kFirstLost});
  number.bitwise_right_shift_(kSecondLost).add_(way.lt(gone));
  number.clamp_(adamw::kMinSecond, adamw::kMaxSecond).masked_fill_(scaled.eq(0), 0);
  at::index_select_out(moment.values, codes, 0, number);
}

Tensor decoded_first(const AdamW::Moment& m) {
  if (!is_coded(m)) return m.values.to(at::kFloat);
  const Tensor values = in_blocks(m.values.view(at::kFloat8_e4m3fn).to(at::kFloat));
  return at::mul(values, m.scales.unsqueeze(1)).view({-1}).narrow(0, 0, m.values.numel());
}

Tensor decoded_second(const AdamW::Moment& v, const Tensor& values_of_codes) {
  if (!is_coded(v)) return v.values.to(at::kFloat);
  const Tensor values = in_blocks(values_of_codes.index_select(0, v.values.to(at::kInt)));
  return at::mul(values, v.scales.unsqueeze(1)).square_().view({-1}).narrow(0, 0, v.values.numel());
}

AdamW::Moment part_of(const AdamW::Moment& moment, int64_t first, int64_t count) {
  return {moment.values.view({-1}).narrow(0, first, count),
          moment.scales.defined()
              ? moment.scales.narrow(0, first / kBlock, adamw::block_count(count))
              : Tensor()};
}

// What random numbers are for: each use draws others.
enum Draw : int64_t { kForMaster, kForSecond, kForFirst, kForCodes, kDraws };
constexpr int64_t kNumbersOfCounter = 4;  // that Philox makes of one counter

int64_t chunks_of(const AdamW::Update& u) {
  return (u.master.numel() + kChunk - 1) / kChunk;
}

// What numbers are drawn by, [chunks of all updates, draws, 2]: a seed, and the counter of the
// chunk's first element, which is counted in the whole parameter. So an element's number depends on
// the parameter, the step and its own place, and not on the shard that it is in.
Tensor keys_of(const std::vector<AdamW::Update*>& updates) {
  const at::Device device = updates[0]->master.device();
  int64_t chunks = 0;
  for (const AdamW::Update* u : updates) chunks += chunks_of(*u);
  Tensor keys = at::empty({chunks, kDraws, 2},
                          at::TensorOptions(at::kUInt64).pinned_memory(device.is_cuda()));
  auto* key = keys.mutable_data_ptr<uint64_t>();
  for (const AdamW::Update* u : updates) {
    const AdamW::Hyper& h = u->hyper;
    OCTAVO_ASSERT(h.first % kNumbersOfCounter == 0);
    for (int64_t chunk = 0; chunk < chunks_of(*u); ++chunk)
      for (uint64_t draw = 0; draw < kDraws; ++draw) {
        *key++ = mix64(h.seed * 0x9E3779B97F4A7C15ull + h.stream + draw);
        *key++ = static_cast<uint64_t>((h.first + chunk * kChunk) / kNumbersOfCounter);
      }
  }
  return keys.to(device, /*non_blocking=*/true);
}

}  // namespace

struct LowAdamW::Chunk {
  Tensor master;
  AdamW::Moment m, v;
  Tensor grad;
  Tensor keys;

  // Numbers of [0, 2^bits), int32, one for each element.
  Tensor draw(Draw what, int64_t bits) const {
    Tensor numbers = at::empty({master.numel()}, master.options().dtype(at::kInt));
    return libtorch::philox_bits(numbers, keys.select(0, what), bits);
  }
};

void LowAdamW::step_all(const std::vector<AdamW::Update*>& updates) {
  static_assert(kChunk % kBlock == 0);
  if (updates.empty()) return;
  const Tensor keys = keys_of(updates);
  int64_t number = 0;
  for (const AdamW::Update* u : updates) {
    if (is_coded(u->v)) make_tables(u->master);
    const int64_t total = u->master.numel();
    const Tensor master = u->master.view({-1}), grad = u->grad.view({-1});
    for (int64_t first = 0; first < total; first += kChunk) {
      const int64_t count = std::min(kChunk, total - first);
      Chunk chunk{master.narrow(0, first, count), part_of(u->m, first, count),
                  part_of(u->v, first, count), grad.narrow(0, first, count),
                  keys.select(0, number++)};
      step_chunk(chunk, u->hyper);
    }
  }
}

// Made on the host once, for each device.
void LowAdamW::make_tables(const Tensor& like) {
  if (second_values_.defined() && second_values_.device() == like.device()) return;
  Tensor values = at::empty({256}, at::kFloat), codes = at::empty({256}, at::kByte);
  for (int i = 0; i < 256; ++i) {
    const uint32_t number = adamw::number_of_second(static_cast<uint8_t>(i));
    values.mutable_data_ptr<float>()[i] = adamw::value_of_second(number);
    codes.mutable_data_ptr<uint8_t>()[number] = static_cast<uint8_t>(i);
  }
  second_values_ = values.to(like.device());
  second_codes_ = codes.to(like.device());
}

void LowAdamW::step_chunk(Chunk& c, const AdamW::Hyper& hyper) {
  const adamw::Factors f = adamw::factors_of(hyper);
  const double scale = f.grad_scale;
  // What is FP32 already is changed where it is.
  Tensor m = decoded_first(c.m).mul_(f.beta1).add_(c.grad, scale * f.rest1);
  Tensor v = decoded_second(c.v, second_values_)
                 .mul_(f.beta2)
                 .addcmul_(c.grad, c.grad, scale * scale * f.rest2);
  const Tensor root = v.sqrt();
  Tensor w = c.master.to(at::kFloat).mul_(f.keep).addcdiv_(m, root.add(f.eps_hat), -f.lr_hat);
  if (c.master.scalar_type() == at::kBFloat16)
    store_bf16(w, c.draw(kForMaster, kBf16Lost), c.master);
  w.reset();
  if (c.v.values.scalar_type() == at::kBFloat16)
    store_bf16(v, c.draw(kForSecond, kBf16Lost), c.v.values);
  v.reset();
  if (c.m.values.scalar_type() == at::kBFloat16)
    store_bf16(m, c.draw(kForFirst, kBf16Lost), c.m.values);
  Tensor random;
  if (is_coded(c.m) || is_coded(c.v)) random = c.draw(kForCodes, kFirstLost);
  if (is_coded(c.m)) store_first(m, random, c.m);
  m.reset();
  if (is_coded(c.v)) store_second(root, random, second_codes_, c.v);
}

}  // namespace octavo::engine::aten
