#include "engine/cpu/product.h"

#include <oneapi/dnnl/dnnl.hpp>

#include <map>
#include <mutex>
#include <thread>
#include <unordered_map>

// Of the OpenMP runtime that libtorch brings; clang's own -fopenmp would load a second one.
extern "C" void omp_set_num_threads(int count);

namespace octavo::engine::cpu {

class Product {
 public:
  dnnl::engine engine;
  dnnl::memory::desc a, b, bias, c, scratch;
  bool scaled = false;
  dnnl::matmul primitive;
};

namespace {

using Type = dnnl::memory::data_type;

dnnl::memory::desc describe(int64_t rows, int64_t columns, Type type, int64_t stride,
                            bool transposed) {
  const dnnl::memory::dims strides =
      transposed ? dnnl::memory::dims{1, stride} : dnnl::memory::dims{stride, 1};
  return {{rows, columns}, type, strides};
}

std::unique_ptr<Product> make(const dnnl::engine& engine, const ProductShape& s) {
  auto product = std::make_unique<Product>();
  product->engine = engine;
  product->scaled = s.scaled;
  product->a = describe(s.m, s.k, Type::bf16, s.lda, s.a_transposed);
  product->b = describe(s.k, s.n, Type::bf16, s.ldb, s.b_transposed);
  product->c = describe(s.m, s.n, s.fp32_result ? Type::f32 : Type::bf16, s.ldc, false);
  dnnl::primitive_attr attributes;
  // The library's own scratch memory belongs to the thread that made the primitive.
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (s.add) {
    dnnl::post_ops add;
    add.append_sum(1.0f);
    attributes.set_post_ops(add);
  }
  if (s.scaled) attributes.set_scales_mask(DNNL_ARG_SRC, 0);
  if (s.bias) product->bias = describe(1, s.n, Type::f32, s.n, false);
  const auto description =
      s.bias ? dnnl::matmul::primitive_desc(engine, product->a, product->b, product->bias,
                                            product->c, attributes)
             : dnnl::matmul::primitive_desc(engine, product->a, product->b, product->c, attributes);
  product->scratch = description.scratchpad_desc();
  product->primitive = dnnl::matmul(description);
  return product;
}

}  // namespace

struct ProductCache::State {
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  std::mutex mutex;
  std::map<ProductShape, std::unique_ptr<Product>> made;
};

ProductCache::ProductCache() : state_(std::make_unique<State>()) {}
ProductCache::~ProductCache() = default;

const Product& ProductCache::get(const ProductShape& shape) {
  const std::lock_guard lock(state_->mutex);
  auto& entry = state_->made[shape];
  if (entry != nullptr) return *entry;
  if (shape.one_thread) {
    // A primitive divides its work by the number of threads at its making. One is set in a thread
    // of its own, so that nobody else's number changes.
    std::thread([&] {
      omp_set_num_threads(1);
      entry = make(state_->engine, shape);
    }).join();
  } else {
    entry = make(state_->engine, shape);
  }
  return *entry;
}

size_t scratch_bytes(const Product& product) {
  return product.scratch.get_size();
}

void run(const Product& product, const void* a, const void* b, const void* bias, void* c,
         void* scratch, float scale) {
  const auto memory = [&](const dnnl::memory::desc& desc, const void* data) {
    return dnnl::memory(desc, product.engine, const_cast<void*>(data));
  };
  dnnl::stream stream(product.engine);
  std::unordered_map<int, dnnl::memory> arguments = {
      {DNNL_ARG_SRC, memory(product.a, a)},
      {DNNL_ARG_WEIGHTS, memory(product.b, b)},
      {DNNL_ARG_DST, memory(product.c, c)},
      {DNNL_ARG_SCRATCHPAD, memory(product.scratch, scratch)}};
  if (bias != nullptr) arguments.emplace(DNNL_ARG_BIAS, memory(product.bias, bias));
  if (product.scaled) {
    const dnnl::memory::desc one({1}, Type::f32, dnnl::memory::dims{1});
    arguments.emplace(DNNL_ARG_ATTR_SCALES | DNNL_ARG_SRC, memory(one, &scale));
  }
  product.primitive.execute(stream, arguments);
  stream.wait();
}

}  // namespace octavo::engine::cpu
