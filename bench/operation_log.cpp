#include "operation_log.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "fake_cuda/fake_cuda.h"

namespace octavo::bench {
namespace {

OperationLog* active = nullptr;

// Kernels, GEMMs, copies and fills that the device was asked for.
uint64_t work_so_far() {
  using fake_cuda::Kind;
  fake_cuda::Counters c{};
  fake_cuda::api()->counters(&c);
  return c.of(Kind::kLaunch) + c.of(Kind::kGemm) + c.of(Kind::kCopyOnDevice) + c.of(Kind::kMemset);
}

Json described(const std::string& argument, const char* role, const at::Tensor& t) {
  return {{"argument", argument},
          {"role", role},
          {"sizes", t.sizes().vec()},
          {"strides", t.strides().vec()},
          {"item", t.element_size()}};
}

void add_tensors(const c10::IValue& value, std::vector<at::Tensor>& into) {
  if (value.isTensor()) {
    if (value.toTensor().defined() && value.toTensor().is_cuda()) into.push_back(value.toTensor());
  } else if (value.isTensorList()) {
    for (const at::Tensor& t : value.toTensorVector())
      if (t.defined() && t.is_cuda()) into.push_back(t);
  } else if (value.isList()) {
    for (const c10::IValue& item : value.toListRef()) add_tensors(item, into);
  }
}

}  // namespace

struct OperationLog::Frame : at::ObserverContext {
  std::string name;
  bool known = false;  // its arguments are
  Json tensors = Json::array();
  std::vector<const void*> written;  // arguments, which may be results too
  uint64_t before = 0, nested = 0;
  Frame* parent = nullptr;

  static Frame*& current() {
    thread_local Frame* innermost = nullptr;
    return innermost;
  }
};

OperationLog::OperationLog() {
  OCTAVO_ASSERT(active == nullptr && fake_cuda::is_active());
  active = this;
  first_ = last_ = work_so_far();
  handle_ = at::addGlobalCallback(at::RecordFunctionCallback(on_start, on_end)
                                      .needsInputs(true)
                                      .needsOutputs(true)
                                      .scopes({at::RecordScope::FUNCTION}));
  engine::set_traffic_listener(this);
}

OperationLog::~OperationLog() {
  engine::set_traffic_listener(nullptr);
  at::removeCallback(handle_);
  active = nullptr;
}

std::unique_ptr<at::ObserverContext> OperationLog::on_start(const at::RecordFunction& function) {
  auto frame = std::make_unique<Frame>();
  frame->parent = std::exchange(Frame::current(), frame.get());
  frame->name = function.name();
  if (const auto schema = function.operator_schema()) {
    frame->known = true;
    frame->name = schema->operator_name().name;
    const auto inputs = function.inputs();
    for (size_t i = 0; i < inputs.size() && i < schema->arguments().size(); ++i) {
      const c10::Argument& argument = schema->arguments()[i];
      const bool writes = argument.alias_info() != nullptr && argument.alias_info()->isWrite();
      std::vector<at::Tensor> found;
      add_tensors(inputs[i], found);
      for (const at::Tensor& t : found) {
        frame->tensors.push_back(described(argument.name(),
                                           !writes             ? "r"
                                           : argument.is_out() ? "w"
                                                               : "rw",
                                           t));
        if (writes) frame->written.push_back(t.unsafeGetTensorImpl());
      }
    }
  }
  frame->before = work_so_far();
  return frame;
}

void OperationLog::on_end(const at::RecordFunction& function, at::ObserverContext* context) {
  auto& frame = *static_cast<Frame*>(context);
  Frame::current() = frame.parent;
  const uint64_t now = work_so_far(), all = now - frame.before, own = all - frame.nested;
  if (frame.parent != nullptr) frame.parent->nested += all;
  if (active == nullptr) return;
  const std::lock_guard lock(active->mutex_);
  active->last_ = now;
  if (own == 0 || !frame.known) return;
  std::vector<at::Tensor> results;
  for (const c10::IValue& value : function.outputs()) add_tensors(value, results);
  for (const at::Tensor& t : results)
    if (std::find(frame.written.begin(), frame.written.end(), t.unsafeGetTensorImpl()) ==
        frame.written.end())
      frame.tensors.push_back(described("result", "w", t));
  std::vector<std::string> inside;
  for (const Frame* f = frame.parent; f != nullptr; f = f->parent) inside.push_back(f->name);
  active->add({{"name", frame.name}, {"inside", inside}, {"tensors", frame.tensors}}, own);
}

void OperationLog::add(Json operation, uint64_t work) {
  operation["work"] = work;
  operations_.push_back(std::move(operation));
  attributed_ += work;
}

void OperationLog::on_operation(const char* name, int64_t read, int64_t written) {
  const uint64_t now = work_so_far();
  if (Frame* frame = Frame::current(); frame != nullptr) frame->nested += now - last_;
  const auto bytes = [](const char* role, int64_t count) {
    return Json{
        {"argument", ""}, {"role", role}, {"sizes", {count}}, {"strides", {1}}, {"item", 1}};
  };
  const std::lock_guard lock(mutex_);
  add({{"name", name},
       {"inside", Json::array()},
       {"tensors", {bytes("r", read), bytes("w", written)}}},
      now - last_);
  last_ = now;
}

Json OperationLog::result() {
  const std::lock_guard lock(mutex_);
  return {{"operations", operations_}, {"unattributed", work_so_far() - first_ - attributed_}};
}

}  // namespace octavo::bench
