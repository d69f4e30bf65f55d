#pragma once
// What the parts of own_kernels_tool share.

#include <ATen/ATen.h>

#include <cstdio>
#include <cstring>
#include <string>

#include "base/error.h"
#include "fake_cuda/fake_cuda.h"

namespace octavo {

inline at::Tensor empty_on_gpu(at::IntArrayRef shape, at::ScalarType type) {
  return at::empty(shape, at::device(at::kCUDA).dtype(type));
}

template <class Body>
void print_counts(const char* name, const Body& body) {
  body();  // may set something up
  fake_cuda::api()->reset();
  body();
  fake_cuda::Counters counters{};
  fake_cuda::api()->counters(&counters);
  std::printf("%s_launches=%llu %s_waits=%llu %s_unexpected=%llu\n", name,
              static_cast<unsigned long long>(counters.of(fake_cuda::Kind::kLaunch)), name,
              static_cast<unsigned long long>(counters.host_waits()), name,
              static_cast<unsigned long long>(counters.of(fake_cuda::Kind::kUnexpected)));
}

struct Differences {
  int cases = 0, failed = 0;
  void check(bool same, const std::string& what) {
    ++cases;
    if (same) return;
    ++failed;
    std::printf("FAILED %s\n", what.c_str());
  }
};

inline bool same_bytes(const at::Tensor& found, const at::Tensor& wanted) {
  if (!wanted.defined()) return !found.defined();
  const at::Tensor here = found.cpu().contiguous();
  return here.nbytes() == wanted.nbytes() &&
         std::memcmp(here.const_data_ptr(), wanted.const_data_ptr(), wanted.nbytes()) == 0;
}

inline at::Tensor on_gpu_copy(const at::Tensor& t) {
  return t.defined() ? t.to(at::kCUDA) : t;
}
// Norms, rotary positions and quantizers: against the reference, and counted.
void compare_layers(Differences& differences);
void count_layer_launches();

}  // namespace octavo
