#pragma once
// Ranks that work on something together: a named group over c10d (NCCL on GPUs, Gloo elsewhere).
// Every collective has a name, is counted, shows in a trace and ends within the timeout. A group of
// one does nothing and costs nothing.

#include <ATen/core/Tensor.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/trace.h"

namespace c10d {
class Backend;
class Work;
}  // namespace c10d

namespace octavo::dist {

// What the ranks of a group do to each other's numbers.
enum class Op : uint8_t { kSum, kMax };

// A collective under way. What it reads and writes is kept until it has ended.
class Pending {
 public:
  Pending();
  Pending(Pending&&) noexcept;
  Pending& operator=(Pending&&) noexcept;
  ~Pending();
  // Its results may be used: on a GPU by what the current stream is given from here on.
  void wait();

 private:
  friend class Group;
  struct State;
  explicit Pending(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

class Group {
 public:
  // Of one collective that failed: its name and c10d's words. Does not return.
  using OnFailure = std::function<void(const std::string& collective, const std::string& error)>;
  struct Members {
    std::string name;  // "shard"
    int rank = 0, size = 1;
    int first = 0, stride = 1;  // its ranks in the world: first, first + stride, …
    std::chrono::milliseconds timeout{600'000};
    OnFailure on_failure;
  };

  Group();  // of one
  Group(Members members, c10::intrusive_ptr<c10d::Backend> backend, bool coalesces);
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  int rank() const { return members_.rank; }
  int size() const { return members_.size; }

  // outputs[i] = the inputs[i] of all ranks, one after the other. Tensors of one call have one
  // dtype. An input may be its own part of the output.
  Pending all_gather(const std::string& what, std::vector<at::Tensor> outputs,
                     std::vector<at::Tensor> inputs);
  // outputs[i] = this rank's part of the sum of all inputs[i]. May be its own part of the input.
  Pending reduce_scatter(const std::string& what, std::vector<at::Tensor> outputs,
                         std::vector<at::Tensor> inputs);
  // In place, tensor by tensor.
  Pending all_reduce(const std::string& what, std::vector<at::Tensor> tensors, Op op = Op::kSum);
  // The values of all ranks, one for each, on the first; the others give no outputs.
  Pending gather_to_first(const std::string& what, std::vector<at::Tensor> outputs,
                          at::Tensor values);
  // The first rank's values, on all, in place.
  Pending broadcast(const std::string& what, at::Tensor values);

  struct Counts {
    int64_t calls = 0;
    double bytes = 0;  // that this rank sends: (n - 1) / n of the whole, twice for an all-reduce
  };
  struct Usage {
    Counts gather, reduce, all_reduce, to_first, broadcast;
    double waited_seconds = 0;  // of this rank for the others; on a GPU the device waits instead
  };
  const Usage& usage() const { return usage_; }

 private:
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;
  struct Call {
    const char* verb;      // "all-gather"
    const char* category;  // of the trace
    const std::string& what;
    double bytes;
  };
  Pending begin(const Call& call, Counts& counts, std::vector<at::Tensor> tensors,
                const std::function<std::vector<WorkPtr>(std::vector<at::Tensor>&)>& run);
  Pending exchange(const Call& call, Counts& counts, const std::vector<at::Tensor>& outputs,
                   const std::vector<at::Tensor>& inputs, const std::function<WorkPtr()>& run);

  Members members_;
  c10::intrusive_ptr<c10d::Backend> backend_;
  bool coalesces_ = false;  // NCCL: several calls become one launch
  int64_t number_ = 0;
  Usage usage_;
};

}  // namespace octavo::dist
