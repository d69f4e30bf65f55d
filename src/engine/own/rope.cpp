// Rotary positions where the rows lie, and gradients of q, k and v rotated back on their way into
// packed rows.

#include <ATen/ATen.h>

#include "base/error.h"
#include "engine/own/library.h"
#include "engine/own/own.h"
#include "engine/traffic.h"

namespace octavo::engine::own {
namespace {

using at::Tensor;
using kernels::Stored;

class OwnRope final : public Rope {
 public:
  explicit OwnRope(const OctavoKernels& kernels) : kernels_(kernels) {}

  void rotate(Tensor& x, const Tensor& positions, const Tensor& table, int64_t heads,
              bool back) override {
    const int64_t dim = table.size(1);
    OCTAVO_ASSERT(x.dim() == 2 && x.is_contiguous() && heads * dim <= x.size(1));
    if (x.numel() == 0 || heads == 0) return;
    kernels::RopeArguments arguments = arguments_of(x, positions, table);
    arguments.heads = static_cast<int32_t>(heads);
    arguments.back = back;
    launch(arguments, x);
    const int64_t bytes = x.size(0) * heads * dim * x.element_size();
    note_traffic("octavo_rope", bytes, bytes);
  }

  bool packs() const override { return true; }
  Tensor packed_back(const Tensor& dq, const Tensor& dk, const Tensor& dv, const Tensor& positions,
                     const Tensor& table) override {
    const int64_t rows = dq.size(0), dim = table.size(1);
    const Tensor out = at::empty({rows, dq.size(1) + dk.size(1) + dv.size(1)}, dq.options());
    for (const Tensor& t : {dq, dk, dv})
      OCTAVO_ASSERT(t.dim() == 2 && t.is_contiguous() && t.size(0) == rows &&
                    t.size(1) % dim == 0 && t.scalar_type() == dq.scalar_type());
    if (out.numel() == 0) return out;
    kernels::RopeArguments arguments = arguments_of(out, positions, table);
    const auto heads_of = [&](const Tensor& t) { return static_cast<int32_t>(t.size(1) / dim); };
    arguments.heads = heads_of(dq) + heads_of(dk);
    arguments.back = true;
    arguments.packs = {.q = dq.const_data_ptr(),
                       .k = dk.const_data_ptr(),
                       .v = dv.const_data_ptr(),
                       .q_heads = heads_of(dq),
                       .k_heads = heads_of(dk),
                       .v_heads = heads_of(dv)};
    launch(arguments, out);
    note_traffic("octavo_rope_pack", {dq, dk, dv}, {out});
    return out;
  }

 private:
  static kernels::RopeArguments arguments_of(const Tensor& x, const Tensor& positions,
                                             const Tensor& table) {
    OCTAVO_ASSERT(table.scalar_type() == at::kFloat && table.is_contiguous() &&
                  table.size(1) % 2 == 0 && positions.scalar_type() == at::kInt &&
                  positions.is_contiguous() && positions.numel() == x.size(0));
    return {.x = x.mutable_data_ptr(),
            .positions = positions.const_data_ptr<int32_t>(),
            .table = table.const_data_ptr<float>(),
            .rows = x.size(0),
            .row = x.size(1),
            .heads = 0,
            .dim = static_cast<int32_t>(table.size(1)),
            .back = false,
            .packs = {}};
  }
  void launch(const kernels::RopeArguments& arguments, const Tensor& x) const {
    OCTAVO_ASSERT(x.scalar_type() == at::kBFloat16 || x.scalar_type() == at::kFloat);
    const Stored stored = x.scalar_type() == at::kFloat ? Stored::kFp32 : Stored::kBf16;
    launch_for(x, kernels_, "rotary positions", [&](const OctavoKernels& all, void* stream) {
      return all.rope(stored, arguments, stream);
    });
  }

  const OctavoKernels& kernels_;
};

}  // namespace

std::unique_ptr<Rope> make_rope(const OctavoKernels& kernels) {
  return std::make_unique<OwnRope>(kernels);
}
std::unique_ptr<Rope> make_rope() {
  return make_rope(found_kernels());
}

}  // namespace octavo::engine::own
