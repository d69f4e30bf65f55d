#include <ATen/ATen.h>

#include "engine/aten/aten.h"

namespace octavo::engine::aten {
namespace {

using at::Tensor;

// The angles of each row, which all layers of a step share.
class Angles {
 public:
  struct Rows {
    Tensor cosine, sine, minus_sine;  // [T,1,D/2] FP32
  };
  const Rows& of(const Tensor& positions, const Tensor& table) {
    if (same(positions, positions_, positions_version_) && same(table, table_, table_version_))
      return rows_;
    const auto halves = table.index_select(0, positions).unsqueeze(1).chunk(2, 2);
    rows_ = {halves[0], halves[1], halves[1].neg()};
    keep(positions, positions_, positions_version_);
    keep(table, table_, table_version_);
    return rows_;
  }

 private:
  // A tensor that is held cannot be another one at the same address; writing to it shows in its
  // version. Tensors of inference mode have none.
  static bool same(const Tensor& t, const Tensor& kept, uint32_t version) {
    return kept.defined() && t.is_same(kept) && t._version() == version;
  }
  static void keep(const Tensor& t, Tensor& kept, uint32_t& version) {
    kept = t.is_inference() ? Tensor() : t;
    version = t.is_inference() ? 0 : static_cast<uint32_t>(t._version());
  }

  Tensor positions_, table_;
  uint32_t positions_version_ = 0, table_version_ = 0;
  Rows rows_;
};

struct AtenRope final : Rope {
  // Both halves of a head at once: x[j] = other half * (+-sine) + x[j] * cosine, in FP32.
  void rotate(Tensor& x, const Tensor& positions, const Tensor& table, int64_t heads,
              bool back) override {
    const int64_t dim = table.size(1);
    const Angles::Rows& rows = angles_.of(positions, table);
    Tensor part = x.narrow(1, 0, heads * dim).unflatten(1, {heads, 2, dim / 2});
    const Tensor first = part.select(2, 0), second = part.select(2, 1);
    Tensor turned = at::empty(part.sizes(), x.options().dtype(at::kFloat));
    Tensor turned_first = turned.select(2, 0), turned_second = turned.select(2, 1);
    at::mul_out(turned_first, second, back ? rows.sine : rows.minus_sine);
    at::mul_out(turned_second, first, back ? rows.minus_sine : rows.sine);
    at::addcmul_out(part, turned, part, rows.cosine.unsqueeze(1));
  }

  Angles angles_;
};

}  // namespace

std::unique_ptr<Rope> make_rope() {
  return std::make_unique<AtenRope>();
}

}  // namespace octavo::engine::aten
