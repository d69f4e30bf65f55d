// Where the build has oneDNN; elsewhere no_onednn.cpp stands in its place.

#include "engine/cpu/gemm.h"

#include <oneapi/dnnl/dnnl.hpp>

#include <algorithm>
#include <optional>
#include <string>
#include <unordered_map>

#include "base/checked.h"
#include "base/error.h"

namespace octavo::engine::cpu {
namespace {

using Type = dnnl::memory::data_type;

const dnnl::engine& cpu_engine() {
  static const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

dnnl::memory::desc describe(int64_t rows, int64_t columns, Type type, int64_t stride,
                            bool transposed) {
  const dnnl::memory::dims strides =
      transposed ? dnnl::memory::dims{1, stride} : dnnl::memory::dims{stride, 1};
  return {{rows, columns}, type, strides};
}

enum class WhoseLayout : uint8_t { kShapes, kKernels };

// Throws dnnl::error when oneDNN has no such GEMM.
dnnl::matmul::primitive_desc describe_gemm(const GemmShape& s, GemmOperands operands,
                                           WhoseLayout of_b = WhoseLayout::kShapes) {
  const Type type = operands == GemmOperands::kBf16 ? Type::bf16 : Type::f32;
  const auto a = describe(s.m, s.k, type, s.lda, s.a_transposed);
  const auto b = of_b == WhoseLayout::kShapes
                     ? describe(s.k, s.n, type, s.ldb, s.b_transposed)
                     : dnnl::memory::desc({s.k, s.n}, type, dnnl::memory::format_tag::any);
  const auto c = describe(s.m, s.n, s.fp32_result ? Type::f32 : Type::bf16, s.ldc, false);
  dnnl::primitive_attr attributes;
  // The library's own scratch memory belongs to the thread that made the primitive.
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (s.add) {
    dnnl::post_ops add;
    add.append_sum(1.0f);
    attributes.set_post_ops(add);
  }
  if (s.scaled) attributes.set_scales_mask(DNNL_ARG_SRC, 0);
  if (!s.bias) return {cpu_engine(), a, b, c, attributes};
  return {cpu_engine(), a, b, describe(1, s.n, Type::f32, s.n, false), c, attributes};
}

class OnednnGemm final : public Gemm {
 public:
  OnednnGemm(const dnnl::matmul::primitive_desc& description, bool scaled)
      : a_(description.src_desc()),
        b_(description.weights_desc()),
        bias_(description.bias_desc()),
        c_(description.dst_desc()),
        scratch_(description.scratchpad_desc()),
        scaled_(scaled),
        primitive_(description) {}

  size_t scratch_bytes() const override { return scratch_.get_size(); }

  void run(const void* a, const void* b, const void* bias, void* c, void* scratch,
           float scale) const override {
    const auto memory = [](const dnnl::memory::desc& desc, const void* data) {
      return dnnl::memory(desc, cpu_engine(), const_cast<void*>(data));
    };
    dnnl::stream stream(cpu_engine());
    std::unordered_map<int, dnnl::memory> arguments = {
        {DNNL_ARG_SRC, memory(a_, a)},
        {DNNL_ARG_WEIGHTS, memory(b_, b)},
        {DNNL_ARG_DST, memory(c_, c)},
        {DNNL_ARG_SCRATCHPAD, memory(scratch_, scratch)}};
    if (bias != nullptr) arguments.emplace(DNNL_ARG_BIAS, memory(bias_, bias));
    if (scaled_) {
      const dnnl::memory::desc one({1}, Type::f32, dnnl::memory::dims{1});
      arguments.emplace(DNNL_ARG_ATTR_SCALES | DNNL_ARG_SRC, memory(one, &scale));
    }
    primitive_.execute(stream, arguments);
    stream.wait();
  }

 private:
  dnnl::memory::desc a_, b_, bias_, c_, scratch_;
  bool scaled_;
  dnnl::matmul primitive_;
};

// Nothing when a matrix has other blocks, or blocks that must be filled up.
std::optional<PairedLayout> pairs_of(const dnnl::memory::desc& b) {
  if (b.get_format_kind() != dnnl::memory::format_kind::blocked ||
      b.get_inner_idxs() != dnnl::memory::dims{0, 1, 0} ||
      b.get_inner_blks() != dnnl::memory::dims{16, 64, 2})
    return std::nullopt;
  const auto size = b.get_dims(), steps = b.get_strides();
  if (size[0] % PairedLayout::kRows != 0 || size[1] % PairedLayout::kColumns != 0)
    return std::nullopt;
  return PairedLayout{steps[0], steps[1]};
}

// Brings b into the order in which the kernel reads it, all of it once, and multiplies then. As it
// is stored the kernel does that block by block for itself, some blocks many times.
class PackingGemm final : public Gemm {
 public:
  PackingGemm(const dnnl::matmul::primitive_desc& description, const dnnl::memory::desc& stored_b,
              bool scaled)
      : stored_(stored_b),
        packed_(description.weights_desc()),
        packing_(describe_packing(stored_, packed_)),
        pack_(packing_),
        gemm_(description, scaled),
        layout_(pairs_of(packed_)) {}

  size_t scratch_bytes() const override {
    return packed_bytes() + std::max(packing_.scratchpad_desc().get_size(), gemm_.scratch_bytes());
  }

  void run(const void* a, const void* b, const void* bias, void* c, void* scratch,
           float scale) const override {
    void* rest = static_cast<std::byte*>(scratch) + packed_bytes();
    if (b != nullptr) pack(b, scratch, rest);
    gemm_.run(a, scratch, bias, c, rest, scale);
  }

  const PairedLayout* layout_of_b() const override { return layout_ ? &*layout_ : nullptr; }

 private:
  static dnnl::reorder::primitive_desc describe_packing(const dnnl::memory::desc& from,
                                                        const dnnl::memory::desc& to) {
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    return {cpu_engine(), from, cpu_engine(), to, attributes};
  }
  size_t packed_bytes() const { return round_up(packed_.get_size(), size_t{64}); }

  void pack(const void* b, void* to, void* scratch) const {
    dnnl::stream stream(cpu_engine());
    const auto memory = [](const dnnl::memory::desc& desc, const void* data) {
      return dnnl::memory(desc, cpu_engine(), const_cast<void*>(data));
    };
    pack_.execute(stream, {{DNNL_ARG_FROM, memory(stored_, b)},
                           {DNNL_ARG_TO, memory(packed_, to)},
                           {DNNL_ARG_SCRATCHPAD, memory(packing_.scratchpad_desc(), scratch)}});
    stream.wait();
  }

  dnnl::memory::desc stored_, packed_;
  dnnl::reorder::primitive_desc packing_;
  dnnl::reorder pack_;
  OnednnGemm gemm_;
  std::optional<PairedLayout> layout_;
};

std::string name_of(dnnl::cpu_isa isa) {
  switch (isa) {
    case dnnl::cpu_isa::sse41:
      return "SSE41";
    case dnnl::cpu_isa::avx:
      return "AVX";
    case dnnl::cpu_isa::avx2:
      return "AVX2";
    case dnnl::cpu_isa::avx2_vnni:
      return "AVX2_VNNI";
    case dnnl::cpu_isa::avx2_vnni_2:
      return "AVX2_VNNI_2";
    case dnnl::cpu_isa::avx512_core:
      return "AVX512_CORE";
    case dnnl::cpu_isa::avx512_core_vnni:
      return "AVX512_CORE_VNNI";
    case dnnl::cpu_isa::avx512_core_bf16:
      return "AVX512_CORE_BF16";
    case dnnl::cpu_isa::avx512_core_fp16:
      return "AVX512_CORE_FP16";
    case dnnl::cpu_isa::avx512_core_amx:
      return "AVX512_CORE_AMX";
    case dnnl::cpu_isa::avx512_core_amx_fp16:
      return "AVX512_CORE_AMX_FP16";
    default:
      return str("instruction set ", static_cast<int>(isa));
  }
}

// Nothing when it has no blocks, or other ones than rows within rows of blocks.
BlockedLayout blocks_of(const dnnl::memory::desc& b) {
  if (b.get_format_kind() != dnnl::memory::format_kind::blocked) return {};
  if (b.get_inner_idxs() != dnnl::memory::dims{0, 1}) return {};
  const auto block = b.get_inner_blks(), steps = b.get_strides();
  return {.rows = block[0],
          .columns = block[1],
          .row_step = steps[0],
          .column_step = steps[1],
          .size = static_cast<int64_t>(b.get_size() / sizeof(float))};
}

// Every kind of GEMM that a run may ask for, tried on one small shape.
std::string find_missing() {
  for (int kind = 0; kind < 64; ++kind) {
    GemmShape shape{.m = 32, .n = 32, .k = 32, .lda = 32, .ldb = 32, .ldc = 32};
    shape.a_transposed = (kind & 1) != 0;
    shape.b_transposed = (kind & 2) != 0;
    shape.fp32_result = (kind & 4) != 0;
    shape.add = (kind & 8) != 0;
    shape.bias = (kind & 16) != 0;
    shape.scaled = (kind & 32) != 0;
    try {
      describe_gemm(shape, GemmOperands::kBf16);
    } catch (const dnnl::error& error) {
      return error.what();
    }
  }
  return {};
}

}  // namespace

std::string gemm_instruction_set() {
  return name_of(dnnl::get_effective_cpu_isa());
}

std::string_view onednn_missing() {
  return {};
}

bool has_bf16_units() {
  const auto isa = static_cast<unsigned>(dnnl::get_effective_cpu_isa());
  const auto units = static_cast<unsigned>(dnnl::cpu_isa::avx512_core_bf16);
  return (isa & units) == units;
}

const std::string& bf16_gemms_missing() {
  static const std::string reason = find_missing();
  return reason;
}

std::unique_ptr<Gemm> make_onednn(const GemmShape& shape, GemmOperands operands) {
  return std::make_unique<OnednnGemm>(describe_gemm(shape, operands), shape.scaled);
}

std::unique_ptr<Gemm> make_onednn_packing(const GemmShape& shape) {
  const auto description = describe_gemm(shape, GemmOperands::kBf16, WhoseLayout::kKernels);
  const auto stored = describe(shape.k, shape.n, Type::bf16, shape.ldb, shape.b_transposed);
  if (description.weights_desc() == stored) return nullptr;
  return std::make_unique<PackingGemm>(description, stored, shape.scaled);
}

std::unique_ptr<Gemm> make_onednn_blocked(const GemmShape& shape, BlockedLayout& layout) {
  const auto description = describe_gemm(shape, GemmOperands::kFp32, WhoseLayout::kKernels);
  layout = blocks_of(description.weights_desc());
  if (layout.rows == 0) return nullptr;
  return std::make_unique<OnednnGemm>(description, shape.scaled);
}

}  // namespace octavo::engine::cpu
