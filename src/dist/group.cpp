#include "dist/group.h"

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include "base/error.h"

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

}  // namespace

struct Pending::State {
  std::vector<WorkPtr> works;
  std::vector<Tensor> tensors;
  std::string name;
  const Group::Members* members = nullptr;
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
  try {
    for (const WorkPtr& work : state->works) work->wait();
  } catch (const std::exception& error) {
    state->members->on_failure(state->name, error.what());
  }
}

Group::Group() = default;
Group::~Group() = default;

Group::Group(Members members, c10::intrusive_ptr<c10d::Backend> backend, bool coalesces)
    : members_(std::move(members)), backend_(std::move(backend)), coalesces_(coalesces) {}

Pending Group::begin(const char* verb, const char* category, const std::string& what, double bytes,
                     std::vector<Tensor> tensors,
                     const std::function<WorkPtr(std::vector<Tensor>&)>& run) {
  auto state = std::make_unique<Pending::State>();
  state->name = octavo::str(verb, " of ", what, " (#", number_++, ", group ", members_.name, ")");
  state->members = &members_;
  state->tensors = std::move(tensors);
  if (engine::trace::is_on())
    state->span =
        engine::trace::begin(category, octavo::str(verb, " ", what), static_cast<int64_t>(bytes));
  try {
    state->works.push_back(run(state->tensors));
  } catch (const std::exception& error) {
    members_.on_failure(state->name, error.what());
  }
  return Pending(std::move(state));
}

Pending Group::all_gather(const std::string& what, std::vector<Tensor> outputs,
                          std::vector<Tensor> inputs) {
  OCTAVO_ASSERT(outputs.size() == inputs.size());
  if (inputs.empty()) return {};
  if (size() == 1) {
    for (size_t i = 0; i < inputs.size(); ++i)
      if (!outputs[i].is_alias_of(inputs[i])) outputs[i].copy_(inputs[i]);
    return {};
  }
  const double bytes = (size() - 1) * bytes_of(inputs);
  usage_.gather.calls += 1;
  usage_.gather.bytes += bytes;
  auto kept = outputs;
  kept.insert(kept.end(), inputs.begin(), inputs.end());
  return begin("all-gather", "gather", what, bytes, std::move(kept), [&](auto&) {
    return backend_->all_gather_single_coalesced(outputs, inputs, {.timeout = members_.timeout});
  });
}

Pending Group::reduce_scatter(const std::string& what, std::vector<Tensor> outputs,
                              std::vector<Tensor> inputs) {
  OCTAVO_ASSERT(outputs.size() == inputs.size());
  if (inputs.empty()) return {};
  if (size() == 1) {
    for (size_t i = 0; i < inputs.size(); ++i)
      if (!outputs[i].is_alias_of(inputs[i])) outputs[i].copy_(inputs[i]);
    return {};
  }
  const double bytes = (size() - 1) * bytes_of(outputs);
  usage_.reduce.calls += 1;
  usage_.reduce.bytes += bytes;
  auto kept = outputs;
  kept.insert(kept.end(), inputs.begin(), inputs.end());
  return begin("reduce-scatter", "reduce", what, bytes, std::move(kept), [&](auto&) {
    c10d::ReduceScatterOptions options;
    options.timeout = members_.timeout;
    return backend_->reduce_scatter_single_coalesced(outputs, inputs, options);
  });
}

Pending Group::all_reduce(const std::string& what, std::vector<Tensor> tensors, Op op) {
  if (size() == 1 || tensors.empty()) return {};
  const double bytes = 2.0 * (size() - 1) / size() * bytes_of(tensors);
  usage_.all_reduce.calls += 1;
  usage_.all_reduce.bytes += bytes;
  c10d::AllreduceOptions options;
  options.reduceOp = c10d_op(op);
  options.timeout = members_.timeout;
  std::vector<WorkPtr> works;
  Pending pending = begin("all-reduce", "reduce", what, bytes, std::move(tensors), [&](auto& kept) {
    // Tensor by tensor, so that a sum does not depend on what else is in the call.
    if (coalesces_) backend_->startCoalescing();
    for (Tensor& t : kept) {
      std::vector<Tensor> one = {t};
      works.push_back(backend_->allreduce(one, options));
    }
    if (coalesces_) works = {backend_->endCoalescing()};
    return works.back();
  });
  works.pop_back();
  auto& all = pending.state_->works;
  all.insert(all.begin(), works.begin(), works.end());
  return pending;
}

}  // namespace octavo::dist
