#include <exception>
#include <map>
#include <mutex>
#include <thread>

#include "engine/cpu/gemm.h"

// Of the OpenMP runtime that libtorch brings; clang's own -fopenmp would load a second one.
extern "C" void omp_set_num_threads(int count);

namespace octavo::engine::cpu {
namespace {

// Measured with AMX (CPU time of two threads) on the GEMMs of GPT-2 over 1,024 rows and of SmolLM2
// over 2,048. Packed first, input gradients take 0.83 to 0.91 of their time and weight gradients
// 0.84 to 1.0. Nothing was gained by packing a b that is stored transposed (forward), nor for few
// rows and a long k, where sums are then cut elsewhere; to transpose a first costs what it saves.
// Small GEMMs are better off without one more parallel loop.
bool packing_pays(const GemmShape& s) {
  constexpr int64_t kSmallest = int64_t{1} << 18, kFewRows = 512, kManyRows = 2048, kLong = 2048;
  return !s.one_thread && !s.b_transposed && s.n * s.k >= kSmallest &&
         (s.m >= kManyRows || (s.m >= kFewRows && s.k <= kLong));
}

}  // namespace

GemmOperands fastest_operands() {
  return has_bf16_units() && bf16_gemms_missing().empty() ? GemmOperands::kBf16
                                                          : GemmOperands::kFp32;
}

struct GemmCache::State {
  GemmOperands operands;
  std::mutex mutex = {};
  std::map<GemmShape, std::unique_ptr<Gemm>> made = {};

  std::unique_ptr<Gemm> make(const GemmShape& shape) const {
    if (operands != GemmOperands::kBf16) return make_widened(shape, operands);
    auto packing = packing_pays(shape) ? make_onednn_packing(shape) : nullptr;
    return packing != nullptr ? std::move(packing) : make_onednn(shape, operands);
  }
};

GemmCache::GemmCache(GemmOperands operands) : state_(new State{operands}) {}
GemmCache::~GemmCache() = default;

const Gemm& GemmCache::get(const GemmShape& shape) {
  const std::lock_guard lock(state_->mutex);
  auto& entry = state_->made[shape];
  if (entry != nullptr) return *entry;
  if (shape.one_thread) {
    // A primitive divides its work by the number of threads at its making. One is set in a thread
    // of its own, so that nobody else's number changes.
    std::exception_ptr failed;
    std::thread([&] {
      omp_set_num_threads(1);
      try {
        entry = state_->make(shape);
      } catch (...) {
        failed = std::current_exception();
      }
    }).join();
    if (failed != nullptr) std::rethrow_exception(failed);
  } else {
    entry = state_->make(shape);
  }
  return *entry;
}

}  // namespace octavo::engine::cpu
