// The side of Sharding that takes gradients to where they are used.

#include <ATen/ATen.h>

#include "base/error.h"
#include "dist/sharding.h"

namespace octavo::dist {

using at::Tensor;
using config::ShardingMode;

namespace {

// zero2 and fsdp_full hold the whole gradients of so many units that are still on their way.
constexpr size_t kMostUnderWay = 1;

}  // namespace

void Sharding::start_reduction(size_t number) {
  Unit& unit = units_[number];
  if (unit.reduced || (keeps_gradients() && !last_pass_)) return;
  unit.reduced = true;
  const bool ddp = options_.mode == ShardingMode::kDdp;
  PendingReduction reduction{.unit = number, .pending = {}, .sent = {}, .received = {}};
  for (const Part& part : unit.spread) {
    nn::Param& p = *part.param;
    if (!p.trainable) continue;
    OCTAVO_ASSERT(!p.grad_fresh);  // no gradient reached it
    const Tensor sent = p.padded_grad.to(options_.reduce_dtype);
    reduction.sent.push_back(sent);
    if (ddp) continue;
    const bool in_place = sent.is_same(p.padded_grad) && !p.own_grad.defined();
    const bool direct = p.own_grad.defined() && p.own_grad_fresh &&
                        p.own_grad.scalar_type() == options_.reduce_dtype;
    reduction.received.push_back(in_place ? sent.narrow(0, p.first_row, p.chunk)
                                 : direct ? p.own_grad
                                          : at::empty({p.chunk, p.sizes()[1]}, sent.options()));
  }
  if (reduction.sent.empty()) return;
  Group& group = world_.reducing();
  reduction.pending =
      ddp ? group.all_reduce(name_of(number), reduction.sent)
          : group.reduce_scatter(name_of(number), reduction.received, reduction.sent);
  reductions_.push_back(std::move(reduction));
  if (!keeps_gradients()) finish_reductions(kMostUnderWay);
}

void Sharding::finish_reductions(size_t most_left) {
  while (reductions_.size() > most_left) {
    finish_reduction(reductions_.front());
    reductions_.erase(reductions_.begin());
  }
}

void Sharding::finish_reduction(PendingReduction& reduction) {
  reduction.pending.wait();
  size_t i = 0;
  for (const Part& part : units_[reduction.unit].spread) {
    nn::Param& p = *part.param;
    if (!p.trainable) continue;
    const Tensor& sent = reduction.sent[i];
    if (options_.mode == ShardingMode::kDdp) {
      if (!sent.is_same(p.padded_grad)) p.padded_grad.copy_(sent);
    } else if (const Tensor& received = reduction.received[i]; p.own_grad.defined()) {
      if (!received.is_same(p.own_grad)) {
        if (p.own_grad_fresh)
          p.own_grad.copy_(received);
        else
          p.own_grad.add_(received);
      }
      p.own_grad_fresh = false;
      p.grad_fresh = true;  // the whole one is used up
      p.release_grad();
    } else if (!sent.is_same(p.padded_grad)) {
      p.padded_grad.narrow(0, p.first_row, p.chunk).copy_(received);
    }
    ++i;
  }
}

}  // namespace octavo::dist
