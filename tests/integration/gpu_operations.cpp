#include "gpu_operations.h"

#include <cstdio>

#include "base/error.h"
#include "engine/aten/aten.h"
#include "fake_cuda/fake_cuda.h"
#include "kernels/adamw_storage.h"

namespace octavo::gemms {
namespace {

using at::Tensor;
using engine::Accumulate;
namespace ops = engine::aten;

class Calls {
 public:
  explicit Calls(Tally& tally) : tally_(tally) {}

  // Twice: the first time may set something up.
  template <class Body>
  void check(const std::string& name, const Body& body) {
    std::string wrong;
    fake_cuda::Counters counters{};
    try {
      body();
      fake_cuda::api()->reset();
      body();
      fake_cuda::api()->counters(&counters);
      if (counters.host_waits() > 0)
        wrong = str("the host waited ", counters.host_waits(), " times");
      if (counters.of(fake_cuda::Kind::kUnexpected) > 0) wrong = "a call that has no meaning";
      if (counters.pageable_copies > 0) wrong = "memory that is not pinned was copied";
    } catch (const std::exception& error) {
      wrong = std::string(error.what()).substr(0, 400);
    }
    using fake_cuda::Kind;
    const auto shown = [&](Kind kind) { return std::to_string(counters.of(kind)); };
    std::printf("%-55s %4s launches, %s GEMMs, %s copies, %s fills\n", name.c_str(),
                shown(Kind::kLaunch).c_str(), shown(Kind::kGemm).c_str(),
                shown(Kind::kCopyOnDevice).c_str(), shown(Kind::kMemset).c_str());
    require(wrong.empty(), name, wrong);
  }

  void require(bool passed, const std::string& name, const std::string& found) {
    tally_.check(passed, name, found);
  }

