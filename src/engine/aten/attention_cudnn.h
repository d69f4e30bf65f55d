#pragma once
// Attention by cuDNN, as libtorch calls it: sequences of one length, in views of the packed rows.

#include <functional>
#include <memory>
#include <string>
#include <tuple>

#include "engine/ops.h"

namespace octavo::engine::aten {

// What is asked of the library, causal: q[B,H,S,D], k and v[B,G,S,D], with the last dimension
// contiguous and G a divisor of H. Tests put arithmetic that runs on CPUs in its place.
struct DenseAttention {
  struct Forward {
    at::Tensor out;  // [B,H,S,D], in any order in memory
    at::Tensor lse;  // whatever the backward pass wants back
  };
  std::function<Forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                        double scale)>
      forward;
  // The gradients of q, k and v.
  std::function<std::tuple<at::Tensor, at::Tensor, at::Tensor>(
      const at::Tensor& d_out, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
      const Forward& saved, double scale)>
      backward;
};

// Packed documents, odd lengths, wider heads and generation go to flash attention.
std::unique_ptr<Attention> make_dense_attention(DenseAttention calls);

// Why there is no cuDNN; "" when there is. Asks libtorch's GPU library.
std::string cudnn_missing();

}  // namespace octavo::engine::aten
