#include "engine/cpu/small_gemm.h"

#include <oneapi/dnnl/dnnl.hpp>

#include <map>
#include <mutex>
#include <thread>

// Of the OpenMP runtime that libtorch brings; clang's own -fopenmp would load a second one.
extern "C" void omp_set_num_threads(int count);

namespace octavo::engine::cpu {

class SmallGemm {
 public:
  dnnl::memory::desc a, b, c, scratch;
  dnnl::matmul primitive;
  dnnl::engine engine;
};

namespace {

using Type = dnnl::memory::data_type;

dnnl::memory::desc describe(int64_t rows, int64_t columns, Type type, int64_t stride,
                            bool transposed) {
  const dnnl::memory::dims strides =
      transposed ? dnnl::memory::dims{1, stride} : dnnl::memory::dims{stride, 1};
  return {{rows, columns}, type, strides};
}

std::unique_ptr<SmallGemm> make(const dnnl::engine& engine, const SmallGemmShape& s) {
  auto gemm = std::make_unique<SmallGemm>();
  gemm->engine = engine;
  gemm->a = describe(s.m, s.k, Type::bf16, s.lda, s.a_transposed);
  gemm->b = describe(s.k, s.n, Type::bf16, s.ldb, s.b_transposed);
  gemm->c = describe(s.m, s.n, s.fp32_result ? Type::f32 : Type::bf16, s.ldc, false);
  dnnl::primitive_attr attributes;
  // The library's own scratch memory belongs to the thread that made the primitive.
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (s.add) {
    dnnl::post_ops add;
    add.append_sum(1.0f);
    attributes.set_post_ops(add);
  }
  const dnnl::matmul::primitive_desc description(engine, gemm->a, gemm->b, gemm->c, attributes);
  gemm->scratch = description.scratchpad_desc();
  gemm->primitive = dnnl::matmul(description);
  return gemm;
}

}  // namespace

struct SmallGemmCache::State {
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  std::mutex mutex;
  std::map<SmallGemmShape, std::unique_ptr<SmallGemm>> made;
};

SmallGemmCache::SmallGemmCache() : state_(std::make_unique<State>()) {}
SmallGemmCache::~SmallGemmCache() = default;

const SmallGemm& SmallGemmCache::get(const SmallGemmShape& shape) {
  const std::lock_guard lock(state_->mutex);
  auto& entry = state_->made[shape];
  if (entry == nullptr) {
    // The primitive divides its work by the number of threads at its making: one, set in a thread
    // of its own so that nobody else's number changes.
    std::thread([&] {
      omp_set_num_threads(1);
      entry = make(state_->engine, shape);
    }).join();
  }
  return *entry;
}

size_t scratch_bytes(const SmallGemm& gemm) {
  return gemm.scratch.get_size();
}

void run(const SmallGemm& gemm, const void* a, const void* b, void* c, std::byte* scratch) {
  const auto memory = [&](const dnnl::memory::desc& desc, const void* data) {
    return dnnl::memory(desc, gemm.engine, const_cast<void*>(data));
  };
  dnnl::stream stream(gemm.engine);
  gemm.primitive.execute(stream, {{DNNL_ARG_SRC, memory(gemm.a, a)},
                                  {DNNL_ARG_WEIGHTS, memory(gemm.b, b)},
                                  {DNNL_ARG_DST, memory(gemm.c, c)},
                                  {DNNL_ARG_SCRATCHPAD, memory(gemm.scratch, scratch)}});
  stream.wait();
}

}  // namespace octavo::engine::cpu