 private:
  Tally& tally_;
};

Tensor on_gpu(at::IntArrayRef shape, at::ScalarType type = at::kBFloat16) {
  return at::empty(shape, at::device(at::kCUDA).dtype(type));
}
constexpr Accumulate kModes[] = {Accumulate::kOverwrite, Accumulate::kAdd};
const char* text_of(Accumulate mode) {
  return mode == Accumulate::kAdd ? ", added" : "";
}

constexpr int64_t kTokens = 256, kWidth = 192;

void check_gemms(Calls& calls) {
  const auto op = ops::make_matmul();
  for (const auto type : {at::kBFloat16, at::kFloat}) {
    const std::string name = str("matmul ", at::toString(type));
    const Tensor x = on_gpu({kTokens, kWidth}, type), w = on_gpu({64, kWidth}, type),
                 bias = on_gpu({64}, type);
    Tensor y = on_gpu({kTokens, 64}, type), dx = on_gpu({kTokens, kWidth}, type);
    calls.check(name + " forward", [&] { op->forward(x, w, Tensor(), y); });
    calls.check(name + " forward with bias", [&] { op->forward(x, w, bias, y); });
    calls.check(name + " input gradient", [&] { op->input_gradient(y, w, dx); });
    for (const auto mode : kModes)
      for (const auto into : {at::kFloat, type}) {
        Tensor dw = on_gpu({64, kWidth}, into);
        calls.check(str(name, " weight gradient into ", at::toString(into), text_of(mode)),
                    [&] { op->weight_gradient(y, x, dw, mode); });
      }
  }
}

void check_norms(Calls& calls) {
  const Tensor x = on_gpu({kTokens, kWidth}), gamma = on_gpu({kWidth});
  Tensor dgamma = on_gpu({kWidth}, at::kFloat), dbeta = on_gpu({kWidth}, at::kFloat);
  const auto layer = ops::make_layer_norm();
  const auto rms = ops::make_rms_norm();
  calls.check("layer_norm forward", [&] { layer->forward(x, x, gamma, gamma, 1e-5); });
  calls.check("rms_norm forward", [&] { rms->forward(x, x, gamma, 1e-5); });
  const auto saved = layer->forward(x, x, gamma, gamma, 1e-5);
  const auto rms_saved = rms->forward(x, x, gamma, 1e-5);
  for (const auto mode : kModes) {
    calls.check(str("layer_norm backward", text_of(mode)),
                [&] { layer->backward(x, x, saved, gamma, dgamma, dbeta, mode); });
    calls.check(str("rms_norm backward", text_of(mode)),
                [&] { rms->backward(x, x, rms_saved, gamma, dgamma, mode); });
  }
  Tensor frozen;
  calls.check("rms_norm backward, frozen",
              [&] { rms->backward(x, x, rms_saved, gamma, frozen, Accumulate::kAdd); });
}

void check_elementwise(Calls& calls) {
  const Tensor x = on_gpu({kTokens, kWidth}), half = on_gpu({kTokens, kWidth / 2});
  Tensor dy = on_gpu({kTokens, kWidth}), sums = on_gpu({kWidth}, at::kFloat);
  const auto gelu = ops::make_gelu();
  const auto swiglu = ops::make_swiglu();
  const auto columns = ops::make_column_sum();
  const auto rope = ops::make_rope();
  calls.check("gelu forward", [&] { gelu->forward(x); });
  for (const auto mode : kModes) {
    calls.check(str("gelu backward", text_of(mode)), [&] { gelu->backward(dy, x, sums, mode); });
    calls.check(str("column_sum", text_of(mode)), [&] { columns->add(x, sums, mode); });
  }
  calls.check("swiglu forward", [&] { swiglu->forward(x); });
  calls.check("swiglu backward", [&] { swiglu->backward(half, x); });
  const Tensor positions = on_gpu({kTokens}, at::kInt), table = on_gpu({512, 32}, at::kFloat);
  calls.check("rope", [&] { rope->rotate(dy, positions, table, 4, false); });
}

void check_attention(Calls& calls) {
  const auto op = ops::make_attention();
  for (const int64_t kv_heads : {6, 2}) {
    engine::Attention::Shape shape{6, kv_heads, 64, {0, 100, 256}, {}, 156};
    shape.starts = on_gpu({3}, at::kInt);
    const Tensor qkv = on_gpu({kTokens, shape.row()}), d_out = on_gpu({kTokens, shape.width()});
    const auto saved = op->forward(qkv, shape);
    const std::string name = str("attention, ", kv_heads, " key heads,");
    calls.check(name + " forward", [&] { op->forward(qkv, shape); });
    calls.check(name + " backward", [&] { op->backward(d_out, qkv, saved, shape); });
    const Tensor keys = on_gpu({kTokens, kv_heads * 64});
    calls.check(name + " extend",
                [&] { op->extend(qkv.narrow(0, 0, 3).narrow(1, 0, 384), keys, keys, shape); });
  }
}

void check_vocabulary(Calls& calls) {
  const auto loss = ops::make_cross_entropy();
  const auto embedding = ops::make_embedding();
  Tensor logits = on_gpu({kTokens, 512});
  const Tensor ids = on_gpu({kTokens}, at::kInt);
  for (const float z : {0.0f, 0.1f})
    calls.check(str("cross_entropy, z ", z),
                [&] { loss->run(logits, ids, {.classes = 500, .z_weight = z}); });
  calls.check("cross_entropy without gradient",
              [&] { loss->run(logits, ids, {.classes = 500, .want_gradient = false}); });
  const Tensor tokens = on_gpu({512, kWidth}), positions = on_gpu({128, kWidth});
  calls.check("embedding forward", [&] { embedding->forward(ids, tokens, positions, 128); });
  const Tensor dx = on_gpu({kTokens, kWidth});
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    Tensor d_tokens = on_gpu({512, kWidth}, type), d_positions = on_gpu({128, kWidth}, type);
    calls.check(str("embedding backward ", at::toString(type)),
                [&] { embedding->backward(ids, dx, d_tokens, d_positions, 128); });
  }
  const Tensor many = on_gpu({8192}, at::kInt), wide = on_gpu({8192, kWidth});
  Tensor d_tokens = on_gpu({512, kWidth}, at::kFloat), none;
  calls.check("embedding backward, 8192 tokens",
              [&] { embedding->backward(many, wide, d_tokens, none, 128); });
}

engine::AdamW::Moment moment(int64_t rows, int64_t columns, at::ScalarType type) {
  return {on_gpu({rows, columns}, type),
          type == at::kByte ? on_gpu({adamw::block_count(rows * columns)}, at::kFloat) : Tensor()};
}

void check_adamw(Calls& calls) {
  const auto op = ops::make_adamw();
  constexpr int64_t kRows = 100, kColumns = 90;
  for (const auto master : {at::kFloat, at::kBFloat16})
    for (const auto moments : {at::kFloat, at::kBFloat16, at::kByte})
      for (const auto grad : {at::kFloat, at::kBFloat16}) {
        std::vector<engine::AdamW::Update> updates;
        for (int i = 0; i < 20; ++i)
          updates.push_back(
              {on_gpu({kRows, kColumns}, master),
               moment(kRows, kColumns, moments),
               moment(kRows, kColumns, moments),
               on_gpu({kRows, kColumns}, grad),
               master == at::kFloat ? on_gpu({kRows, kColumns}) : Tensor(),
               {.lr = 0.1f, .weight_decay = i % 2 == 0 ? 0.1f : 0.0f, .grad_scale = 0.5f}});
        calls.check(str("adamw of 20, ", at::toString(master), " ", at::toString(moments), " ",
                        at::toString(grad)),
                    [&] { op->step_all(updates); });
      }
  // The embedding of Llama-3.1-8B: temporaries are of chunks, not of the whole.
  constexpr int64_t kTokensOf8B = 128256, kWidthOf8B = 4096;
  std::vector<engine::AdamW::Update> large = {{on_gpu({kTokensOf8B, kWidthOf8B}),
                                               moment(kTokensOf8B, kWidthOf8B, at::kByte),
                                               moment(kTokensOf8B, kWidthOf8B, at::kByte),
                                               on_gpu({kTokensOf8B, kWidthOf8B}),
                                               Tensor(),
                                               {.lr = 0.1f}}};
  const auto memory_in_use = [] {
    fake_cuda::Counters counters{};
    fake_cuda::api()->counters(&counters);
    return counters.memory_in_use;
  };
  const auto before = memory_in_use();
  calls.check("adamw of 525M, BFloat16 Byte BFloat16", [&] { op->step_all(large); });
  const auto used = memory_in_use() - before;
  calls.require(used < 1'000'000'000, "temporaries of adamw below 1 GB", str(used, " bytes"));
  std::vector<Tensor> grads(30, on_gpu({kRows, kColumns}, at::kFloat));
  calls.check("sums_of_squares of 30", [&] { op->sums_of_squares(grads); });
}

void check_quantizers(Calls& calls) {
  for (const int capability : {90, 100}) {
    const auto op = ops::make_scaled_mm(capability);
    for (const fp8::Recipe recipe : fp8::kRecipes) {
      if (!fp8::traits_of(recipe).libtorch.has(capability)) continue;
      const auto order = [&](fp8::Direction d) {
        engine::QuantizeSpec made{
            .side = side_of(recipe, fp8::FormatChoice::kE4m3, fp8::Role::kInput, d),
            .wanted = true};
        if (fp8::uses_history(recipe)) {
          made.factor = on_gpu({1}, at::kFloat);
          made.amax = on_gpu({1}, at::kFloat);
        }
        return made;
      };
      const Tensor x = on_gpu({kTokens, 256});
      engine::Fp8Matrix made;
      calls.check(str("quantize ", config::name_of(recipe), " for ", capability), [&] {
        made = op->quantize(x, recipe, order(fp8::Direction::kRow), order(fp8::Direction::kColumn));
      });
      for (const fp8::Direction d : {fp8::Direction::kRow, fp8::Direction::kColumn})
        calls.check(str("statistics of ", config::name_of(recipe), " for ", capability),
                    [&] { op->health_stats(x, made, d); });
    }
    Tensor history = on_gpu({16, 30}, at::kFloat), factors = on_gpu({30}, at::kFloat);
    const std::vector<fp8::Format> formats(30, fp8::Format::kE4M3);
    calls.check("update_factors", [&] {
      op->update_factors(history, factors, formats, fp8::AmaxAlgo::kMax, 0, true);
    });
  }
}

}  // namespace

void check_operations(Tally& tally) {
  const at::NoGradGuard no_grad;
  Calls calls(tally);
  check_gemms(calls);
  check_norms(calls);
  check_elementwise(calls);
  check_attention(calls);
  check_vocabulary(calls);
  check_adamw(calls);
  check_quantizers(calls);
}

}  // namespace octavo::gemms
