// Mistakes made on purpose: each must be refused or give wrong numbers.

#include <cstdio>

#include "gpu_gemms.h"

namespace octavo::gemms {
namespace {

using at::Tensor;
using engine::Fp8Copy;
using engine::Fp8Matrix;
using fp8::Direction;
using fp8::Granularity;

Fp8Copy& copy_of(Fp8Matrix& m, Direction d) {
  return d == Direction::kRow ? m.row : m.column;
}

struct Mutation {
  std::string name;
  std::function<void(Problem&)> apply;
};

Fp8Copy& left_of(Problem& p) {
  return copy_of(p.left, left_copy(p.gemm));
}
Fp8Copy& right_of(Problem& p) {
  return copy_of(p.right, right_copy(p.gemm));
}
// The same bytes in the other order under the same shape.
void reorder(Tensor& t) {
  t = t.t().contiguous().view(t.sizes());
}
void change_format(Problem& p) {
  fp8::Side& side = left_copy(p.gemm) == Direction::kRow ? p.left.row_side : p.left.column_side;
  side.format = side.format == fp8::Format::kE4M3 ? fp8::Format::kE5M2 : fp8::Format::kE4M3;
}
Tensor without_padding(Problem& p) {
  return right_of(p).scales.narrow(1, 0, up_to(extents_of(p).k, 128) / 128).contiguous();
}
// Closed up, but with the size that the call wants.
void close_up(Problem& p) {
  const Tensor closed = without_padding(p);
  Tensor made = at::zeros_like(right_of(p).scales);
  made.view({-1}).narrow(0, 0, closed.numel()).copy_(closed.view({-1}));
  right_of(p).scales = made;
}
void unswizzle(Problem& p) {
  const int64_t tiles = up_to(extents_of(p).m, 128) / 128,
                fours = up_to(extents_of(p).k, 128) / 128;
  Tensor& scales = left_of(p).scales;
  scales = scales.view({tiles, fours, 32, 4, 4}).permute({0, 3, 2, 1, 4}).contiguous().view({-1});
}

std::vector<Mutation> mutations_of(const Problem& p) {
  const Granularity left = p.left.side(left_copy(p.gemm)).granularity,
                    right = p.right.side(right_copy(p.gemm)).granularity;
  std::vector<Mutation> result = {
      {"left codes in the wrong layout", [](Problem& q) { reorder(left_of(q).codes); }},
      {"right codes in the wrong layout", [](Problem& q) { reorder(right_of(q).codes); }},
      {"the left scales for both", [](Problem& q) { right_of(q).scales = left_of(q).scales; }},
      {"left codes read in the other format", change_format}};
  if (left != Granularity::kTensor)  // the product of two scales does not care
    result.push_back(
        {"scales swapped", [](Problem& q) { std::swap(left_of(q).scales, right_of(q).scales); }});
  if (left == Granularity::kBlock128)
    result.push_back(
        {"left scales not block by block", [](Problem& q) { reorder(left_of(q).scales); }});
  if (right == Granularity::kSquare128) {
    result.push_back({"right scales without padding",
                      [](Problem& q) { right_of(q).scales = without_padding(q); }});
    result.push_back({"right scales closed up", close_up});
  }
  if (left == Granularity::kBlock32) result.push_back({"left scales not swizzled", unswizzle});
  return result;
}

// A mutation may change nothing: of one block, or of a square of the same numbers.
bool differs(const Problem& a, const Problem& b) {
  const auto same = [](const Tensor& x, const Tensor& y) {
    return x.sizes() == y.sizes() && x.eq(y).all().item<bool>();
  };
  Problem left = a, right = b;
  return !same(left_of(left).codes, left_of(right).codes) ||
         !same(right_of(left).codes, right_of(right).codes) ||
         !same(left_of(left).scales, left_of(right).scales) ||
         !same(right_of(left).scales, right_of(right).scales) ||
         a.left.row_side != b.left.row_side || a.left.column_side != b.left.column_side;
}

}  // namespace

void check_mutations(const Backend& backend, const Problem& p, Tally& tally) {
  if (!backend.is_native || !is_computed(p, backend)) return;
  for (const Mutation& mutation : mutations_of(p)) {
    Problem changed = p;
    mutation.apply(changed);
    if (!differs(p, changed)) continue;
    ++tally.mutations;
    const bool caught = !run_on_device(backend, changed).empty();
    tally.caught += caught ? 1 : 0;
    if (!caught) std::printf("NOT CAUGHT %s: %s\n", text_of(p).c_str(), mutation.name.c_str());
  }
}

}  // namespace octavo::gemms
