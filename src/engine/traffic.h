#pragma once
// Operations that libtorch's dispatcher does not see (Transformer Engine's, kernels of our own),
// told to whoever counts what a step reads and writes (bench/gpu_bytes.py). In training nobody
// listens.

#include <ATen/core/Tensor.h>

#include <initializer_list>

namespace octavo::engine {

struct TrafficListener {
  virtual ~TrafficListener() = default;
  // After its kernels were launched. Bytes of the tensors that it reads and writes, each once.
  virtual void on_operation(const char* name, int64_t read, int64_t written) = 0;
};

TrafficListener* traffic_listener();  // null: nobody listens
void set_traffic_listener(TrafficListener* listener);

// For an operation of our own, after its launch. What is changed in place is in both lists.
void note_traffic(const char* name, std::initializer_list<at::Tensor> read,
                  std::initializer_list<at::Tensor> written);
void note_traffic(const char* name, int64_t read, int64_t written);

}  // namespace octavo::engine
