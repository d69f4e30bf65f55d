#pragma once
// State of AdamW for tests: of every type, and what it stands for in FP64.

#include <string>
#include <vector>

#include "base/error.h"
#include "engine/harness.h"
#include "kernels/adamw_storage.h"

namespace octavo::engine {

using Moment = AdamW::Moment;

struct Kinds {
  at::ScalarType master = at::kFloat, moments = at::kFloat, grad = at::kFloat;
  std::string text() const {
    return str(at::toString(master), " master, ", at::toString(moments), " moments, ",
               at::toString(grad), " gradient");
  }
};
inline std::vector<Kinds> all_kinds() {
  std::vector<Kinds> result;
  for (const auto master : {at::kFloat, at::kBFloat16})
    for (const auto moments : {at::kFloat, at::kBFloat16, at::kByte})
      for (const auto grad : {at::kFloat, at::kBFloat16}) result.push_back({master, moments, grad});
  return result;
}

struct State {
  at::Tensor master;
  Moment m, v;
  at::Tensor compute;

  static at::Tensor copy(const at::Tensor& t) { return t.defined() ? t.clone() : t; }
  State clone() const {
    return {master.clone(),
            {m.values.clone(), copy(m.scales)},
            {v.values.clone(), copy(v.scales)},
            copy(compute)};
  }
  std::vector<at::Tensor> tensors() const {
    std::vector<at::Tensor> result;
    for (const auto& t : {master, m.values, m.scales, v.values, v.scales, compute})
      if (t.defined()) result.push_back(t);
    return result;
  }
};

inline Moment zero_moment(int64_t n, at::ScalarType type) {
  return {at::zeros({n}, type),
          type == at::kByte ? at::zeros({adamw::block_count(n)}, at::kFloat) : at::Tensor()};
}

inline State zero_state(int64_t n, const Kinds& kinds) {
  return {at::zeros({n}, kinds.master), zero_moment(n, kinds.moments),
          zero_moment(n, kinds.moments), at::Tensor()};
}

inline State random_state(int64_t n, bool with_copy) {
  return {at::randn({n}),
          {at::randn({n}) * 0.1, {}},
          {at::randn({n}).square() * 0.01, {}},
          with_copy ? at::zeros({n}, at::kBFloat16) : at::Tensor()};
}

// The moments in FP64.
inline at::Tensor first_of(const Moment& m) {
  if (m.values.scalar_type() != at::kByte) return exact(m.values);
  at::Tensor result = at::empty(m.values.sizes(), at::kDouble);
  for (int64_t i = 0; i < result.numel(); ++i)
    result.mutable_data_ptr<double>()[i] = adamw::decode_first(
        m.values.const_data_ptr<uint8_t>()[i], m.scales.const_data_ptr<float>()[i / adamw::kBlock]);
  return result;
}
inline at::Tensor second_of(const Moment& v) {
  if (v.values.scalar_type() != at::kByte) return exact(v.values);
  at::Tensor result = at::empty(v.values.sizes(), at::kDouble);
  for (int64_t i = 0; i < result.numel(); ++i)
    result.mutable_data_ptr<double>()[i] = adamw::decode_second(
        v.values.const_data_ptr<uint8_t>()[i], v.scales.const_data_ptr<float>()[i / adamw::kBlock]);
  return result;
}

// AdamW as it is written down, in FP64.
struct Exact {
  at::Tensor w, m, v;
  void step(const at::Tensor& grad, const AdamW::Hyper& h) {
    const at::Tensor g = exact(grad) * h.grad_scale;
    m = m * h.beta1 + g * (1.0 - h.beta1);
    v = v * h.beta2 + g * g * (1.0 - h.beta2);
    const double c1 = 1 - std::pow(static_cast<double>(h.beta1), h.step),
                 c2 = 1 - std::pow(static_cast<double>(h.beta2), h.step);
    w = w * (1.0 - h.lr * h.weight_decay) - h.lr * (m / c1 / ((v / c2).sqrt() + h.eps));
  }
};

}  // namespace octavo::engine
