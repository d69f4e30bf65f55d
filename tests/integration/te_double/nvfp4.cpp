// NVFP4: quantizing, the Hadamard transform, and scales in the order of GEMMs. Written from the
// library's headers and documents, with src/fp8/nvfp4.h's rule for one matrix.

#include "fp8/nvfp4.h"

#include <transformer_engine/cast.h>
#include <transformer_engine/hadamard_transform.h>
#include <transformer_engine/swizzle.h>

#include <bit>
#include <cmath>
#include <cstring>

#include "configs.h"
#include "te_double.h"

namespace te_double {
namespace {

using octavo::engine::Fp8Copy;
using octavo::fp8::Format;
using octavo::fp8::Granularity;
using octavo::fp8::Nvfp4Blocks;

constexpr int64_t kBlock = 16;
constexpr uint8_t kPoison = 0x7F;  // a NaN in E4M3: what kernels do not write

int64_t up(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// One storage of a tensor: the matrix [across, along] whose rows are summed over.
struct Storage {
  const NVTEBasicTensor &data, &scales, &amax;
  int64_t across, along;
  int64_t stride() const { return up(along / kBlock, 4); }
  int64_t scale_count() const { return up(across, 128) * stride(); }
};

Storage storage_of(const Tensor& t, bool column) {
  const NVTEBasicTensor& data = t.of(column ? kNVTEColumnwiseData : kNVTERowwiseData);
  check(t.is_fp4() && data.dtype == kNVTEFloat4E2M1 && data.shape.ndim == 2, "wanted E2M1 codes");
  const Storage s{data, t.of(column ? kNVTEColumnwiseScaleInv : kNVTERowwiseScaleInv),
                  t.of(column ? kNVTEColumnwiseAmax : kNVTEAmax),
                  static_cast<int64_t>(data.shape.data[0]),
                  static_cast<int64_t>(data.shape.data[1])};
  check(s.across % kBlock == 0 && s.along % kBlock == 0, "sides that are no multiples of 16");
  check(s.scales.dtype == kNVTEFloat8E4M3 && s.scales.data_ptr != nullptr &&
            s.scales.shape.ndim == 2 &&
            static_cast<int64_t>(s.scales.shape.data[0]) == up(s.across, 128) &&
            static_cast<int64_t>(s.scales.shape.data[1]) == s.stride(),
        "E4M3 scales of a wrong shape");
  return s;
}

float* amax_of(const NVTEBasicTensor& basic) {
  check(basic.data_ptr != nullptr && basic.dtype == kNVTEFloat32 && basic.shape.ndim == 1 &&
            basic.shape.data[0] == 1,
        "wanted one amax");
  return static_cast<float*>(basic.data_ptr);
}

// Where GEMMs want the scale (i, j): tiles of 128 x 4, as those of mxfp8.
int64_t swizzled(const Storage& s, int64_t i, int64_t j) {
  return (i / 128 * (s.stride() / 4) + j / 4) * 512 + i % 32 * 16 + i % 128 / 32 * 4 + j % 4;
}

octavo::fp8::Nvfp4Rounding rounding_of(const QuantizationConfig& config) {
  if (!config.stochastic) return {};
  check(config.draws != nullptr, "stochastic rounding without its state");
  const NVTEBasicTensor& state = tensor(config.draws).of(kNVTERowwiseData);
  check(state.dtype == kNVTEInt64 && state.shape.ndim == 1 && state.shape.data[0] == 2,
        "the state of draws is two 64-bit numbers");
  const auto* words = static_cast<const uint64_t*>(state.data_ptr);
  return {.stochastic = true, .seed = words[0], .stream = words[1]};
}

void write_copy(const at::Tensor& values, const Storage& s, const QuantizationConfig& config) {
  const at::Tensor floats = values.to(at::kFloat).contiguous();
  check(floats.size(0) == s.across && floats.size(1) == s.along,
        "input and output have different shapes");
  const auto made = octavo::fp8::quantize_nvfp4(
      {floats.const_data_ptr<float>(), static_cast<size_t>(floats.numel())}, s.across, s.along,
      config.squares ? Nvfp4Blocks::k16x16 : Nvfp4Blocks::k1x16, rounding_of(config));
  check(*amax_of(s.amax) == made.amax, "an amax that is not of what is quantized");
  const std::vector<uint8_t> bytes = octavo::fp8::packed(made.codes);
  std::memcpy(s.data.data_ptr, bytes.data(), bytes.size());
  auto* scales = static_cast<uint8_t*>(s.scales.data_ptr);
  std::memset(scales, kPoison, static_cast<size_t>(s.scale_count()));
  const int64_t height = config.squares ? kBlock : 1, blocks = s.along / kBlock;
  for (int64_t i = 0; i < s.across; ++i)
    for (int64_t j = 0; j < blocks; ++j)
      scales[i * s.stride() + j] = made.scales[static_cast<size_t>(i / height * blocks + j)];
}

// Every 16 values of a row: times their signs, times Sylvester's matrix, over 4; rounded to BF16.
at::Tensor rotate(const at::Tensor& values, int signs) {
  const at::Tensor from = values.to(at::kFloat).contiguous();
  check(from.size(1) % kBlock == 0 && from.size(0) % kBlock == 0,
        "sides that are no multiples of 16");
  at::Tensor made = at::empty(from.sizes(), at::kFloat);
  for (int64_t first = 0; first < from.numel(); first += kBlock)
    for (unsigned j = 0; j < kBlock; ++j) {
      double sum = 0;
      for (unsigned i = 0; i < kBlock; ++i) {
        const bool minus = ((std::popcount(i & j) + (signs >> i)) & 1) != 0;
        const double value = from.const_data_ptr<float>()[first + i];
        sum += minus ? -value : value;
      }
      made.mutable_data_ptr<float>()[first + j] = static_cast<float>(sum / 4);
    }
  return made.to(at::kBFloat16);
}

float largest(const at::Tensor& values) {
  const at::Tensor from = values.to(at::kFloat).contiguous();
  float amax = 0;
  for (int64_t i = 0; i < from.numel(); ++i)
    amax = std::fmax(amax, std::fabs(from.const_data_ptr<float>()[i]));
  return amax;
}

}  // namespace

void quantize_nvfp4(const at::Tensor& values, Tensor& out, const QuantizationConfig& config) {
  check(capability() == 100 || capability() == 103, "nvfp4 is of 10.0 and 10.3");
  check(!out.swizzled, "these kernels write compact scales");
  check(values.scalar_type() == at::kBFloat16, "wanted BF16");
  const bool row = out.has(kNVTERowwiseData), column = out.has(kNVTEColumnwiseData);
  check(row || column, "no room for an output");
  check(!(row && column && config.stochastic), "the stand-in has draws of one copy");
  if (row) write_copy(values, storage_of(out, false), config);
  if (column) write_copy(values.t(), storage_of(out, true), config);
}

Fp8Matrix read_nvfp4(const Tensor& t, bool column_storage, Direction direction) {
  check(t.swizzled, "block scales are not in the format expected by GEMMs");
  const Storage s = storage_of(t, column_storage);
  check(s.data.data_ptr != nullptr, "input is missing its copy");
  at::Tensor codes = at::empty({s.across, s.along}, at::kByte);
  const auto* packed = static_cast<const uint8_t*>(s.data.data_ptr);
  for (int64_t i = 0; i < codes.numel(); ++i) {
    const int nibble = packed[i / 2] >> (4 * (i % 2)) & 15;
    codes.mutable_data_ptr<uint8_t>()[i] = static_cast<uint8_t>((nibble & 7) | (nibble & 8) << 4);
  }
  const int64_t blocks = s.along / kBlock;
  at::Tensor scales = at::empty({s.across, blocks}, at::kFloat);
  for (int64_t i = 0; i < s.across; ++i)
    for (int64_t j = 0; j < blocks; ++j)
      scales.mutable_data_ptr<float>()[i * blocks + j] = octavo::fp8::decode(
          Format::kE4M3, static_cast<const uint8_t*>(s.scales.data_ptr)[swizzled(s, i, j)]);
  // The rehearsal has the amax behind its scales.
  const bool row = direction == Direction::kRow;
  check(row != column_storage, "a copy along another sum");
  const at::Tensor ordered = (row ? scales : scales.t()).contiguous().view({-1});
  const Fp8Copy copy{.codes = row ? codes : codes.t().contiguous(),
                     .scales = at::cat({ordered, at::full({1}, *amax_of(s.amax), at::kFloat)}),
                     .values = {}};
  const octavo::fp8::Side side{Format::kE2M1, Granularity::kBlock16};
  Fp8Matrix matrix{.rows = row ? s.across : s.along,
                   .columns = row ? s.along : s.across,
                   .row_side = side,
                   .column_side = side,
                   .row = {},
                   .column = {}};
  (row ? matrix.row : matrix.column) = copy;
  return matrix;
}

}  // namespace te_double

using te_double::check;
using te_double::count_call;
using te_double::tensor;

extern "C" {

void nvte_hadamard_transform(const NVTETensor input, NVTETensor output, int signs, int signs_t,
                             cudaStream_t /*stream*/) {
  count_call("nvte_hadamard_transform");
  check(signs == 0, "the transform of rows is not wanted");
  at::Tensor out = te_double::view(output);
  const at::Tensor made = te_double::rotate(te_double::view(input).t(), signs_t);
  check(out.scalar_type() == at::kBFloat16 && out.sizes() == made.sizes(),
        "wanted room for the transposed matrix");
  out.copy_(made);
}

// Of the matrix, and of the transposed one after the transform.
void nvte_hadamard_transform_amax(const NVTETensor input, NVTETensor output, int signs, int signs_t,
                                  cudaStream_t /*stream*/) {
  count_call("nvte_hadamard_transform_amax");
  check(signs == 0, "the transform of rows is not wanted");
  const auto& out = tensor(output);
  const at::Tensor values = te_double::view(input);
  if (out.has(kNVTEAmax)) *te_double::amax_of(out.of(kNVTEAmax)) = te_double::largest(values);
  if (out.has(kNVTEColumnwiseAmax))
    *te_double::amax_of(out.of(kNVTEColumnwiseAmax)) =
        te_double::largest(te_double::rotate(values.t(), signs_t));
}

void nvte_swizzle_scaling_factors(const NVTETensor input, NVTETensor output,
                                  cudaStream_t /*stream*/) {
  count_call("nvte_swizzle_scaling_factors");
  const auto &in = tensor(input), &out = tensor(output);
  check(!in.swizzled && out.swizzled, "wanted compact scales, and room for swizzled ones");
  const auto from = te_double::storage_of(in, false), to = te_double::storage_of(out, false);
  check(from.across == to.across && from.along == to.along, "scales of another matrix");
  auto* bytes = static_cast<uint8_t*>(to.scales.data_ptr);
  std::memset(bytes, 0, static_cast<size_t>(to.scale_count()));
  for (int64_t i = 0; i < from.across; ++i)
    for (int64_t j = 0; j < from.along / te_double::kBlock; ++j)
      bytes[te_double::swizzled(to, i, j)] =
          static_cast<const uint8_t*>(from.scales.data_ptr)[i * from.stride() + j];
}

}  // extern "C"
