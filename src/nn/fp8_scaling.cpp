#include "nn/fp8_scaling.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <span>

#include "base/error.h"

namespace octavo::nn {

using at::Tensor;

int64_t Fp8Scaling::add(std::string name, fp8::Format format, bool of_step) {
  OCTAVO_ASSERT(!history_.defined());
  names_.push_back(std::move(name));
  formats_.push_back(format);
  of_step_.push_back(of_step);
  return static_cast<int64_t>(names_.size()) - 1;
}

void Fp8Scaling::allocate() {
  std::call_once(*allocated_, [&] {
    const auto slots = static_cast<int64_t>(names_.size());
    const auto options = at::TensorOptions(engine_->target.device).dtype(at::kFloat);
    memory_ = at::zeros({1 + options_.history, slots}, options);
    factors_ = memory_.select(0, 0).fill_(1);
    history_ = memory_.narrow(0, 1, options_.history);
    amaxes_ = history_.select(0, 0);
    for (int64_t slot = 0; slot < slots; ++slot) {
      factor_of_.push_back(factors_.narrow(0, slot, 1));
      amax_of_.push_back(amaxes_.narrow(0, slot, 1));
    }
    Tensor marks = at::empty({slots}, at::kBool);
    for (size_t i = 0; i < of_step_.size(); ++i) marks.mutable_data_ptr<bool>()[i] = of_step_[i];
    is_of_step_ = marks.to(options.device());
  });
}

const Tensor& Fp8Scaling::factor(int64_t slot) {
  allocate();
  return factor_of_.at(static_cast<size_t>(slot));
}

const Tensor& Fp8Scaling::amax(int64_t slot) {
  allocate();
  return amax_of_.at(static_cast<size_t>(slot));
}

const Tensor& Fp8Scaling::amaxes() {
  allocate();
  return amaxes_;
}

Tensor Fp8Scaling::step_magnitudes() {
  allocate();
  const Tensor now = memory_.narrow(0, 0, 2);
  return earlier_.defined() ? at::cat({now, earlier_}) : now;
}

Fp8Scaling::Filled Fp8Scaling::filled(const Tensor& on_host) const {
  const size_t slots = names_.size();
  const Tensor all = on_host.to(at::kDouble).contiguous();
  const std::span numbers(all.const_data_ptr<double>(), static_cast<size_t>(all.numel()));
  const auto factor = numbers.first(slots), amax = numbers.subspan(slots, slots);
  const auto earlier = numbers.subspan(2 * slots);  // magnitudes, and times factors
  Filled result;
  for (size_t i = 0; i < slots; ++i) {
    double fill = factor[i] * amax[i];
    result.magnitudes += amax[i];
    if (!earlier.empty()) {
      result.magnitudes += earlier[i];
      fill = std::max(fill, earlier[slots + i]);
    }
    result.fill.push_back(fill / fp8::max_value(formats_[i]));
  }
  return result;
}

std::string Fp8Scaling::infinite_slot() const {
  if (!history_.defined()) return {};
  const Tensor now = history_.select(0, 0);
  const Tensor amaxes = (earlier_.defined() ? at::maximum(earlier_.select(0, 0), now) : now).cpu();
  const auto* amax = amaxes.const_data_ptr<float>();
  for (size_t i = 0; i < names_.size(); ++i)
    if (std::isinf(amax[i])) return names_[i];
  return {};
}

void Fp8Scaling::update(int64_t number) {
  allocate();
  engine_->fp8_linear->update_factors(history_, factors_, formats_, options_.algo, options_.margin,
                                      is_new_ || number % options_.interval == 0);
  // Written in place: layers, and recorded graphs, hold views.
  OCTAVO_ASSERT(amaxes_.is_alias_of(history_) && factor_of_.front().is_alias_of(factors_));
  is_new_ = false;
}

void Fp8Scaling::finish_pass(int64_t number) {
  if (empty()) return;
  allocate();
  if (!old_history_.defined()) {
    was_new_ = is_new_;
    old_factors_ = factors_.clone();
    old_history_ = history_.clone();
    old_history_.select(0, 0).zero_();
  }
  Tensor now = amaxes();
  const Tensor found = at::stack({now, now * factors_});
  earlier_ = earlier_.defined() ? at::maximum(earlier_, found) : found;
  // A slot without a magnitude is not updated; those of weights wait for the step's end.
  const Tensor waiting = now.masked_fill(is_of_step_.logical_not(), 0);
  now.masked_fill_(is_of_step_, 0);
  update(number);
  amaxes().copy_(waiting);
}

void Fp8Scaling::finish_step(int64_t number) {
  if (empty()) return;
  update(number);
  forget_passes();
}

void Fp8Scaling::drop_step() {
  if (empty()) return;
  if (old_history_.defined()) {  // in place: others hold views of both
    is_new_ = was_new_;
    factors_.copy_(old_factors_);
    history_.copy_(old_history_);
  }
  amaxes().zero_();
  forget_passes();
}

void Fp8Scaling::start_anew() {
  forget_passes();
  is_new_ = true;
  if (!history_.defined()) return;
  factors_.fill_(1);  // in place: others hold views of both
  history_.zero_();
}

void Fp8Scaling::forget_passes() {
  old_history_.reset();
  old_factors_.reset();
  earlier_.reset();
}

std::vector<std::pair<std::string, Tensor>> Fp8Scaling::state() const {
  std::vector<std::pair<std::string, Tensor>> tensors;
  if (!history_.defined()) return tensors;
  for (size_t i = 0; i < names_.size(); ++i) {
    const auto slot = static_cast<int64_t>(i);
    tensors.emplace_back("factor." + names_[i], factors_.narrow(0, slot, 1).clone());
    tensors.emplace_back("amax_history." + names_[i], history_.select(1, slot).clone());
  }
  return tensors;
}

std::vector<std::pair<std::string, Tensor>> Fp8Scaling::replicated() const {
  if (!history_.defined()) return {};
  return {{"factors", factors_}, {"amax_history", history_.narrow(0, 1, history_.size(0) - 1)}};
}

std::vector<std::string> Fp8Scaling::load(const std::function<Tensor(const std::string&)>& find) {
  allocate();
  is_new_ = false;
  std::vector<std::string> missing;
  for (size_t i = 0; i < names_.size(); ++i) {
    const auto slot = static_cast<int64_t>(i);
    const Tensor factor = find("factor." + names_[i]), history = find("amax_history." + names_[i]);
    if (!factor.defined() || !history.defined()) {
      missing.push_back(names_[i]);
      continue;
    }
    if (factor.numel() != 1 || history.dim() != 1 || history.numel() < 1)
      fail(ExitCode::kDamaged, "nn", "FP8 state of ", names_[i],
           ": wanted one factor and a history, found shapes ", octavo::str(factor.sizes()), " and ",
           octavo::str(history.sizes()));
    factors_.narrow(0, slot, 1).copy_(factor);
    // Row 0 belongs to the step in progress and is zero between steps; the newest is last.
    const int64_t kept = std::min(history.numel(), options_.history) - 1;
    Tensor column = history_.select(1, slot);
    column.zero_();
    if (kept > 0)
      column.narrow(0, options_.history - kept, kept)
          .copy_(history.narrow(0, history.numel() - kept, kept));
  }
  return missing;
}

}  // namespace octavo::nn
