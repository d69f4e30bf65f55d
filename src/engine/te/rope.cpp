#include <ATen/ATen.h>

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "engine/te/te.h"
#include "engine/te/vectors.h"

namespace octavo::engine::te {
namespace {

using at::Tensor;

// The library's kernel takes angles and makes their cosines and sines itself, takes a first
// position per sequence, and writes to a dense tensor of its own. So each row is a sequence of one
// token that begins at the row's position, the angles are taken back from the table (atan2: within
// 1e-7, where BF16 has 4e-3), and what it wrote is copied over the rows.
class TeRope final : public Rope {
 public:
  void rotate(Tensor& x, const Tensor& positions, const Tensor& table, int64_t heads,
              bool back) override {
    check_matrix("x", x);
    const int64_t dim = table.size(1), width = heads * dim;
    OCTAVO_ASSERT(table.scalar_type() == at::kFloat && positions.scalar_type() == at::kInt &&
                  positions.is_contiguous() && positions.numel() == x.size(0) &&
                  width <= x.size(1) && dim % 2 == 0);
    if (x.numel() == 0 || heads == 0) return;
    const OnDevice on(x);
    const Handle angles(angles_of(table)), none, unused;
    // The kernel counts elements in 32 bits.
    const int64_t most = std::min(kMaxRows, std::numeric_limits<int>::max() / x.size(1));
    for (int64_t first = 0; first < x.size(0); first += most) {
      const int64_t rows = std::min(most, x.size(0) - first);
      Tensor part = x.narrow(0, first, rows);
      const Tensor turned = at::empty({1, rows, heads, dim}, x.options());
      Handle in;  // strides are given apart: the rows are longer than the heads to be turned
      in.set(kNVTERowwiseData, part.data_ptr(), kNVTEBFloat16, turned.sizes());
      const Handle starts(positions.narrow(0, first, rows)), out(turned);
      const auto& call =
          back ? library().nvte_fused_rope_backward : library().nvte_fused_rope_forward;
      const auto of = [](int64_t n) { return static_cast<int>(n); };
      call(in, none, angles, starts, out, NVTE_SBHD, /*interleaved=*/false, /*cp_size=*/1,
           /*cp_rank=*/0, /*s=*/1, of(rows), of(heads), of(dim), of(dim),
           /*stride_s=*/0, /*stride_b=*/of(x.size(1)), /*stride_h=*/of(dim),
           /*stride_d=*/1, on.stream);
      part.narrow(1, 0, width).copy_(turned.view({rows, width}));
    }
  }

 private:
  static constexpr int64_t kMaxRows = 65535;  // of a grid's second dimension

  // [P,1,1,D] FP32, made once for each table; the table is held so that no other takes its place.
  const Tensor& angles_of(const Tensor& table) {
    if (!table_.is_same(table)) {
      const auto halves = table.chunk(2, 1);
      const Tensor angles = at::atan2(halves[1], halves[0]);
      angles_ = at::cat({angles, angles}, 1).view({table.size(0), 1, 1, table.size(1)});
      table_ = table;
    }
    return angles_;
  }

  Tensor table_, angles_;
};

}  // namespace

std::unique_ptr<Rope> make_rope() {
  return std::make_unique<TeRope>();
}

}  // namespace octavo::engine::te
