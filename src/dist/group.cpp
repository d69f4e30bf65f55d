#include "dist/group.h"

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include "base/error.h"
#include "base/heartbeat.h"
#include "dist/wait_guard.h"

namespace octavo::dist {
namespace {

using at::Tensor;
using c10d::Work;
using WorkPtr = c10::intrusive_ptr<Work>;

double bytes_of(const std::vector<Tensor>& tensors) {
  double bytes = 0;
  for (const Tensor& t : tensors) bytes += static_cast<double>(t.nbytes());
  return bytes;
}

c10d::ReduceOp c10d_op(Op op) {
  return op == Op::kSum ? c10d::ReduceOp::SUM : c10d::ReduceOp::MAX;
}

// Begun or waited for: on every rank in the same order.
void count_collective() {
  heartbeat::beats().collectives.fetch_add(1, std::memory_order_relaxed);
}

// For the watch over hangs: which ranks must begin it too.
void note_collective(const Group::Members& members, const std::string& name) {
  heartbeat::Beats& beats = heartbeat::beats();
  beats.collective.set(name);
  beats.group_first.store(members.first, std::memory_order_relaxed);
  beats.group_stride.store(members.stride, std::memory_order_relaxed);
  beats.group_size.store(members.size, std::memory_order_relaxed);
  beats.group_rank.store(members.rank, std::memory_order_relaxed);
}

// A rank that waits too long raises the alarm, and the watch over the ranks ends it.
void wait_for_host(Work& work, const Group::Members& members, const std::string& collective) {
  if (work.isCompleted()) return static_cast<void>(work.wait());
  note_collective(members, collective);
  const heartbeat::Waiting waiting(heartbeat::Wait::kRanks);
  const GuardedWait guarded(members.timeout, [&] {
    members.on_failure(collective, "Gloo's own time-out did not come; was the clock set back?");
  });
  work.wait();
}

}  // namespace

struct Pending::State {
  std::vector<WorkPtr> works;
  std::vector<Tensor> tensors;
  std::string name;
  const Group::Members* members = nullptr;
  bool on_host = false;  // the program waits, and not a GPU
  double* waited_seconds = nullptr;
  engine::trace::Span span;
};

Pending::Pending() = default;
Pending::Pending(Pending&&) noexcept = default;
Pending& Pending::operator=(Pending&&) noexcept = default;
Pending::~Pending() = default;
Pending::Pending(std::unique_ptr<State> state) : state_(std::move(state)) {}

void Pending::wait() {
  if (state_ == nullptr) return;
  const auto state = std::move(state_);
  count_collective();
  const auto start = std::chrono::steady_clock::now();
  try {
    for (const WorkPtr& work : state->works) {
      if (state->on_host)
        wait_for_host(*work, *state->members, state->name);
      else
        work->wait();
    }
    *state->waited_seconds +=
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  } catch (const std::exception& error) {
    state->members->on_failure(state->name, error.what());
  }
}

Group::Group() = default;
Group::~Group() = default;

Group::Group(Members members, c10::intrusive_ptr<c10d::Backend> backend, bool coalesces)
    : members_(std::move(members)), backend_(std::move(backend)), coalesces_(coalesces) {}

Pending Group::begin(const Call& call, Counts& counts, std::vector<Tensor> tensors,
                     const std::function<std::vector<WorkPtr>(std::vector<Tensor>&)>& run) {
  counts.calls += 1;
  counts.bytes += call.bytes;
  auto state = std::make_unique<Pending::State>();
  state->name =
      octavo::str(call.verb, " of ", call.what, " (#", number_++, ", group ", members_.name, ")");
  state->members = &members_;
  state->on_host = !coalesces_;
  state->waited_seconds = &usage_.waited_seconds;
  state->tensors = std::move(tensors);
  if (engine::trace::is_on())
    state->span = engine::trace::begin(call.category, octavo::str(call.verb, " ", call.what),
                                       static_cast<int64_t>(call.bytes));
  count_collective();
  note_collective(members_, state->name);
  try {
    state->works = run(state->tensors);
  } catch (const std::exception& error) {
    members_.on_failure(state->name, error.what());
  }
  return Pending(std::move(state));
}

// From lists of inputs to lists of outputs; alone an output is its input.
Pending Group::exchange(const Call& call, Counts& counts, const std::vector<Tensor>& outputs,
                        const std::vector<Tensor>& inputs, const std::function<WorkPtr()>& run) {
  OCTAVO_ASSERT(outputs.size() == inputs.size());
  if (inputs.empty()) return {};
  if (size() == 1) {
    for (size_t i = 0; i < inputs.size(); ++i)
      if (!outputs[i].is_alias_of(inputs[i])) outputs[i].copy_(inputs[i]);
    return {};
  }
  std::vector<Tensor> kept = outputs;
  kept.insert(kept.end(), inputs.begin(), inputs.end());
  return begin(call, counts, std::move(kept), [&](auto&) { return std::vector{run()}; });
}

Pending Group::all_gather(const std::string& what, std::vector<Tensor> outputs,
                          std::vector<Tensor> inputs) {
  const Call call{"all-gather", "gather", what, (size() - 1) * bytes_of(inputs)};
  return exchange(call, usage_.gather, outputs, inputs, [&] {
    return backend_->all_gather_single_coalesced(outputs, inputs, {.timeout = members_.timeout});
  });
}

Pending Group::reduce_scatter(const std::string& what, std::vector<Tensor> outputs,
                              std::vector<Tensor> inputs) {
  const Call call{"reduce-scatter", "reduce", what, (size() - 1) * bytes_of(outputs)};
  return exchange(call, usage_.reduce, outputs, inputs, [&] {
    c10d::ReduceScatterOptions options;
    options.timeout = members_.timeout;
    return backend_->reduce_scatter_single_coalesced(outputs, inputs, options);
  });
}

Pending Group::all_reduce(const std::string& what, std::vector<Tensor> tensors, Op op) {
  if (size() == 1 || tensors.empty()) return {};
  c10d::AllreduceOptions options;
  options.reduceOp = c10d_op(op);
  options.timeout = members_.timeout;
  const Call call{"all-reduce", "reduce", what, 2.0 * (size() - 1) / size() * bytes_of(tensors)};
  return begin(call, usage_.all_reduce, std::move(tensors), [&](auto& kept) {
    // Tensor by tensor, so that a sum does not depend on what else is in the call.
    std::vector<WorkPtr> works;
    if (coalesces_) backend_->startCoalescing();
    for (Tensor& t : kept) {
      std::vector<Tensor> one = {t};
      works.push_back(backend_->allreduce(one, options));
    }
    if (coalesces_) works = {backend_->endCoalescing()};
    return works;
  });
}

Pending Group::gather_to_first(const std::string& what, std::vector<Tensor> outputs,
                               Tensor values) {
  OCTAVO_ASSERT(outputs.size() == static_cast<size_t>(rank() == 0 ? size() : 0));
  if (size() == 1) {
    outputs[0].copy_(values);
    return {};
  }
  c10d::GatherOptions options;
  options.timeout = members_.timeout;
  const double sent = rank() == 0 ? 0 : static_cast<double>(values.nbytes());
  std::vector<Tensor> inputs = {values}, kept = outputs;
  kept.push_back(std::move(values));
  std::vector<std::vector<Tensor>> lists;
  if (rank() == 0) lists.push_back(std::move(outputs));
  return begin({"gather", "gather", what, sent}, usage_.to_first, std::move(kept),
               [&](auto&) { return std::vector{backend_->gather(lists, inputs, options)}; });
}

Pending Group::broadcast(const std::string& what, Tensor values) {
  if (size() == 1) return {};
  c10d::BroadcastOptions options;
  options.timeout = members_.timeout;
  const double sent = rank() == 0 ? (size() - 1) * static_cast<double>(values.nbytes()) : 0;
  return begin({"broadcast", "gather", what, sent}, usage_.broadcast, {std::move(values)},
               [&](auto& kept) { return std::vector{backend_->broadcast(kept, options)}; });
}

}  // namespace octavo::dist
